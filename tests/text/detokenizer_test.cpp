// The assembler against the whole text, cut at every place.
#include <catch2/catch_test_macros.hpp>

#include <random>
#include <string>

#include "core/base/utf8.h"
#include "core/text/detokenizer.h"

using namespace llmrt;

TEST_CASE("characters cut by tokens come out whole") {
  Utf8Assembler assembler;
  CHECK(assembler.push("a\xF0\x9F") == "a");
  CHECK(assembler.held_bytes() == 2);
  CHECK(assembler.push("\x98").empty());
  CHECK(assembler.push("\x80!") == "\U0001F600!");
  CHECK(assembler.held_bytes() == 0);
  CHECK(assembler.flush().empty());
}

TEST_CASE("what never becomes a character is replaced, by maximal subparts") {
  Utf8Assembler assembler;
  CHECK(assembler.push("\xE2\x82").empty());
  CHECK(assembler.flush() == "\uFFFD");
  CHECK(assembler.push("\xE2\x82z") == "\uFFFDz");
  CHECK(assembler.push("\xF0\x80\x80") == "\uFFFD\uFFFD\uFFFD");  // F0 80 begins nothing
  CHECK(assembler.push("\xED\xA0\x80") == "\uFFFD\uFFFD\uFFFD");  // a surrogate
  CHECK(assembler.push("\xC0\xAF\xFF") == "\uFFFD\uFFFD\uFFFD");
}

TEST_CASE("any cut of any bytes gives the text that the whole gives") {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    const size_t size = random() % 24;
    while (bytes.size() < size) {
      static const std::string kParts[] = {"a",    "\u00e9",   "\u6771", "\U0001F600", "\x80",
                                           "\xE2", "\xF4\x8F", "\xF5",   "\xC3"};
      bytes += kParts[random() % std::size(kParts)];
    }
    Utf8Assembler assembler;
    std::string joined;
    for (size_t pos = 0; pos < bytes.size();) {
      const size_t length = 1 + random() % 3;
      joined += assembler.push(std::string_view(bytes).substr(pos, length));
      REQUIRE(assembler.held_bytes() <= 3);
      REQUIRE(is_valid_utf8(joined));
      pos += length;
    }
    joined += assembler.flush();
    INFO("round " << round);
    REQUIRE(joined == replace_invalid_utf8(bytes));
  }
}
