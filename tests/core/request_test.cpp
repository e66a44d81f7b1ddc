// States and the checks of a request. Method: the legal moves are listed here once more, by hand; all others must be
// refused.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "core/request/request.h"
#include "core/request/request_state.h"
#include "core/request/sequence.h"
#include "tests/fakes/deny_list.h"
#include "tests/fakes/processors.h"

using namespace llmrt;
using enum RequestState;

TEST_CASE("exactly the listed moves are legal") {
  const std::set<std::pair<RequestState, RequestState>> legal = {
      {kQueued, kPrefilling},   {kQueued, kStreaming},     {kQueued, kCancelled},     {kQueued, kRejected},
      {kPrefilling, kDecoding}, {kPrefilling, kStreaming}, {kPrefilling, kCancelled}, {kPrefilling, kPreempted},
      {kDecoding, kStreaming},  {kDecoding, kCancelled},   {kDecoding, kPreempted},   {kStreaming, kFinished},
      {kStreaming, kCancelled}, {kPreempted, kPrefilling}, {kPreempted, kStreaming},  {kPreempted, kCancelled},
  };
  for (int from = 0; from < kNumRequestStates; ++from) {
    for (int to = 0; to < kNumRequestStates; ++to) {
      const auto move = std::pair{static_cast<RequestState>(from), static_cast<RequestState>(to)};
      INFO(request_state_name(move.first) << " to " << request_state_name(move.second));
      CHECK(is_legal_move(move.first, move.second) == legal.contains(move));
    }
  }
}

TEST_CASE("nothing leaves a terminal state") {
  for (int from = 0; from < kNumRequestStates; ++from) {
    bool leaves = false;
    for (int to = 0; to < kNumRequestStates; ++to) {
      leaves |= is_legal_move(static_cast<RequestState>(from), static_cast<RequestState>(to));
    }
    CHECK(leaves != is_terminal(static_cast<RequestState>(from)));
  }
}

namespace {

Request good_request() {
  Request request;
  request.prompt = {1, 2, 3};
  return request;
}

// The message of a request that must be refused, after `spoil` has been at it.
template <class F>
std::string refusal(F spoil) {
  Request request = good_request();
  spoil(request);
  const Status status = validate(request, 100);
  if (status.ok()) return "accepted";
  CHECK(status.error().code == ErrorCode::kInvalidArgument);
  return status.error().message;
}

}  // namespace

TEST_CASE("a good request passes") {
  CHECK(validate(good_request(), 100).ok());
}

TEST_CASE("each bad value is refused by name, range and value") {
  const auto message = [](auto spoil) { return refusal(spoil); };
  CHECK(message([](Request& r) { r.prompt.clear(); }) == "prompt: expected at least 1 token, found 0");
  CHECK(message([](Request& r) { r.prompt[2] = 100; }) == "prompt: token 2: expected an id in [0, 100), found 100");
  CHECK(message([](Request& r) { r.prompt[0] = -1; }) == "prompt: token 0: expected an id in [0, 100), found -1");
  CHECK(message([](Request& r) { r.n = 0; }) == "n: expected 1 to 128, found 0");
  CHECK(message([](Request& r) { r.n = 129; }) == "n: expected 1 to 128, found 129");
  CHECK(message([](Request& r) { r.beam = BeamParams{.length_penalty = 11}; }) ==
        "length_penalty: expected a number in [-10, 10], found 11");
  CHECK(message([](Request& r) { r.beam = BeamParams{.length_penalty = std::nanf("")}; }) ==
        "length_penalty: expected a number in [-10, 10], found nan");
  CHECK(message([](Request& r) { r.min_tokens = 17; }) == "min_tokens: expected at most max_tokens = 16, found 17");
  CHECK(message([](Request& r) { r.stop.strings = {""}; }) ==
        "stop: expected strings of at least 1 byte, found an empty one");
  CHECK(message([](Request& r) { r.stop.strings.assign(65, "x"); }) == "stop: expected at most 64 strings, found 65");
  CHECK(message([](Request& r) { r.stop.strings = {std::string(4097, 'x')}; }) ==
        "stop: expected at most 4096 bytes in all strings, found 4097");
  CHECK(message([](Request& r) { r.stop.token_ids.assign(129, 1); }) ==
        "stop_token_ids: expected at most 128 ids, found 129");
  CHECK(message([](Request& r) { r.stop.token_ids = {100}; }) == "stop_token_ids: expected ids in [0, 100), found 100");
  CHECK(message([](Request& r) { r.sampling.temperature = -0.5f; }) ==
        "temperature: expected 0 or a number in [1e-06, 100], found -0.5");
  CHECK(message([](Request& r) { r.sampling.temperature = std::nanf(""); }) ==
        "temperature: expected 0 or a number in [1e-06, 100], found nan");
  CHECK(message([](Request& r) { r.sampling.top_p = 0; }) == "top_p: expected a number in [1e-09, 1], found 0");
  CHECK(message([](Request& r) { r.sampling.top_p = 1.5f; }) == "top_p: expected a number in [1e-09, 1], found 1.5");
  CHECK(message([](Request& r) { r.sampling.min_p = 2; }) == "min_p: expected a number in [0, 1], found 2");
  CHECK(message([](Request& r) { r.sampling.repetition_penalty = 0; }) ==
        "repetition_penalty: expected a number in [0.01, 10], found 0");
  CHECK(message([](Request& r) {
          r.sampling.temperature = 1e-40f;
        }).starts_with("temperature: expected 0 or a number in [1e-06, 100], found 1e-40"));
  CHECK(message([](Request& r) { r.sampling.presence_penalty = 3; }) ==
        "presence_penalty: expected a number in [-2, 2], found 3");
  CHECK(message([](Request& r) { r.sampling.frequency_penalty = -3; }) ==
        "frequency_penalty: expected a number in [-2, 2], found -3");
  CHECK(message([](Request& r) {
          r.sampling.logit_bias = {{100, 1}};
        }) == "logit_bias: expected token ids in [0, 100), found 100");
  CHECK(message([](Request& r) {
          r.sampling.logit_bias = {{1, 101}};
        }) == "logit_bias: expected a number in [-100, 100], found 101");
  CHECK(message([](Request& r) {
          r.sampling.logit_bias.assign(1025, {1, 1});
        }) == "logit_bias: expected at most 1024 entries, found 1025");
  CHECK(message([](Request& r) {
          r.sampling.bad_words = {{1}, {}};
        }) == "bad_words: expected at least 1 token in each, found none");
  CHECK(message([](Request& r) {
          r.sampling.bad_words = {{1, 100}};
        }) == "bad_words: expected token ids in [0, 100), found 100");
  CHECK(message([](Request& r) { r.sampling.bad_words.assign(1025, {1}); }) ==
        "bad_words: expected at most 1024 token sequences, found 1025");
  CHECK(message([](Request& r) { r.sampling.bad_words.assign(2, std::vector<int32_t>(5000, 1)); }) ==
        "bad_words: expected at most 8192 tokens in all, found 10000");
  CHECK(message([](Request& r) { r.begun = {100}; }) == "begun: expected token ids in [0, 100), found 100");
  CHECK(message([](Request& r) { r.begun.assign(16, 1); }) ==
        "begun: expected fewer tokens than max_tokens = 16 and n = 1, found 16 and n = 1");
  CHECK(message([](Request& r) { r.sampling.no_repeat_ngram_size = 1025; }) ==
        "no_repeat_ngram_size: expected a number in [0, 1024], found 1025");
  CHECK(message([](Request& r) { r.sampling.logprobs = 21; }) ==
        "logprobs: expected at most 20 alternatives, found 21");
  CHECK(message([](Request& r) { r.sampling.logprobs = -2; }) ==
        "logprobs: expected at most 20 alternatives, found -2");
  CHECK(message([](Request& r) { r.sampling.prompt_logprobs = true; }) ==
        "prompt_logprobs: expected logprobs to be asked for too");
}

TEST_CASE("what does not go together with beam search is refused by name") {
  const auto refused = [](auto spoil) {
    Request request = good_request();
    request.beam = BeamParams{};
    spoil(request);
    const Status status = validate(request, 100);
    if (status.ok()) return std::string();
    CHECK(status.error().code == ErrorCode::kUnsupported);
    return status.error().message.substr(std::string("use_beam_search: not together with ").size());
  };
  CHECK(refused([](Request&) {}).empty());
  CHECK(refused([](Request& r) { r.sampling.temperature = 0; }).empty());
  CHECK(refused([](Request& r) { r.sampling.temperature = 0.5f; }) == "temperature");
  CHECK(refused([](Request& r) { r.sampling.top_k = 5; }) == "top_k");
  CHECK(refused([](Request& r) { r.sampling.top_p = 0.5f; }) == "top_p");
  CHECK(refused([](Request& r) { r.sampling.min_p = 0.5f; }) == "min_p");
  CHECK(refused([](Request& r) { r.sampling.frequency_penalty = 1; }) == "penalties");
  CHECK(refused([](Request& r) { r.sampling.logit_bias = {{1, 1}}; }) == "logit_bias");
  CHECK(refused([](Request& r) { r.sampling.bad_words = {{1}}; }) == "bad_words");
  CHECK(refused([](Request& r) { r.sampling.no_repeat_ngram_size = 3; }) == "no_repeat_ngram_size");
  CHECK(refused([](Request& r) { r.processors = {std::make_shared<test::LimitRuns>(2)}; }) == "logits processors");
  CHECK(refused([](Request& r) { r.policy = std::make_shared<test::DenyList>(std::vector<std::string>{"x"}); }) ==
        "a policy");
  CHECK(refused([](Request& r) { r.begun = {1}; }) == "an answer that has begun");
  CHECK(refused([](Request& r) { r.sampling.processed_logprobs = true; }) == "processed log-probabilities");
  CHECK(refused([](Request& r) { r.sampling.tell_draws = true; }) == "told draws");
  CHECK(refused([](Request& r) { r.sampling.logprobs = 0; }) == "logprobs");
  CHECK(refused([](Request& r) { r.min_tokens = 1; }) == "min_tokens");
  CHECK(refused([](Request& r) { r.max_tokens = 0; }) == "max_tokens = 0");
  CHECK(refused([](Request& r) { r.stop.strings = {"x"}; }) == "stop");
  CHECK(refused([](Request& r) { r.stop.token_ids = {1}; }) == "stop_token_ids");
  Request request = good_request();
  request.beam = BeamParams{};
  CHECK_FALSE(validate(request, 19).ok());
  CHECK(validate(request, 20).ok());
}

TEST_CASE("a sequence wants its tokens that are known or in flight, and never the last one that max_tokens allows") {
  Request request = good_request();
  request.max_tokens = 2;
  Sequence sequence(request);
  CHECK(sequence.wanted() == 3);  // the prompt; its end yields output 0
  CHECK(sequence.positions_max() == 4);
  sequence.progress.computed = 3;
  sequence.progress.in_flight.add_draw();
  CHECK(sequence.wanted() == 4);  // output 0 in flight; computing it yields output 1, the last
  sequence.progress.computed = 4;
  sequence.progress.in_flight.add_draw();
  CHECK(sequence.gap() == 0);
  sequence.progress.in_flight.drop_draw();
  CHECK(sequence.progress.in_flight == InFlight{1, 1});
  sequence.progress.in_flight.drop_draw();
  CHECK(sequence.progress.in_flight.is_empty());
  sequence.tokens.insert(sequence.tokens.end(), {7, 8});
  CHECK(sequence.gap() == 0);
  sequence.progress.computed = 0;  // preempted: all but the last token again
  CHECK(sequence.gap() == 4);
}

TEST_CASE("logit changes that depend on the newest token come late while one is in flight, and tell of known ones") {
  Request request = good_request();
  request.prompt = {1, 2, 3};
  request.max_tokens = 8;
  request.sampling.bad_words = {{7, 4}};
  Sequence sequence(request);
  CHECK_FALSE(sequence.changes_come_late());
  CHECK(sequence.logit_changes({}).empty());
  sequence.progress = {.computed = 4, .in_flight = {2, 2}};
  CHECK(sequence.changes_come_late());
  sequence.tokens.push_back(7);
  sequence.progress.in_flight.drop_draw();  // its own draw is still in flight
  REQUIRE(sequence.logit_changes({}).size() == 1);
  CHECK(sequence.logit_changes({})[0].token == 4);
  sequence.progress.in_flight.drop_draw();
  CHECK_FALSE(sequence.changes_come_late());
}

TEST_CASE("a sequence waits for a processor that is not ready, and asks none of what it has been told") {
  struct Late final : LogitsProcessor {
    mutable bool is_there = false;
    std::string_view name() const override { return "late"; }
    bool is_ready(std::span<const int32_t>, uint32_t) const override { return is_there; }
    void process(std::span<const int32_t>, uint32_t, std::vector<TokenBias>* changes) const override {
      changes->push_back({3, kBan});
    }
  };
  Request request = good_request();
  const auto late = std::make_shared<Late>();
  request.processors = {late};
  Sequence sequence(request);
  CHECK_FALSE(sequence.changes_are_ready());
  late->is_there = true;
  CHECK(sequence.changes_are_ready());
  CHECK(sequence.logit_changes({}).size() == 1);
  late->is_there = false;
  CHECK(sequence.changes_are_ready());
  sequence.tokens.push_back(5);
  CHECK_FALSE(sequence.changes_are_ready());
  CHECK_FALSE(sequence.changes_come_late());
  sequence.progress.in_flight.add_draw();
  CHECK(sequence.changes_come_late());
}

TEST_CASE("a sequence that scores its prompt needs a sample for each position but the last, once") {
  Request request = good_request();
  request.prompt = {1, 2, 3, 4, 5};
  request.sampling.logprobs = 0;
  request.sampling.prompt_logprobs = true;
  Sequence sequence(request);
  CHECK(sequence.samples_for(0) == 0);
  CHECK(sequence.samples_for(3) == 3);  // scores 2, 3, 4
  CHECK(sequence.samples_for(4) == 4);
  CHECK(sequence.samples_for(5) == 5);  // four scores and the draw
  CHECK(sequence.count_within(5, 4) == 4);
  CHECK(sequence.count_within(5, 0) == 0);
  sequence.progress.scored = 3;  // after a preemption positions 0 and 1 are computed again without scores
  CHECK(sequence.samples_for(2) == 0);
  CHECK(sequence.count_within(5, 0) == 2);
  CHECK(sequence.count_within(5, 2) == 4);
}
