#include "core/grammar/deny_patterns.h"

#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <random>
#include <regex>

namespace llmrt {
namespace {

struct Outcome {
  std::string shown;  // by a reader that obeys the verdicts
  bool stopped = false;
};

// Reads `text` in pieces of 1 to `piece_max` bytes. What is shown may never be taken back.
Outcome read(const Policy& policy, const std::string& text, size_t piece_max, std::mt19937& random) {
  const auto filter = policy.begin();
  Outcome outcome;
  size_t shown = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t size = std::min<size_t>(text.size() - at, 1 + random() % piece_max);
    const PolicyVerdict verdict = filter->advance(0, std::string_view(text).substr(at, size));
    at += size;
    const size_t hidden = verdict.stops ? verdict.cut_bytes : verdict.hold_bytes;
    REQUIRE(hidden <= at);
    REQUIRE(at - hidden >= (verdict.stops ? 0 : shown));
    shown = std::max(shown, at - hidden);
    if (!verdict.stops) continue;
    outcome.stopped = true;
    outcome.shown = text.substr(0, at - hidden);
    CHECK(shown == at - hidden);
    return outcome;
  }
  outcome.shown = text;
  return outcome;
}

std::shared_ptr<const Policy> compiled(const DenySource& source) {
  auto policy = compile_deny_patterns(source);
  INFO((policy ? std::string() : policy.error().message));
  REQUIRE(policy.ok());
  return *policy;
}

// What a search over the whole text says: the first byte at which a match ends, and the earliest begin of those that
// do.
Outcome searched(const std::vector<std::string>& expressions, bool ignore_case, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end)
    for (size_t begin = 0; begin < end; ++begin)
      for (const std::string& expression : expressions) {
        const std::regex regex(expression,
                               ignore_case ? std::regex::ECMAScript | std::regex::icase : std::regex::ECMAScript);
        if (std::regex_match(text.substr(begin, end - begin), regex)) return {text.substr(0, begin), true};
      }
  return {text, false};
}

TEST_CASE("an answer ends before what is denied, however it is cut into tokens") {
  std::mt19937 random(7);
  const auto policy = compiled({.strings = {"secret", "sec ond"}, .expressions = {"[A-Z]{2}\\d{3,}", "pass ?word"}});
  for (const auto& [text, shown] :
       std::vector<std::pair<std::string, std::string>>{{"it is a secret.", "it is a "},
                                                        {"section two, sec ond", "section two, "},
                                                        {"code XAB123 follows", "code X"},
                                                        {"A1 AB12 ab123", "A1 AB12 ab123"},
                                                        {"the password", "the "},
                                                        {"the pass  word", "the pass  word"},
                                                        {"secre", "secre"}})
    for (size_t piece_max = 1; piece_max < 6; ++piece_max) {
      const Outcome outcome = read(*policy, text, piece_max, random);
      CHECK(outcome.shown == shown);
      CHECK(outcome.stopped == (shown.size() < text.size()));
    }
}

TEST_CASE("what is found is what a search over the whole text finds") {
  std::mt19937 random(11);
  const std::vector<std::vector<std::string>> sets = {{"ab*c", "bb"},        {"a(b|ca)*d"}, {"[ab]{3}", "cd?c"},
                                                      {"(ab|b)c{2,}", "dd"}, {"a.c"},       {"B[^b]A"}};
  size_t num_stopped = 0;
  for (int round = 0; round < 600; ++round) {
    const std::vector<std::string>& set = sets[random() % sets.size()];
    const bool ignore_case = set[0].find('^') == std::string::npos && random() % 2 == 0;
    std::string text;
    for (size_t i = 0, size = random() % 14; i < size; ++i) text += "abcdAB"[random() % 6];
    const auto policy = compiled({.expressions = set, .ignore_case = ignore_case});
    const Outcome expected = searched(set, ignore_case, text);
    const Outcome found = read(*policy, text, 1 + random() % 4, random);
    INFO(text << " ignore_case " << ignore_case);
    CHECK(found.stopped == expected.stopped);
    CHECK(found.shown == expected.shown);
    num_stopped += found.stopped;
  }
  CHECK(num_stopped > 100);
}

TEST_CASE("letters of either case are denied where that is wanted") {
  std::mt19937 random(3);
  const auto policy = compiled({.strings = {"SeCret"}, .expressions = {"[k-m]{3}x"}, .ignore_case = true});
  CHECK(read(*policy, "a sEcReT", 3, random).shown == "a ");
  CHECK(read(*policy, "a KLmX", 3, random).shown == "a ");
  const auto other = compiled({.expressions = {"a[^b]"}, .ignore_case = true});
  CHECK(read(*other, "xab", 3, random).stopped);  // aB is denied
}

TEST_CASE("a match without end waits no longer than its bound, and ends the answer all the same") {
  const auto policy = compiled({.expressions = {"<x>[^<]*</x>"}});
  const auto filter = policy->begin();
  CHECK(filter->advance(0, "ok <x>").hold_bytes == 3);
  CHECK(filter->advance(0, std::string(3000, 'a')).hold_bytes == kDeniedBytesHeldMax);
  const PolicyVerdict verdict = filter->advance(0, "</x> and more");
  CHECK(verdict.stops);
  CHECK(verdict.cut_bytes == kDeniedBytesHeldMax + 9);
}

TEST_CASE("sources that deny everything, nothing, or too much are refused") {
  const auto message = [](const DenySource& source) {
    const auto policy = compile_deny_patterns(source);
    return policy ? std::string() : policy.error().message;
  };
  CHECK(message({}).find("found none") != std::string::npos);
  CHECK(message({.strings = {"a", ""}}).find("empty") != std::string::npos);
  CHECK(message({.expressions = {"a*"}}).find("matches everywhere") != std::string::npos);
  CHECK(message({.expressions = {"(a"}}).find("'(a'") != std::string::npos);
  CHECK(message({.expressions = {"\\bword\\b"}}) != "");
  CHECK(message({.expressions = {"(a|b)*a(a|b){900}(c|d){900}x{900}"}}).find("states") != std::string::npos);
}

}  // namespace
}  // namespace llmrt
