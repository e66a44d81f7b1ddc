// What is added to the logits of the next token. Method: sentences as token ids, the changes by hand.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
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
