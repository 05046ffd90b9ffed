#include "catch.h"
#include "message_of.h"
#include "spec/error.h"
#include "sweep/sweep_spec.h"

using namespace sdp;
using Catch::Matchers::Contains;

namespace {

std::string error_of(const std::string& text) {
  return message_of<UsageError>([&] { parse_sweep(text, "x.yaml"); });
}

/// The error of a sweep with the given third line.
std::string error_in_line_3(const std::string& line) {
  return error_of("name: x\ngrid: {seed: [0, 1], regime: {B: {subnetwork.construction: block}}}\n" + line +
                  "\n");
}

}  // namespace

TEST_CASE("unknown keys of a sweep are refused with their place and the nearest name") {
  CHECK_THAT(error_in_line_3("gird: {}"), Contains("x.yaml:3:1: gird: unknown key; did you mean 'grid'?"));
  CHECK_THAT(error_in_line_3("set: {optimizer.rl: 1}"),
             Contains("x.yaml:3:7: optimizer.rl: unknown key; did you mean 'lr'?"));
  CHECK_THAT(error_in_line_3("set: {optimizer: {rl: 1}}"), Contains("optimizer.rl: unknown key"));
  CHECK_THAT(error_in_line_3("also: [{label: a, crosss: [seed]}]"),
             Contains("x.yaml:3:19: also.crosss: unknown key; did you mean 'across'?"));
  CHECK_THAT(error_in_line_3("also: [{label: a, across: [sede]}]"),
             Contains("x.yaml:3:28: also.across: found 'sede', expected an axis of `grid`: seed, regime; did "
                      "you mean 'seed'?"));
  CHECK_THAT(error_in_line_3("exclude: [{regimes: B}]"), Contains("did you mean 'regime'?"));
  CHECK_THAT(error_in_line_3("exclude: [{regime: b}]"), Contains("expected a value of the axis: B"));
  CHECK_THAT(error_in_line_3("exclude: [{seed: [0, 2]}]"),
             Contains("x.yaml:3:22: exclude.seed: found '2', expected a value of the axis: 0, 1"));
}

TEST_CASE("values are checked at the place where they are written") {
  CHECK_THAT(error_in_line_3("set: {optimizer.lr: fast}"),
             Contains("x.yaml:3:21: optimizer.lr: found 'fast', expected a number"));
  CHECK_THAT(error_in_line_3("also: [{label: a, set: {subnetwork.masking: forwards}}]"),
             Contains("did you mean 'forward'?"));
  CHECK_THAT(error_of("name: x\ngrid: {model.width: [16, wide]}\n"),
             Contains("x.yaml:2:26: model.width: found 'wide', expected a whole number"));
  CHECK_THAT(error_of("name: x\ngrid: {a: {b: {subnetwork.coverage: 3}}}\n"),
             Contains("subnetwork.coverage: found '3'"));
  CHECK_THAT(error_in_line_3("set: {.lr: 1}"), Contains("found '.lr', expected a key"));
}

TEST_CASE("ambiguous entries and entries without effect are refused") {
  CHECK_THAT(error_in_line_3("set: {name: a}"), Contains("the sweep names its runs itself"));
  CHECK_THAT(error_of("name: x\ngrid: {output.dir: [a, b]}\n"), Contains("expected in the sweep's `set`"));
  CHECK_THAT(error_in_line_3("set: {seed: 1, seed: 2}"), Contains("found a second time"));
  CHECK_THAT(error_in_line_3("set: {optimizer.lr: 1, optimizer: {lr: 2}}"), Contains("found a second time"));
  CHECK_THAT(error_of("name: x\ngrid: {seed: [0, 0]}\n"), Contains("grid.seed: found '0' a second time"));
  CHECK_THAT(error_of("name: x\ngrid: {seed: [0], seed: [1]}\n"), Contains("grid.seed: found a second time"));
  CHECK_THAT(error_of("name: x\ngrid: {seed: []}\n"), Contains("grid.seed: found no value"));
  CHECK_THAT(error_of("name: x\ngrid: {seed: 3}\n"), Contains("expected a list of the key's values"));
  CHECK_THAT(error_of("name: x\ngrid: {seed: [0], a: {b: {seed: 1}}}\n"),
             Contains("grid.a: sets seed, which the axis seed sets too"));
  CHECK_THAT(error_in_line_3("also: [{label: a, set: {seed: 3}, across: [seed]}]"),
             Contains("also.across: found 'seed'"));
  CHECK_THAT(error_in_line_3("also: [{set: {seed: 3}}]"), Contains("also.label: missing"));
  CHECK_THAT(error_in_line_3("exclude: [{}]"), Contains("found no axis"));
}

TEST_CASE("a sweep needs a name and something to run, and is not an experiment") {
  CHECK_THAT(error_of("grid: {seed: [0]}\n"), Contains("x.yaml:1:1: name: missing"));
  CHECK_THAT(error_of("name: a/b\ngrid: {seed: [0]}\n"), Contains("expected a folder name"));
  CHECK_THAT(error_of("name: x\nconfigs: [a.yaml]\n"), Contains("nothing to run, expected `grid` or `also`"));
  CHECK_THAT(error_of("name: x\nmodel: {name: mlp}\ndata: {path: .}\n"),
             Contains("found an experiment, expected a sweep") && Contains("sdp-train --config x.yaml"));
}
