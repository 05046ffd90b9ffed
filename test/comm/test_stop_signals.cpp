// The effect of signals on a process, and where all processes stop.

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <functional>
#include <future>
#include <thread>

#include "catch.h"
#include "comm/stop_agreement.h"
#include "process/signals.h"

namespace sdp {
namespace {

/// The exit code of a process that runs `body` and then ends with 0, or minus the signal that ended it.
int code_of(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    for (const int signal : kStopSignals)  // the process that runs the tests may ignore some
      std::signal(signal, SIG_DFL);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void check_in_child(bool condition) {
  if (!condition) _exit(1);
}

bool is_requested(const StopSignals& signals) {
  pollfd polled = {.fd = signals.descriptor(), .events = POLLIN, .revents = 0};
  return poll(&polled, 1, 0) == 1;
}

void pass(StopAgreement& agreement, int64_t points) {
  for (int64_t point = 0; point < points; ++point)
    REQUIRE_FALSE(agreement.stops_here());
}

}  // namespace

TEST_CASE("before training a signal ends the process with its code, even if it came during loading") {
  const int signal = GENERATE(SIGTERM, SIGINT, SIGHUP, SIGUSR1);
  const bool in_loading = GENERATE(false, true);
  CHECK(code_of([=] {
          sigset_t all;
          sigfillset(&all);
          if (in_loading) sigprocmask(SIG_BLOCK, &all, nullptr);
          if (in_loading) raise(signal);
          const StopSignals signals(75);
          if (!in_loading) raise(signal);
        }) == 75);
}

TEST_CASE("in training a signal is a request; a second one ends the process, unless it is the same request") {
  const auto ask_twice = [](std::chrono::milliseconds pause) {
    return code_of([=] {
      StopSignals signals(75);
      signals.remember();
      check_in_child(!is_requested(signals));
      raise(SIGUSR1);
      check_in_child(is_requested(signals));
      std::this_thread::sleep_for(pause);
      raise(SIGTERM);
    });
  };
  CHECK(ask_twice(std::chrono::milliseconds(0)) == 0);
  CHECK(ask_twice(std::chrono::milliseconds(2100)) == -SIGTERM);
}

TEST_CASE("a thread started while signals are blocked does not receive them; its starter does afterwards") {
  const bool raises = GENERATE(false, true);
  const auto body = [=] {
    StopSignals signals(75);
    std::thread driver;
    {
      const StopSignalsBlocked here;
      driver = std::thread([] { pause(); });
      if (raises) raise(SIGTERM);  // stays pending
    }
    if (raises) _exit(1);
    signals.remember();
    pthread_kill(driver.native_handle(), SIGTERM);
    check_in_child(!is_requested(signals));
    _exit(0);
  };
  CHECK(code_of(body) == (raises ? 75 : 0));
}

TEST_CASE("after everything is saved, signals have no effect, first or second") {
  CHECK(code_of([] {
          StopSignals signals(75);
          signals.remember();
          raise(SIGTERM);
          signals.ignore();
          std::this_thread::sleep_for(std::chrono::milliseconds(2100));
          for (const int signal : kStopSignals)
            raise(signal);
        }) == 0);
}

TEST_CASE("ignored signals stay ignored, as under nohup; blocked ones wait until they are taken") {
  CHECK(code_of([] {
          std::signal(SIGHUP, SIG_IGN);
          StopSignals signals(75);
          raise(SIGHUP);
          signals.remember();
          raise(SIGHUP);
          check_in_child(!is_requested(signals));
          signals.block();
          sigset_t none, term;
          sigemptyset(&none);
          raise(SIGTERM);
          raise(SIGINT);
          sigemptyset(&term);
          sigaddset(&term, SIGTERM);
          int taken = 0;
          check_in_child(sigwait(&term, &taken) == 0 && taken == SIGTERM);
          sigprocmask(SIG_SETMASK, &none, nullptr);
          check_in_child(!is_requested(signals));  // they have no effect
        }) == 0);
}

TEST_CASE("all stop at the last point that any rank has passed") {
  std::deque<StopAgreement> world;
  const std::vector<int64_t> passed = {5, 2, 9};  // some are far ahead
  for (int rank = 0; rank < 3; ++rank)
    pass(world.emplace_back(rank, 3), passed[static_cast<size_t>(rank)]);
  CHECK(world[0].missing().empty());
  CHECK_FALSE(world[0].stops_within());
  for (size_t from = 0; from < 3; ++from) {
    CHECK(world[from].ask() == passed[from]);
    for (size_t to = 0; to < 3; ++to)
      if (to != from) world[to].receive(static_cast<int>(from), passed[from]);
  }
  for (size_t rank = 0; rank < 3; ++rank) {
    for (int64_t point = passed[rank]; point < 9; ++point) {
      CHECK_FALSE(world[rank].stops_within());  // another rank has passed the next point
      CHECK_FALSE(world[rank].stops_here());
    }
    CHECK(world[rank].stops_within());
    CHECK(world[rank].stops_here());
    CHECK_FALSE(world[rank].is_before_training());
  }
}

TEST_CASE("a rank that has reported its points passes no further one before it has heard from all") {
  StopAgreement agreement(0, 3);
  pass(agreement, 1);
  CHECK(agreement.ask() == 1);
  CHECK_FALSE(agreement.ask());
  CHECK(agreement.missing() == std::vector<int>{1, 2});
  const bool within = GENERATE(false, true);
  auto stops = std::async(std::launch::async,
                          [&] { return within ? agreement.stops_within() : agreement.stops_here(); });
  agreement.receive(2, 1);
  CHECK(agreement.missing() == std::vector<int>{1});
  CHECK(stops.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  SECTION("and continues if another rank is ahead") {
    agreement.receive(1, 3);
    CHECK_FALSE(stops.get());
    pass(agreement, within ? 2 : 1);
    CHECK(agreement.stops_here());
  }
  SECTION("and stops if none is") {
    agreement.receive(1, 1);
    CHECK(stops.get());
  }
  SECTION("and continues, to fail, if another rank is lost") {
    agreement.abandon();
    CHECK_FALSE(stops.get());
  }
}

TEST_CASE("a process that has not begun training is distinguished from one in its first step") {
  StopAgreement agreement(1, 2);
  pass(agreement, 1);
  CHECK(agreement.ask() == 1);
  CHECK_FALSE(agreement.is_before_training());
  agreement.receive(0, StopAgreement::kNotBegun);
  CHECK(agreement.is_before_training());
}

}  // namespace sdp
