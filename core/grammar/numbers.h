// JSON numbers without an exponent, as regular expressions by their value: every spelling of a number is in or out
// (2, 2.0, 2.00), so the sets can be joined, met and complemented. No leading zeros, no "-0".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/grammar/regex_pool.h"

namespace llmrt {

// A decimal number, exactly: sign, digits before the point (no leading zeros but "0") and behind it (no trailing ones).
struct Decimal {
  bool is_negative = false;
  std::string whole = "0", fraction;

  bool is_zero() const { return whole == "0" && fraction.empty(); }
  // Of a JSON number's text, with or without an exponent; nothing where it is none, or has more than kDigitsMax digits.
  static std::optional<Decimal> parse(std::string_view text);
  static constexpr size_t kDigitsMax = 400;
};

RegexId all_numbers(RegexPool* pool);
RegexId shortest_numbers(RegexPool* pool);   // of each number its text without needless zeros
RegexId positive_integers(RegexPool* pool);  // without a fraction
RegexId zero_fraction(RegexPool* pool);      // a point with zeros behind it, or nothing
RegexId numbers_at_least(RegexPool* pool, const Decimal& bound, bool exclusive);
RegexId numbers_at_most(RegexPool* pool, const Decimal& bound, bool exclusive);
// Multiples of a divisor that is positive. kUnsupportedSchema where it has too many digits to be told by remainders.
Result<RegexId> multiples_of(RegexPool* pool, const Decimal& divisor);

}  // namespace llmrt
