// Number sets against arithmetic: all spellings of small decimals, random bounds and divisors.
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/grammar/numbers.h"

namespace llmrt {
namespace {

struct Spelled {
  std::string text;
  int64_t thousandths;
};

// -30 to 30 by thousandths, with zeros behind.
std::vector<Spelled> spellings() {
  std::vector<Spelled> all;
  for (int64_t n = -30'000; n <= 30'000; ++n) {
    if (n % 7 != 0 && n % 100 != 0 && n % 25 != 0) continue;
    const int64_t magnitude = std::abs(n);
    std::string digits = std::to_string(magnitude % 1000);
    digits.insert(0, 3 - digits.size(), '0');
    while (digits.ends_with('0')) digits.pop_back();
    const std::string text =
        (n < 0 ? "-" : "") + std::to_string(magnitude / 1000) + (digits.empty() ? "" : "." + digits);
    all.push_back({text, n});
    all.push_back({text + (digits.empty() ? ".0" : "0"), n});
    all.push_back({text + (digits.empty() ? ".000" : "000"), n});
  }
  return all;
}

std::string random_decimal(std::mt19937* random) {
  const int64_t n = static_cast<int64_t>((*random)() % 60'001) - 30'000;
  const int64_t unit = std::vector<int64_t>{1, 10, 100, 1000}[(*random)() % 4];
  const int64_t thousandths = n / unit * unit;
  std::string digits = std::to_string(std::abs(thousandths) % 1000);
  digits.insert(0, 3 - digits.size(), '0');
  return (thousandths < 0 ? "-" : "") + std::to_string(std::abs(thousandths) / 1000) + "." + digits;
}

TEST_CASE("bounds and multiples are those of arithmetic") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto all = spellings();
  for (int round = 0; round < 60; ++round) {
    RegexPool pool;
    const std::string text = random_decimal(&random);
    CAPTURE(text);
    const auto bound = Decimal::parse(text);
    REQUIRE(bound);
    const auto thousandths = static_cast<int64_t>(std::stod(text) * 1000 + (text[0] == '-' ? -0.5 : 0.5));
    const RegexId sets[] = {numbers_at_least(&pool, *bound, false), numbers_at_least(&pool, *bound, true),
                            numbers_at_most(&pool, *bound, false), numbers_at_most(&pool, *bound, true)};
    for (const auto& [spelled, n] : all) {
      const bool wanted[] = {n >= thousandths, n > thousandths, n <= thousandths, n < thousandths};
      for (int i = 0; i < 4; ++i) {
        if (pool.matches(sets[i], spelled) != wanted[i]) FAIL(spelled << " in set " << i << ": " << !wanted[i]);
      }
    }
    REQUIRE_FALSE(pool.failed());
  }
}

TEST_CASE("multiples are those of arithmetic") {
  for (const auto& [text, thousandths] : std::vector<std::pair<std::string, int64_t>>{{"1", 1000},
                                                                                      {"3", 3000},
                                                                                      {"10", 10'000},
                                                                                      {"7", 7000},
                                                                                      {"0.5", 500},
                                                                                      {"0.1", 100},
                                                                                      {"0.01", 10},
                                                                                      {"2.5", 2500},
                                                                                      {"0.025", 25},
                                                                                      {"0.3", 300},
                                                                                      {"1.75", 1750},
                                                                                      {"1e1", 10'000},
                                                                                      {"25e-2", 250}}) {
    CAPTURE(text);
    RegexPool pool;
    const auto set = multiples_of(&pool, *Decimal::parse(text));
    REQUIRE(set.ok());
    for (const auto& [spelled, n] : spellings()) {
      if (pool.matches(*set, spelled) != (n % thousandths == 0)) FAIL(spelled << ": " << (n % thousandths != 0));
    }
    CHECK_FALSE(pool.matches(*set, "-0"));
    CHECK_FALSE(pool.matches(*set, "00"));
    CHECK_FALSE(pool.failed());
  }
  RegexPool pool;
  const auto huge = multiples_of(&pool, *Decimal::parse("1e308"));
  REQUIRE(huge.ok());
  CHECK(pool.matches(*huge, "3" + std::string(308, '0')));
  CHECK_FALSE(pool.matches(*huge, "3" + std::string(307, '0')));
  CHECK_FALSE(multiples_of(&pool, *Decimal::parse("0.123456789")).ok());
}

TEST_CASE("what is no number is in no set") {
  RegexPool pool;
  const RegexId any = all_numbers(&pool);
  for (const char* text : {"0", "-1", "10.50", "-0.5", "0.0", "123456789012345678901234567890"})
    CHECK(pool.matches(any, text));
  for (const char* text : {"", "-", "-0", "-0.0", "00", "01", "1.", ".5", "+1", "1e5", "1.5.5", "0x1"}) {
    CAPTURE(text);
    CHECK_FALSE(pool.matches(any, text));
  }
  for (const char* text : {"", "x", "1x", "1e", "1e999999", "--1", "1.", "NaN"}) CHECK_FALSE(Decimal::parse(text));
  CHECK(Decimal::parse("-0.000e5")->is_zero());
  CHECK(Decimal::parse("12.50e1")->whole == "125");
  CHECK(Decimal::parse("12.5e-3")->fraction == "0125");
}

}  // namespace
}  // namespace llmrt
