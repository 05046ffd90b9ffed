#include "model/own_spec.h"

#include <utility>

#include "spec/error.h"
#include "subnet/layout.h"

namespace sdp {
namespace {

std::shared_ptr<const OwnNetwork>& registered() {
  static std::shared_ptr<const OwnNetwork> network;
  return network;
}

}  // namespace

void set_own_network(std::shared_ptr<const OwnNetwork> network) {
  registered() = std::move(network);
}

const std::shared_ptr<const OwnNetwork>& own_network() {
  return registered();
}

void OwnSpec::resolve(std::string_view) {
  image_size = image_size.value_or(kSmallImageSize);
}

void OwnSpec::check(const Positions& positions) const {
  if (reads_tokens && !vocab_size)
    fail_at(positions.of("model.vocab_size"), "model.vocab_size",
            "expected the size of the vocabulary: the network reads tokens");
}

const OwnNetwork& OwnSpec::network_or_throw() const {
  if (!network)
    throw UsageError(
        "model.name: own is a network of your own. Name it: --network FILE.py:CLASS; or, if a program that "
        "uses the libraries made the run (examples/own_model), use that program. For another model: "
        "sdp-train spec");
  return *network;
}

ModelLayout layout_of(const OwnSpec& spec, int64_t sequence_length) {
  return spec.network_or_throw().layout(spec, sequence_length);
}

}  // namespace sdp
