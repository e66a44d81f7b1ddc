// Patterns and what they match; patterns that are refused, by their message.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "core/grammar/regex_syntax.h"

namespace llmrt {
namespace {

struct Row {
  std::string pattern;
  std::vector<std::string> matched, others;
  bool anchored = false;
};

TEST_CASE("patterns match what ECMA-262 says") {
  const std::vector<Row> rows = {
      {"a", {"a", "bab"}, {"", "b"}},
      {"a", {"a"}, {"", "b", "ba", "ab"}, true},
      {"^a", {"a", "ab"}, {"ba", ""}},
      {"a$", {"a", "ba"}, {"ab", ""}},
      {"^a$", {"a"}, {"ab", "ba", "aa"}},
      {"^$", {""}, {"a", "\n"}},
      {"^a|b$", {"a", "ax", "xb", "b"}, {"xa", "bx", ""}},
      {"(^a|b)c", {"ac", "xbc", "bcx", "acx"}, {"xac", "c"}},
      {"a(b$|c)", {"ab", "acx"}, {"abx", "a"}},
      {"a^b", {}, {"ab", "a^b", ""}},
      {"^^a$$", {"a"}, {"aa"}},
      {"(^)?a", {"a", "ba"}, {"b"}},
      {"", {"", "x"}, {}},
      {"^[a-c]+$", {"abc"}, {"abd", ""}},
      {"^[^a-c]$", {"d", "\xf0\x9f\x8c\xa7", "\n"}, {"a", "dd", ""}},
      {"^[]$", {}, {"", "a"}},
      {"^[^]$", {"a", "]"}, {"", "aa"}},
      {"^.$", {"a", "\xc3\xa9"}, {"\n", "\r", "\xe2\x80\xa8", "ab", ""}},
      {"^\\d{3,5}$", {"123", "12345"}, {"12", "123456", "12a"}},
      {"^\\d{2,}$", {"12", "123456"}, {"1"}},
      {"^a{0}b{2}$", {"bb"}, {"abb", "b"}},
      {"^\\w+\\s\\S$", {"a_9\xc2\xa0x", "b\tx"}, {"\xc3\xa9 x", "a x "}},
      {"^\\D\\W$", {"a-"}, {"1-", "aa"}},
      {"^[\\w.-]+$", {"a.b-c"}, {"a b"}},
      {"^[a\\-z]$", {"a", "-", "z"}, {"b"}},
      {"^\\t\\n\\v\\f\\r\\0$", {std::string("\t\n\v\f\r\0", 6)}, {"t"}},
      {"^[\\b]$", {"\b"}, {"b"}},
      {"^\\x41\\u0042\\u{43}\\ud83c\\udf27\\cA$", {"ABC\xf0\x9f\x8c\xa7\x01"}, {"ABC"}},
      {"^\\p{Lu}\\p{Letter}\\P{L}$",
       {"A\xc3\xa9"
        "1",
        "\xc3\x89z-"},
       {"aa1", "Aaa"}},
      {"^\\p{Script=Greek}\\p{sc=Cyrl}\\P{sc=Latn}$",
       {"\xce\xb1\xd0\xb6\x31", "\xcf\x89\xd1\x8f\xce\xb1"},
       {"a\xd0\xb6\x31", "\xce\xb1\xd0\xb6z", "\xce\xb1\xce\xb1\x31"}},
      {"^\\p{gc=Nd}\\p{ASCII}$",
       {"\xd9\xa3"
        "x"},
       {"xx", "1\xc3\xa9"}},
      {"^(?:a|b)*?c$", {"c", "abac"}, {"abd"}},
      {"^(?<year>\\d{4})-(\\d\\d)$", {"2024-05"}, {"24-05"}},
      {"^(a|ab)(c|bcd)d*$", {"abcd", "acd", "abcdd"}, {"ab"}},
      {"^\\^\\$\\\\\\.\\*\\+\\?\\(\\)\\[\\]\\{\\}\\|\\/$", {"^$\\.*+?()[]{}|/"}, {"x"}},
      {"^(a?){3}$", {"", "a", "aaa"}, {"aaaa"}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.pattern);
    RegexPool pool;
    const auto regex = parse_regex(&pool, row.pattern, {.anchored = row.anchored});
    if (!regex.ok()) FAIL(regex.error().message);
    for (const auto& text : row.matched) {
      CAPTURE(text);
      CHECK(pool.matches(*regex, text));
    }
    for (const auto& text : row.others) {
      CAPTURE(text);
      CHECK_FALSE(pool.matches(*regex, text));
    }
  }
}

TEST_CASE("what is refused is named with its offset") {
  const std::pair<const char*, const char*> rows[] = {
      {"a(?=b)", "offset 1: look-ahead is not supported"},
      {"a(?!b)", "offset 1: look-ahead is not supported"},
      {"(?<=b)a", "offset 0: look-behind is not supported"},
      {"(a)\\1", "offset 3: a back-reference is not supported"},
      {"(?<x>a)\\k<x>", "offset 7: a back-reference is not supported"},
      {"\\bword", "offset 0: a word boundary is not supported"},
      {"(^a)*", "offset 4: an anchor inside a repeated group is not supported"},
      {"\\p{Script=Latinate}", "offset 0: the property Script=Latinate is not supported"},
      {"\\p{Latin}", "offset 0: the property Latin is not supported"},
      {"(ab){1025}", "offset 4: more than 1024 repetitions are not supported"},
      {"a{2,1}", "expected {m}, {m,} or {m,n} with m <= n"},
      {"a**", "nothing to repeat"},
      {"*a", "nothing to repeat"},
      {"(a", "expected ) at the end of a group"},
      {"a)", "expected the end"},
      {"[a", "expected ] at the end of a class"},
      {"[b-a]", "two characters in ascending order"},
      {"[\\d-z]", "two characters in ascending order"},
      {"\\", "expected something behind the backslash"},
      {"\\q", "an unknown escape"},
      {"\\u12", "expected 4 hexadecimal digits"},
      {"\\u{110000}", "expected \\u{...} with a code point"},
      {"a}", "a lone \"}\""},
      {"\xff", "expected UTF-8"},
  };
  for (const auto& [pattern, message] : rows) {
    CAPTURE(pattern);
    RegexPool pool;
    const auto regex = parse_regex(&pool, pattern, {});
    REQUIRE_FALSE(regex.ok());
    CAPTURE(regex.error().message);
    CHECK(regex.error().message.find(message) != std::string::npos);
  }
}

TEST_CASE("hostile patterns are refused or bounded") {
  RegexPool pool;
  CHECK_FALSE(parse_regex(&pool, std::string(60'000, '('), {}).ok());
  CHECK_FALSE(parse_regex(&pool, std::string(1 << 20, 'a'), {}).ok());
  CHECK(parse_regex(&pool, "a{2000000000}", {}).ok());
  CHECK(parse_regex(&pool, "((((a{1000}){1000}){1000}){1000}){1000}", {}).ok());
  std::string stars = "a";
  for (int i = 0; i < 60; ++i) stars = "(" + stars + "*)";
  const auto nested = parse_regex(&pool, "^" + stars + "*$", {});
  REQUIRE(nested.ok());
  CHECK(pool.matches(*nested, std::string(10'000, 'a')));
  CHECK_FALSE(pool.failed());
  std::string choices = "a";
  for (int i = 0; i < 9000; ++i) choices += "|b" + std::to_string(i);
  CHECK(parse_regex(&pool, choices, {}).ok());
  CHECK_FALSE(pool.failed());
}

}  // namespace
}  // namespace llmrt
