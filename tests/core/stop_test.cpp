// Stop matching. Method: sentences by hand, then random texts, strings and token cuts beside a matcher that searches
// the whole text again after every byte.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "core/stop/stop_matcher.h"
#include "tests/fakes/naive_stop.h"

using namespace llmrt;

namespace {

constexpr int32_t kEos = 9;
const std::vector<int32_t> kEnds = {kEos};
constexpr uint32_t kMany = 1000;

StopMatcher matcher_of(std::vector<std::string> strings, uint32_t min_tokens = 0, uint32_t max_tokens = kMany) {
  return StopMatcher({.strings = std::move(strings)}, min_tokens, max_tokens, kEnds);
}

void check_verdict(const StopVerdict& verdict, uint32_t hold, uint32_t cut, FinishReason finish) {
  CHECK(verdict.hold_bytes == hold);
  CHECK(verdict.cut_bytes == cut);
  CHECK(std::string(finish_reason_name(verdict.finish)) == finish_reason_name(finish));
}

}  // namespace

TEST_CASE("a stop string across tokens is held back and cut") {
  StopMatcher matcher = matcher_of({"STOP"});
  check_verdict(matcher.advance(0, "go S"), 1, 0, FinishReason::kNone);
  check_verdict(matcher.advance(0, "TO"), 3, 0, FinishReason::kNone);
  check_verdict(matcher.advance(0, "P now"), 0, 8, FinishReason::kStopString);
}

TEST_CASE("text that only looked like a stop string is let go") {
  StopMatcher matcher = matcher_of({"\n\nUser:"});
  check_verdict(matcher.advance(0, "a\n\nUs"), 4, 0, FinishReason::kNone);
  check_verdict(matcher.advance(0, "\n"), 1, 0, FinishReason::kNone);
  check_verdict(matcher.advance(0, "x"), 0, 0, FinishReason::kNone);
}

TEST_CASE("of two strings that end together the longer is cut; the one that ends first wins") {
  StopMatcher longer = matcher_of({"b", "ab"});
  check_verdict(longer.advance(0, "xab"), 0, 2, FinishReason::kStopString);
  StopMatcher first = matcher_of({"bcd", "c"});
  check_verdict(first.advance(0, "abcd"), 0, 2, FinishReason::kStopString);
}

TEST_CASE("include_string keeps the match and cuts what follows it") {
  StopMatcher matcher({.strings = {"END"}, .include_string = true}, 0, kMany, kEnds);
  check_verdict(matcher.advance(0, "the EN"), 2, 0, FinishReason::kNone);
  check_verdict(matcher.advance(0, "D."), 0, 1, FinishReason::kStopString);
}

TEST_CASE("an end-of-generation token ends the text and adds none; held text is let go") {
  StopMatcher matcher = matcher_of({"xyz"});
  check_verdict(matcher.advance(0, "xy"), 2, 0, FinishReason::kNone);
  check_verdict(matcher.advance(kEos, "</s>"), 0, 4, FinishReason::kEos);
}

TEST_CASE("ignore_eos and min_tokens let the token pass") {
  StopMatcher ignoring({.ignore_eos = true}, 0, kMany, kEnds);
  check_verdict(ignoring.advance(kEos, ""), 0, 0, FinishReason::kNone);
  StopMatcher at_least = matcher_of({}, 2);
  check_verdict(at_least.advance(kEos, ""), 0, 0, FinishReason::kNone);
  check_verdict(at_least.advance(kEos, ""), 0, 0, FinishReason::kNone);
  check_verdict(at_least.advance(kEos, ""), 0, 0, FinishReason::kEos);
}

TEST_CASE("stop tokens end the text") {
  StopMatcher matcher({.token_ids = {5, 3}, .ignore_eos = true}, 1, kMany, kEnds);
  check_verdict(matcher.advance(3, "c"), 0, 0, FinishReason::kNone);
  check_verdict(matcher.advance(4, "d"), 0, 0, FinishReason::kNone);
  check_verdict(matcher.advance(3, "c"), 0, 1, FinishReason::kStopToken);
}

TEST_CASE("a stop string that is complete before min_tokens tokens does not count") {
  StopMatcher matcher = matcher_of({"ab"}, 2);
  check_verdict(matcher.advance(0, "ab"), 0, 0, FinishReason::kNone);  // complete: nothing to hold either
  check_verdict(matcher.advance(0, "ab"), 0, 2, FinishReason::kStopString);
}

TEST_CASE("length ends the text unless something else does with the same token") {
  StopMatcher plain = matcher_of({"b"}, 0, 2);
  check_verdict(plain.advance(0, "a"), 0, 0, FinishReason::kNone);
  check_verdict(plain.advance(0, "a"), 0, 0, FinishReason::kLength);
  StopMatcher both = matcher_of({"b"}, 0, 1);
  check_verdict(both.advance(0, "b"), 0, 1, FinishReason::kStopString);
  StopMatcher eos = matcher_of({}, 0, 1);
  check_verdict(eos.advance(kEos, ""), 0, 0, FinishReason::kEos);
}

TEST_CASE("random texts agree with the naive matcher, and nothing shown is ever cut") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto random_string = [&](uint32_t bytes_max) {
    std::string string(random() % bytes_max + 1, ' ');
    for (char& c : string) c = static_cast<char>('a' + random() % 2);  // two letters: overlaps everywhere
    return string;
  };
  uint32_t num_matches = 0;
  for (int round = 0; round < 5000; ++round) {
    StopParams params;
    for (uint32_t i = random() % 4; i-- > 0;) params.strings.push_back(random_string(8));
    params.include_string = random() % 2;
    const uint32_t min_tokens = random() % 8, max_tokens = min_tokens + 1 + random() % 60;
    StopMatcher matcher(params, min_tokens, max_tokens, {});
    test::NaiveMatcher naive{params, min_tokens, max_tokens};
    size_t text_bytes = 0, shown_bytes = 0;
    for (;;) {
      const std::string token = random() % 10 == 0 ? std::string() : random_string(3);
      const StopVerdict expected = naive.advance(0, token);
      const StopVerdict found = matcher.advance(0, token);
      text_bytes += token.size();
      REQUIRE(found.hold_bytes == expected.hold_bytes);
      REQUIRE(found.cut_bytes == expected.cut_bytes);
      REQUIRE(found.finish == expected.finish);
      REQUIRE(text_bytes - found.cut_bytes >= shown_bytes);
      shown_bytes = text_bytes - found.hold_bytes;
      num_matches += found.finish == FinishReason::kStopString;
      if (found.finish != FinishReason::kNone) break;
    }
  }
  CHECK(num_matches > 1000);
}

TEST_CASE("a token costs its own bytes, whatever the text's length and the strings") {
  // The worst text for a matcher that starts over: all but the last byte of a long string, again and again.
  StopMatcher matcher = matcher_of({std::string(2000, 'a') + "b"}, 0, ~0u);
  const std::string token = "aaaa";
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kTokens = 200000;
  for (int i = 0; i < kTokens; ++i) REQUIRE(matcher.advance(0, token).finish == FinishReason::kNone);
  const double us_token =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / kTokens;
  CHECK(us_token < 10);
}
