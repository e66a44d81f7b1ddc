// Regular expressions against a naive matcher: random expressions over three letters, all texts up to five letters.
// Hostile expressions end in bounded time.
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "core/grammar/regex_pool.h"
#include "core/grammar/regex_reach.h"
#include "tests/grammar/text_sets.h"

namespace llmrt {
namespace {

using namespace test;
constexpr size_t kLength = 5;
constexpr const char* kLetters = "abc";

struct Pair {
  RegexId regex;
  Texts texts;
};

// An expression and, by sets, its texts.
Pair make(RegexPool* pool, std::mt19937* random, int depth) {
  const auto roll = [&](int n) { return static_cast<int>((*random)() % static_cast<unsigned>(n)); };
  static const std::vector<std::string> everything = all_texts(kLetters, kLength);
  if (depth == 0 || roll(6) == 0) {
    ByteSet set;
    Texts texts;
    for (const char c : {'a', 'b', 'c'}) {
      if (roll(2) == 0) continue;
      set.set(static_cast<uint8_t>(c));
      texts.insert(std::string(1, c));
    }
    return {pool->bytes(set), texts};
  }
  const Pair a = make(pool, random, depth - 1);
  switch (roll(6)) {
    case 0: {
      const Pair b = make(pool, random, depth - 1);
      return {pool->concat(a.regex, b.regex), concat(a.texts, b.texts, kLength)};
    }
    case 1: {
      const Pair b = make(pool, random, depth - 1);
      Texts texts = a.texts;
      texts.insert(b.texts.begin(), b.texts.end());
      return {pool->either(a.regex, b.regex), texts};
    }
    case 2: {
      const Pair b = make(pool, random, depth - 1);
      Texts texts;
      for (const auto& text : a.texts) {
        if (b.texts.contains(text)) texts.insert(text);
      }
      return {pool->both(a.regex, b.regex), texts};
    }
    case 3: {
      Texts texts;
      for (const auto& text : everything) {
        if (!a.texts.contains(text)) texts.insert(text);
      }
      return {pool->complement(a.regex), texts};
    }
    default: {
      const auto min = static_cast<uint32_t>(roll(3));
      const uint32_t max = roll(2) == 0 ? RegexPool::kUnbounded : min + static_cast<uint32_t>(roll(3));
      return {pool->repeat(a.regex, min, max), repeat(a.texts, min, max, kLength)};
    }
  }
}

TEST_CASE("random expressions match what sets of texts say") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto everything = all_texts(kLetters, kLength);
  size_t num_matched = 0;
  for (int round = 0; round < 1500; ++round) {
    RegexPool pool(50'000);
    const Pair pair = make(&pool, &random, 5);
    CAPTURE(round);
    for (const auto& text : everything) {
      const bool matches = pool.matches(pair.regex, text);
      if (matches != pair.texts.contains(text)) FAIL("\"" << text << "\": " << matches);
      num_matched += matches;
    }
    REQUIRE_FALSE(pool.failed());
    const auto has_text = pool.has_text(pair.regex, 5000);
    if (!pair.texts.empty()) CHECK(has_text == RegexPool::Answer::kYes);
    if (has_text == RegexPool::Answer::kNo) CHECK(pair.texts.empty());
  }
  CHECK(num_matched > 10'000);
}

TEST_CASE("within reach of a few bytes an expression is the same with endless counters") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  int num_others = 0;
  for (int round = 0; round < 6000; ++round) {
    RegexPool pool(50'000);
    const RegexId whole = make(&pool, &random, 4).regex;
    const uint32_t bytes = 1 + random() % 3;
    RegexReach reach(bytes);
    const RegexId near = reach.within(&pool, whole);
    REQUIRE_FALSE(pool.failed());
    if (!pool.is_positive(whole)) {
      CHECK(near == whole);
      continue;
    }
    num_others += near != whole;
    for (const auto& text : all_texts(kLetters, bytes)) {
      const RegexId rest = pool.after(whole, text), near_rest = pool.after(near, text);
      const bool is_same = (rest == RegexPool::kNothing) == (near_rest == RegexPool::kNothing) &&
                           pool.accepts_empty(rest) == pool.accepts_empty(near_rest);
      if (!is_same) FAIL("round " << round << " reach " << bytes << ": \"" << text << "\"");
    }
  }
  CHECK(num_others > 300);
}

TEST_CASE("what has no text is known to have none") {
  RegexPool pool;
  const RegexId any = pool.any_code_point();
  const RegexId longer = pool.repeat(any, 5, 10), shorter = pool.repeat(any, 0, 4);
  CHECK(pool.has_text(pool.both(longer, shorter), 1000) == RegexPool::Answer::kNo);
  CHECK(pool.has_text(pool.concat(pool.literal("x"), pool.both(longer, shorter)), 1000) == RegexPool::Answer::kNo);
  CHECK(pool.has_text(pool.both(longer, pool.star(pool.literal("ab"))), 1000) == RegexPool::Answer::kYes);
  CHECK(pool.contains(pool.star(any), longer, 1000) == RegexPool::Answer::kYes);
  CHECK(pool.contains(longer, shorter, 1000) == RegexPool::Answer::kNo);
  CHECK(pool.has_text(pool.both(pool.repeat(any, 100'000, 100'000), pool.star(any)), 50) ==
        RegexPool::Answer::kUnknown);
}

TEST_CASE("code points are whole sequences of UTF-8") {
  RegexPool pool;
  const CodePointRange ranges[] = {
      {0x41, 0x41}, {0x7f, 0x81}, {0xd000, 0xe001}, {0xfffe, 0x10001}, {0x10ffff, 0x10ffff}};
  const RegexId some = pool.code_points(ranges);
  for (const char* inside : {"A", "\x7f", "\xc2\x80", "\xc2\x81", "\xed\x80\x80", "\xed\x9f\xbf", "\xee\x80\x81",
                             "\xef\xbf\xbe", "\xf0\x90\x80\x81", "\xf4\x8f\xbf\xbf"}) {
    CAPTURE(inside);
    CHECK(pool.matches(some, inside));
  }
  // Neighbours, a surrogate, an overlong form, a piece, two.
  for (const char* outside : {"@", "B", "~", "\xc2\x82", "\xec\xbf\xbf", "\xee\x80\x82", "\xed\xa0\x80", "\xc1\x81",
                              "\xc2", "\xf4\x8f\xbf\xbe", "AA", "\xf4\x90\x80\x80"}) {
    CAPTURE(outside);
    CHECK_FALSE(pool.matches(some, outside));
  }
}

TEST_CASE("numbers by their remainder") {
  RegexPool pool;
  for (const uint64_t divisor : {1u, 3u, 7u, 100u}) {
    const RegexId multiple = pool.digits_with_remainder(divisor, divisor - 1);
    CHECK_FALSE(pool.accepts_empty(multiple));
    for (uint64_t n = 0; n < 500; ++n) CHECK(pool.matches(multiple, std::to_string(n)) == (n % divisor == divisor - 1));
  }
  CHECK(pool.has_text(pool.digits_with_remainder(1ull << 53, 12345), 10) == RegexPool::Answer::kYes);
}

TEST_CASE("hostile expressions end, with an answer or with failed()") {
  RegexPool pool(100'000);
  const RegexId a = pool.literal("a"), b = pool.literal("b");
  RegexId stars = a;
  for (int i = 0; i < 1000; ++i) stars = pool.star(pool.either(stars, RegexPool::kEmpty));
  CHECK(stars == pool.star(a));
  // (a{1000}){1000}: a million states, of which few are looked at.
  const RegexId powers = pool.repeat(pool.repeat(a, 1000, 1000), 1000, 1000);
  CHECK_FALSE(pool.matches(powers, std::string(10'000, 'a')));
  CHECK(pool.has_text(powers, 10) == RegexPool::Answer::kYes);
  // The ninth letter from behind is an a: 2^9 states by subsets, and no more.
  const RegexId ninth = pool.concat(pool.star(pool.either(a, b)), pool.concat(a, pool.repeat(pool.either(a, b), 8, 8)));
  std::string text;
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) text += random() % 2 == 0 ? 'a' : 'b';
  CHECK(pool.matches(ninth, text) == (text[text.size() - 9] == 'a'));
  CHECK_FALSE(pool.failed());
  // A long chain of optional parts: a derivative goes through all.
  RegexId chain = b;
  for (int i = 0; i < 50'000; ++i) chain = pool.concat(pool.optional(i % 2 == 0 ? a : b), chain);
  pool.after(chain, 'c');
  CHECK(pool.failed());
  CHECK(pool.after(ninth, 'a') != 12345);  // still no crash

  RegexPool small(100);
  small.literal(std::string(64, 'x') + "y");
  RegexId many = RegexPool::kEmpty;
  for (int i = 0; i < 1000; ++i) many = small.concat(many, small.literal(std::to_string(i)));
  CHECK(small.failed());
  CHECK(small.num_nodes() <= 100);

  RegexPool texts;
  const std::string megabyte(1 << 20, 'z');
  const RegexId whole = texts.literal(megabyte);
  CHECK(texts.num_nodes() < 100);
  CHECK(texts.matches(texts.concat(texts.literal("z"), texts.literal(std::string(1000, 'z'))), std::string(1001, 'z')));
  CHECK_FALSE(texts.matches(whole, "zz"));
}

}  // namespace
}  // namespace llmrt
