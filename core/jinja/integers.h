// Integers beyond 64 bits, as Python has them, up to 4,300 digits: the length at which Python stops writing them.
// Values are canonical: what fits in 64 bits is no Big.
#pragma once

#include <boost/multiprecision/cpp_int.hpp>

#include <optional>
#include <string>
#include <string_view>

#include "core/jinja/ast.h"

namespace llmrt::jinja {

inline constexpr size_t kDigitsMax = 4300;

struct Big {
  boost::multiprecision::cpp_int number;
  Held held{kOverheadBytes};

  static constexpr size_t kOverheadBytes = 128;
};

// left op right for whole numbers, whatever their size; a result that is too long fails before it is computed. `/` is a
// double, rounded once. Fails for a zero divisor. A negative exponent is not done here.
Value apply_whole(BinaryOperator op, const Value& left, const Value& right, Meter& meter);

// Below, equal, above zero; one side is a Big, the other any number but NaN.
int compare_big(const Value& left, const Value& right);

double to_double(const Big& big);             // fails where it is beyond a double
Value whole_of(double number, Meter& meter);  // finite; its fraction is dropped

// Digits of base 2 to 36 without sign; nullopt where there is another character. Fails for more than 4,300 digits of a
// base that is no power of two, or a number that is as long.
std::optional<Value> parse_whole(std::string_view digits, int base, bool negative, Meter& meter);
// The magnitude in base 2, 8, 10 or 16 (lower case), without sign or prefix.
std::string magnitude_of(const Value& whole, int base, Meter& meter);
bool is_negative(const Value& whole);
std::string bytes_of(const Big& big);  // the same for equal numbers

}  // namespace llmrt::jinja
