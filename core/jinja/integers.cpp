#include "core/jinja/integers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace llmrt::jinja {
namespace {

using Integer = boost::multiprecision::cpp_int;

constexpr size_t kBitsMax = 14'285;  // of a number of kDigitsMax digits

[[noreturn]] void fail_length() {
  fail("expected integers of at most {} digits, found more", "4,300");
}

Integer number_of(const Value& whole) {
  return whole.as_big() ? whole.as_big()->number : Integer(whole.integer());
}

size_t bits_of(const Integer& number) {
  return number.is_zero() ? 0 : static_cast<size_t>(msb(number < 0 ? Integer(-number) : number)) + 1;
}

Value to_value(Integer number) {
  if (number >= std::numeric_limits<int64_t>::min() && number <= std::numeric_limits<int64_t>::max()) {
    return Value(static_cast<int64_t>(number));
  }
  const size_t bits = bits_of(number);
  if (bits > kBitsMax) {
    fail_length();
  }
  auto big = std::make_shared<Big>();
  big->held.grow(bits / 8);
  big->number = std::move(number);
  return Value(BigPtr(std::move(big)));
}

// left / right rounded to the nearest double, ties to even: both magnitudes, right not zero.
double ratio(Integer left, Integer right) {
  if (left.is_zero()) {
    return 0;
  }
  // A quotient of at least 66 bits, whose last bit tells of a remainder; then one rounding to 53 bits by hand, or to
  // fewer where the result is denormal.
  const int shift = static_cast<int>(bits_of(right)) - static_cast<int>(bits_of(left)) + 66;
  shift > 0 ? left <<= shift : right <<= -shift;
  Integer rest;
  Integer quotient;
  divide_qr(left, right, quotient, rest);
  int exponent = -shift;
  const int bits = static_cast<int>(bits_of(quotient));
  const int dropped = std::max(bits - 53, -1074 - exponent);
  Integer kept = quotient >> dropped;
  const Integer tail = quotient - (kept << dropped);
  const Integer half = Integer(1) << (dropped - 1);
  const bool is_above = tail > half || (tail == half && (!rest.is_zero() || bit_test(kept, 0)));
  kept += is_above ? 1 : 0;
  exponent += dropped;
  return std::ldexp(static_cast<double>(static_cast<uint64_t>(kept)), exponent);
}

double checked_ratio(const Integer& left, const Integer& right) {
  const double result = ratio(abs(left), abs(right));
  if (std::isinf(result)) {
    fail("integer too large to convert to float");
  }
  return (left < 0) != (right < 0) ? -result : result;
}

// Python's: the quotient is rounded down, the remainder has the divisor's sign.
void floor_divide(const Integer& left, const Integer& right, Integer& quotient, Integer& rest) {
  divide_qr(left, right, quotient, rest);
  if (!rest.is_zero() && (rest < 0) != (right < 0)) {
    quotient -= 1;
    rest += right;
  }
}

Value power(Integer base, const Value& exponent_value, Meter& meter) {
  const size_t bits = bits_of(base);
  if (bits <= 1) {  // -1, 0, 1
    const bool is_even = exponent_value.as_big() ? !bit_test(abs(exponent_value.as_big()->number), 0)
                                                 : exponent_value.integer() % 2 == 0;
    const bool is_zero = exponent_value.is_integer() && exponent_value.integer() == 0;
    return is_zero || (base == -1 && is_even) ? Value(int64_t{1}) : to_value(base);
  }
  // base >= 2 ** (bits - 1), so that the result has more bits than this.
  if (exponent_value.as_big() || static_cast<uint64_t>(exponent_value.integer()) > kBitsMax / (bits - 1)) {
    fail_length();
  }
  meter.charge(kBitsMax / 64);
  return to_value(pow(base, static_cast<unsigned>(exponent_value.integer())));
}

}  // namespace

Value apply_whole(BinaryOperator op, const Value& left, const Value& right, Meter& meter) {
  const Integer a = number_of(left);
  const Integer b = number_of(right);
  const size_t limbs_a = bits_of(a) / 64 + 1;
  const size_t limbs_b = bits_of(b) / 64 + 1;
  meter.charge((limbs_a + limbs_b) / 16);
  const auto check_divisor = [&] {
    if (b.is_zero()) {
      fail("division by zero");
    }
    meter.charge(limbs_a * limbs_b / 64);
  };
  switch (op) {
    case BinaryOperator::kAdd:
      return to_value(a + b);
    case BinaryOperator::kSubtract:
      return to_value(a - b);
    case BinaryOperator::kMultiply:
      if (bits_of(a) + bits_of(b) > kBitsMax + 1) {
        fail_length();
      }
      meter.charge(limbs_a * limbs_b / 64);
      return to_value(a * b);
    case BinaryOperator::kDivide:
      check_divisor();
      return Value(checked_ratio(a, b));
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo: {
      check_divisor();
      Integer quotient;
      Integer rest;
      floor_divide(a, b, quotient, rest);
      return to_value(op == BinaryOperator::kModulo ? rest : quotient);
    }
    case BinaryOperator::kPower:
      return power(a, right, meter);
  }
  return Value();
}

int compare_big(const Value& left, const Value& right) {
  if (left.as_double()) {
    return -compare_big(right, left);
  }
  const double* other = right.as_double();
  if (!other) {
    return number_of(left).compare(number_of(right));
  }
  const Integer number = number_of(left);
  if (std::isnan(*other)) {
    return 0;
  }
  if (std::isinf(*other)) {
    return *other > 0 ? -1 : 1;
  }
  if (std::fabs(*other) < 9e18) {
    return number.sign();
  }
  return number.compare(Integer(*other));
}

double to_double(const Big& big) {
  return checked_ratio(big.number, 1);
}

Value whole_of(double number, Meter& meter) {
  if (std::fabs(number) < 9.2e18) {
    return Value(static_cast<int64_t>(number));
  }
  meter.charge(1);
  return to_value(Integer(std::trunc(number)));
}

std::optional<Value> parse_whole(std::string_view digits, int base, bool negative, Meter& meter) {
  int64_t value = 0;
  const std::string with_sign = (negative ? "-" : "") + std::string(digits.substr(0, 64));
  if (digits.size() <= 64) {
    const auto [stop, error] = std::from_chars(with_sign.data(), with_sign.data() + with_sign.size(), value, base);
    if (stop != with_sign.data() + with_sign.size() || error == std::errc::invalid_argument) {
      return std::nullopt;
    }
    if (error == std::errc()) {
      return Value(value);
    }
  }
  const auto digit_of = [](char c) {
    const char low = static_cast<char>(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'z' ? low - 'a' + 10 : 99;
  };
  meter.charge_characters(digits.size());
  if (!std::ranges::all_of(digits, [&](char c) { return digit_of(c) < base; })) {
    return std::nullopt;
  }
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  const bool is_power_of_two = (base & (base - 1)) == 0;
  if (digits.size() > (is_power_of_two ? kBitsMax : kDigitsMax)) {
    fail_length();
  }
  meter.charge(digits.size() * digits.size() / 20'000);
  Integer number = 0;
  // Nine or more digits at a time keep the number of long multiplications low.
  for (size_t pos = 0; pos < digits.size();) {
    uint64_t chunk = 0;
    uint64_t scale = 1;
    for (; pos < digits.size() && scale < (uint64_t{1} << 58) / static_cast<uint64_t>(base); ++pos) {
      chunk = chunk * static_cast<uint64_t>(base) + static_cast<uint64_t>(digit_of(digits[pos]));
      scale *= static_cast<uint64_t>(base);
    }
    number = number * scale + chunk;
  }
  return to_value(negative ? Integer(-number) : number);
}

std::string magnitude_of(const Value& whole, int base, Meter& meter) {
  if (whole.is_integer()) {
    const int64_t integer = whole.integer();
    const uint64_t magnitude = integer < 0 ? 0 - static_cast<uint64_t>(integer) : static_cast<uint64_t>(integer);
    char buffer[64];
    return {buffer, std::to_chars(buffer, buffer + sizeof buffer, magnitude, base).ptr};
  }
  Integer number = abs(whole.as_big()->number);
  const size_t bits = bits_of(number);
  meter.charge(1 + bits / 64 * bits / 64 / 16);
  std::string reversed;
  if (base != 10) {
    const unsigned step = base == 16 ? 4 : base == 8 ? 3 : 1;
    for (unsigned bit = 0; bit < bits; bit += step) {
      unsigned digit = 0;
      for (unsigned i = 0; i < step; ++i) {
        digit |= static_cast<unsigned>(bit_test(number, bit + i)) << i;
      }
      reversed.push_back("0123456789abcdef"[digit]);
    }
    std::ranges::reverse(reversed);
    return reversed;
  }
  std::string digits = number.str();
  if (digits.size() > kDigitsMax) {
    fail_length();
  }
  return digits;
}

bool is_negative(const Value& whole) {
  return whole.as_big() ? whole.as_big()->number < 0 : whole.integer() < 0;
}

std::string bytes_of(const Big& big) {
  std::string bytes(1, big.number < 0 ? '-' : '+');
  const Integer magnitude = abs(big.number);
  export_bits(magnitude, std::back_inserter(bytes), 8);
  return bytes;
}

}  // namespace llmrt::jinja
