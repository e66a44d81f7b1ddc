// Beam search alone. Method: random log-probabilities for every text of a small vocabulary; the same by a search that
// sorts all continuations, and by looking at every text there is.
#include "core/request/beam_search.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <random>

#include "tests/fakes/naive_beams.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

// A model of `vocab` tokens: what may follow a text, made up when it is first asked.
class RandomModel {
 public:
  RandomModel(uint32_t vocab, uint32_t seed) : vocab_(vocab), random_(seed) {}
  const std::vector<float>& next(const std::vector<int32_t>& tokens) {
    std::vector<float>& logprobs = texts_[tokens];
    while (logprobs.size() < vocab_) logprobs.push_back(-0.25f * static_cast<float>(random_() % 16));
    return logprobs;
  }
  std::vector<TopLogprob> top(const std::vector<int32_t>& tokens, size_t count) {
    std::vector<TopLogprob> top;
    const std::vector<float>& logprobs = next(tokens);
    for (uint32_t token = 0; token < vocab_; ++token) top.push_back({static_cast<int32_t>(token), logprobs[token]});
    std::ranges::stable_sort(top, std::greater(), &TopLogprob::logprob);
    top.resize(std::min(count, top.size()));
    return top;
  }

 private:
  uint32_t vocab_;
  std::mt19937 random_;
  std::map<std::vector<int32_t>, std::vector<float>> texts_;
};

std::vector<BeamSearch::Answer> search(RandomModel& model, const Request& request, const std::vector<int32_t>& ends) {
  BeamSearch search(request.n, *request.beam, request.max_tokens, ends);
  std::vector<std::vector<int32_t>> beams(request.n);
  while (!search.is_done()) {
    std::vector<std::vector<TopLogprob>> candidates;
    for (const auto& beam : beams) candidates.push_back(model.top(beam, request.n + ends.size()));
    search.advance(candidates);
    std::vector<std::vector<int32_t>> next;
    for (const BeamSearch::Step& step : search.steps()) {
      next.push_back(beams[step.parent]);
      next.back().push_back(step.token);
    }
    beams = next;
  }
  return {search.answers().begin(), search.answers().end()};
}

}  // namespace

TEST_CASE("with the best candidates of each beam alone the answers are those of a search over all of them") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::map<FinishReason, int> num_finished;
  for (int run = 0; run < 500; ++run) {
    Request request;
    request.n = 1 + random() % 5;
    request.max_tokens = 1 + random() % 8;
    request.beam = BeamParams{.length_penalty = -1.0f + 0.5f * static_cast<float>(random() % 7),
                              .early_stopping = random() % 2 == 0};
    const std::vector<int32_t> ends = random() % 4 ? std::vector<int32_t>{1, 3} : std::vector<int32_t>{};
    RandomModel model(8, random());
    const auto found = search(model, request, ends);
    const auto expected =
        naive_beam_search(request, ends, [&](const std::vector<int32_t>& tokens) { return model.next(tokens); });
    REQUIRE(found.size() == request.n);
    REQUIRE(expected->size() == request.n);
    for (size_t i = 0; i < found.size(); ++i) {
      CAPTURE(run, i);
      REQUIRE(found[i].tokens == (*expected)[i].tokens);
      REQUIRE(found[i].score == (*expected)[i].score);
      REQUIRE(found[i].finish == (*expected)[i].finish);
      ++num_finished[found[i].finish];
    }
  }
  CHECK(num_finished[FinishReason::kEos] > 100);
  CHECK(num_finished[FinishReason::kLength] > 100);
}

TEST_CASE("with room for every text the best answer is the best text there is") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  constexpr uint32_t kVocab = 30, kLength = 2;  // token 0 is an end; 29 texts of 1 token go on
  RandomModel model(kVocab, seed);
  double best = -1e9;
  for (int32_t first = 0; first < static_cast<int32_t>(kVocab); ++first) {
    const double sum = double{model.next({})[static_cast<size_t>(first)]};
    if (first == 0) {
      best = std::max(best, sum);
      continue;
    }
    for (const float second : model.next({first})) best = std::max(best, (sum + double{second}) / kLength);
  }
  Request request;
  request.n = kVocab - 1;
  request.max_tokens = kLength;
  request.beam = BeamParams{};
  CHECK(search(model, request, {0})[0].score == best);
}

TEST_CASE("a beam search by hand") {
  // Width 2. First "a" -1, "b" -2, then the end behind "a" costs 3, behind "b" nothing; "aa" costs 0.5 more.
  const auto a = std::vector<TopLogprob>{{10, -0.5f}, {0, -3.0f}, {11, -9.0f}};
  const auto b = std::vector<TopLogprob>{{0, 0.0f}, {10, -8.0f}, {11, -9.0f}};
  const float length_penalty = GENERATE(0.0f, 1.0f);
  const bool early = GENERATE(true, false);
  BeamSearch search(2, {length_penalty, early}, 3, {0});
  const std::vector<TopLogprob> first = {{10, -1.0f}, {11, -2.0f}, {0, -7.0f}};
  search.advance(std::vector{first, first});
  REQUIRE_FALSE(search.is_done());
  REQUIRE(search.steps().size() == 2);
  CHECK(search.steps()[1].parent == 0);
  CHECK(search.steps()[1].token == 11);
  search.advance(std::vector{a, b});  // "aa" -1.5, "b." -2, "a." -4 (third: dropped), "ba" -10, "ab" -10
  REQUIRE_FALSE(search.is_done());
  CHECK(search.steps()[0].parent == 0);
  const std::vector<TopLogprob> last = {{10, -1.0f}, {11, -1.25f}, {0, -2.0f}};
  search.advance(std::vector{last, last});
  REQUIRE(search.is_done());
  REQUIRE(search.answers().size() == 2);
  const bool by_mean = length_penalty == 1;  // "aaa" -2.5 / 3 before "b." -2 / 2
  CHECK(search.answers()[by_mean ? 0 : 1].tokens == std::vector<int32_t>{10, 10, 10});
  CHECK(search.answers()[by_mean ? 0 : 1].finish == FinishReason::kLength);
  if (!by_mean) CHECK(search.answers()[0].tokens == std::vector<int32_t>{11, 0});
}
