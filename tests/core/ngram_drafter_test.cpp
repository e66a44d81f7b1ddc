// Drafts from a branch's own text, against what the text says: each is what followed the last tokens where they stood
// before.
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "core/speculate/ngram_drafter.h"

using namespace llmrt;

namespace {

using Tokens = std::vector<int32_t>;

Tokens propose(Drafter& drafter, const Tokens& tokens, uint32_t most) {
  Tokens drafts;
  drafter.propose(tokens, most, &drafts);
  return drafts;
}

Tokens propose(const Tokens& tokens, uint32_t most) {
  return propose(*NgramDrafts().begin(static_cast<uint32_t>(tokens.size())), tokens, most);
}

// As many of the last tokens before `end` as also stand before `other_end`.
size_t common_before(const Tokens& tokens, size_t other_end) {
  size_t count = 0;
  while (count < other_end && tokens[other_end - 1 - count] == tokens[tokens.size() - 1 - count]) ++count;
  return count;
}

// Whether the text has a place before its end where the last three tokens stand, and the drafts behind them.
bool is_a_repeat(const Tokens& tokens, const Tokens& drafts) {
  for (size_t end = NgramDrafter::kMatchMin; end < tokens.size(); ++end) {
    if (common_before(tokens, end) < NgramDrafter::kMatchMin) continue;
    Tokens whole = tokens;
    whole.insert(whole.end(), drafts.begin(), drafts.end());  // a repeat may reach into itself
    if (std::equal(drafts.begin(), drafts.end(), whole.begin() + static_cast<std::ptrdiff_t>(end))) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("drafts are what followed the last three tokens before, and no longer than their match") {
  CHECK(propose({1, 2, 3, 4, 5, 6, 7, 1, 2, 3}, 8) == Tokens{4, 5, 6});
  CHECK(propose({1, 2, 3, 4, 5, 6, 7, 1, 2, 3}, 2) == Tokens{4, 5});
  CHECK(propose({1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4}, 8) == Tokens{5, 6, 7, 1});
  CHECK(propose({1, 2, 3, 4, 5, 6, 7, 2, 2, 3}, 8).empty());
  CHECK(propose({1, 2}, 8).empty());
  CHECK(propose({1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3}, 1) == Tokens{8});  // the newest place
}

TEST_CASE("a text that repeats itself goes round") {
  CHECK(propose({5, 5, 5, 5, 5}, 4) == Tokens{5, 5, 5, 5});
  CHECK(propose({1, 2, 1, 2, 1, 2, 1}, 5) == Tokens{2, 1, 2, 1, 2});
}

TEST_CASE("a match goes on where it began while the text does, and is looked for anew where it does not") {
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  NgramDrafter drafter(std::make_shared<const Tokens>(), 9);
  Tokens tokens = text;
  CHECK_FALSE(drafter.expects_more(tokens));
  for (const int32_t token : {2, 3, 4, 5}) {
    tokens.push_back(token);
    const Tokens drafts = propose(drafter, tokens, 2);
    CHECK(drafts == (token < 4 ? Tokens{} : Tokens{token + 1, token + 2}));
    CHECK(drafter.expects_more(tokens) == (token >= 4));
  }
  tokens.push_back(1);
  CHECK(propose(drafter, tokens, 2).empty());
  CHECK_FALSE(drafter.expects_more(tokens));
}

TEST_CASE("what is proposed token by token is a repeat of the text, on random texts of few tokens") {
  std::mt19937 random(11);
  uint32_t num_drafts = 0;
  for (int round = 0; round < 60; ++round) {
    const int32_t num_words = 2 + round % 5;
    Tokens prediction;
    if (round % 3 == 0)
      for (int i = 0; i < 20; ++i) prediction.push_back(static_cast<int32_t>(random() % num_words));
    const auto num_prompt = static_cast<uint32_t>(1 + random() % 40);
    const auto drafter = NgramDrafts(prediction).begin(num_prompt);
    Tokens tokens;
    while (tokens.size() < 120) {
      tokens.push_back(static_cast<int32_t>(random() % num_words));
      if (tokens.size() < num_prompt) continue;
      const auto most = static_cast<uint32_t>(random() % 9);
      const Tokens drafts = propose(*drafter, tokens, most);
      REQUIRE(drafts.size() <= most);
      Tokens all = prediction;
      all.insert(all.end(), tokens.begin(), tokens.end());
      // Behind the prompt's end a prediction is expected, whatever stood there, and the match goes on with what follows
      // it.
      Tokens answer(tokens.begin() + num_prompt, tokens.end()), expected = all;
      const bool begins = !prediction.empty() && answer.size() <= expected.size() &&
                          std::equal(answer.begin(), answer.end(), expected.begin());
      if (!begins && !drafts.empty()) REQUIRE(is_a_repeat(all, drafts));
      num_drafts += static_cast<uint32_t>(drafts.size());
    }
  }
  CHECK(num_drafts > 1000);
}

TEST_CASE("an answer that begins as its prediction goes on with it, and so does one that comes upon it") {
  const auto drafter = NgramDrafts({20, 21, 22, 23, 24, 25}).begin(3);
  Tokens tokens = {1, 2, 3};
  CHECK(propose(*drafter, tokens, 4).empty());
  tokens.push_back(20);
  CHECK(propose(*drafter, tokens, 4) == Tokens{21, 22, 23, 24});
  for (const int32_t token : {9, 21, 22, 23}) {
    tokens.push_back(token);
    CHECK(propose(*drafter, tokens, 2) == (token == 23 ? Tokens{24, 25} : Tokens{}));
  }
}

TEST_CASE("a long prompt is read in parts, and what its index holds is bounded") {
  Tokens tokens;
  std::mt19937 random(5);
  for (int i = 0; i < 300'000; ++i) tokens.push_back(static_cast<int32_t>(random() % 100'000));
  const auto drafter = NgramDrafts().begin(static_cast<uint32_t>(tokens.size()));
  for (int i = 0; i < 3; ++i) tokens.push_back(tokens[299'000 + static_cast<size_t>(i)]);
  uint32_t num_calls = 1;
  while (propose(*drafter, tokens, 3).empty() && num_calls < 100) {
    ++num_calls;
  }
  CHECK(num_calls == (tokens.size() + NgramDrafter::kTokensPerCall - 1) / NgramDrafter::kTokensPerCall);
  CHECK(propose(*drafter, tokens, 3) == Tokens(tokens.begin() + 299'003, tokens.begin() + 299'006));
}
