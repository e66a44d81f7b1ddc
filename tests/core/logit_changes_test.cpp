// What is added to the logits of the next token. Method: sentences as token ids, the changes by hand.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cmath>
#include <random>
#include <string>

#include "core/request/logit_changes.h"
#include "core/sample/token_bans.h"
#include "tests/fakes/processors.h"

using namespace llmrt;
using test::LimitRuns;

namespace {

enum Word : int32_t { kThe, kCat, kSat, kOn, kMat };

// "2-inf 7+0.5": what a request whose prompt is the first 2 tokens changes.
std::string changes(const Request& request, std::vector<int32_t> tokens) {
  std::vector<TokenBias> found;
  find_logit_changes(request, tokens, 2, static_cast<uint32_t>(tokens.size()) - 2, std::vector<int32_t>{90}, &found);
  std::string text;
  for (const TokenBias& change : found)
    text += fmt::format("{}{}{:+}", text.empty() ? "" : " ", change.token, change.bias);
  return text;
}

std::string repeats(std::vector<int32_t> tokens, uint32_t n) {
  Request request;
  request.sampling.no_repeat_ngram_size = n;
  return changes(request, std::move(tokens));
}

}  // namespace

TEST_CASE("no 3-gram of \"the cat sat on the cat\" comes twice: sat is banned") {
  const std::vector<int32_t> text = {kThe, kCat, kSat, kOn, kThe, kCat};
  CHECK(repeats(text, 3) == "2-inf");
  CHECK(repeats(text, 2) == "2-inf");
  CHECK(repeats(text, 1) == "0-inf 1-inf 2-inf 3-inf");
  CHECK(repeats(text, 4).empty());
  CHECK(repeats(text, 100).empty());
  CHECK(repeats({kThe, kThe, kThe}, 2) == "0-inf");  // the tail may overlap what it repeats
  CHECK(repeats({kThe, kCat, kThe, kMat, kThe}, 2) == "1-inf 4-inf");
}

TEST_CASE("repeats are found wherever they are, in texts of few words") {
  std::mt19937 random(Catch::getSeed());
  for (int round = 0; round < 3000; ++round) {
    std::vector<int32_t> text(random() % 40);
    const uint32_t num_words = 1 + random() % 3, n = 1 + random() % 9;
    for (int32_t& word : text) word = static_cast<int32_t>(random() % num_words);
    std::vector<TokenBias> found;
    ban_repeats(text, n, &found);
    std::vector<int32_t> bans, expected;
    for (const TokenBias& ban : found) bans.push_back(ban.token);
    for (size_t i = n - 1; i < text.size(); ++i)
      if (std::equal(text.begin() + i - (n - 1), text.begin() + i, text.end() - (n - 1))) expected.push_back(text[i]);
    CAPTURE(text, n);
    REQUIRE(bans == expected);
  }
}

TEST_CASE("a text that nearly repeats itself everywhere takes little longer to look through than any other") {
  const auto best_ms = [](const std::vector<int32_t>& text) {
    double best = 1e9;
    for (int i = 0; i < 20; ++i) {
      std::vector<TokenBias> found;
      const auto begin = std::chrono::steady_clock::now();
      ban_repeats(text, 1024, &found);
      const auto end = std::chrono::steady_clock::now();
      best = std::min(best, std::chrono::duration<double, std::milli>(end - begin).count());
      CHECK(found.empty());
    }
    return best;
  };
  std::vector<int32_t> any(100'000), hostile(100'000, kThe);
  for (size_t i = 0; i < any.size(); ++i) any[i] = static_cast<int32_t>(i * 7919 % 100003);
  hostile[hostile.size() - 500] = kCat;  // each place reads like the last 1,023 tokens but for one of them
  const double any_ms = best_ms(any), hostile_ms = best_ms(hostile);
  fmt::print("100,000 tokens: {:.3f} ms, where each place nearly repeats {:.3f}\n", any_ms, hostile_ms);
  CHECK(hostile_ms < 12 * any_ms);
}

TEST_CASE("a bad word is banned where its beginning stands") {
  Request request;
  request.sampling.bad_words = {{kMat}, {kThe, kCat}, {kOn, kThe, kSat}};
  CHECK(changes(request, {kCat, kSat}) == "4-inf");
  CHECK(changes(request, {kSat, kThe}) == "1-inf 4-inf");
  CHECK(changes(request, {kOn, kThe}) == "1-inf 2-inf 4-inf");
  CHECK(reads_newest_token(request));
  request.sampling.bad_words = {{kMat}};
  CHECK_FALSE(reads_newest_token(request));
}

TEST_CASE("nothing takes a ban back, and each token is named once") {
  Request request;
  request.sampling.logit_bias = {{kSat, 100}, {kMat, 100}, {kOn, 2}, {90, 100}, {7, 1}};
  request.sampling.no_repeat_ngram_size = 3;
  request.sampling.bad_words = {{kSat}, {kMat}};
  request.min_tokens = 5;
  request.stop.token_ids = {7, 90};
  request.processors = {std::make_shared<LimitRuns>(1)};
  CHECK(changes(request, {kThe, kCat, kSat, kOn, kThe, kCat}) == "1-inf 2-inf 3+2 4-inf 7-inf 90-inf");
  CHECK(changes(request, {kThe, kCat, kSat, kOn, kThe, kCat, kMat}) == "2-inf 3+2 4-inf 7+1 90+100");
}

TEST_CASE("a processor sees all tokens, and its name stands in the order") {
  Request request;
  request.processors = {std::make_shared<LimitRuns>(2)};
  CHECK(changes(request, {kThe, kCat}).empty());
  CHECK(changes(request, {kThe, kCat, kCat}) == "1-inf");
  request.sampling.top_p = 0.5f;
  request.sampling.temperature = 0.5f;
  request.sampling.bad_words = {{1}};
  request.sampling.presence_penalty = 1;
  CHECK(processor_names(request) ==
        std::vector<std::string>{"penalties", "bad_words", "limit_runs", "temperature", "top_p"});
  request.sampling.temperature = 0;
  CHECK(processor_names(request) == std::vector<std::string>{"penalties", "bad_words", "limit_runs"});
}
