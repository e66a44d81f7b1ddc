#include "core/grammar/json_spelling.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace llmrt {
namespace {

// digits * 10^exponent, in plain decimals.
std::string plain_decimal(std::string digits, int exponent) {
  while (digits.size() > 1 && digits.back() == '0') {
    digits.pop_back();
    ++exponent;
  }
  if (digits == "0") return digits;
  if (exponent >= 0) return digits.append(static_cast<size_t>(exponent), '0');
  const size_t num_behind = static_cast<size_t>(-exponent);
  if (digits.size() <= num_behind) digits.insert(0, num_behind - digits.size() + 1, '0');
  return digits.insert(digits.size() - num_behind, ".");
}

}  // namespace

const std::array<std::string, 256>& json_spellings() {
  static const auto made = [] {
    std::array<std::string, 256> out;
    constexpr char kHex[] = "0123456789abcdef";
    for (int byte = 0; byte < 256; ++byte) {
      out[byte] = static_cast<char>(byte);
      if (byte < 0x20) out[byte] = std::string("\\u00") + kHex[byte >> 4] + kHex[byte & 15];
    }
    out['"'] = "\\\"";
    out['\\'] = "\\\\";
    out['\b'] = "\\b";
    out['\f'] = "\\f";
    out['\n'] = "\\n";
    out['\r'] = "\\r";
    out['\t'] = "\\t";
    return out;
  }();
  return made;
}

std::string json_string_text(std::string_view decoded) {
  std::string out = "\"";
  for (char c : decoded) out += json_spellings()[static_cast<uint8_t>(c)];
  return out += '"';
}

std::optional<std::string> json_number_text(const boost::json::value& number) {
  if (const auto* integer = number.if_int64()) return std::to_string(*integer);
  if (const auto* integer = number.if_uint64()) return std::to_string(*integer);
  const double value = number.get_double();
  char buffer[64];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof buffer, std::abs(value), std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t mark = text.find('e');
  std::string digits(text.substr(0, mark));
  int exponent = std::atoi(std::string(text.substr(mark + 1)).c_str());
  if (digits.size() > 1) {
    exponent -= static_cast<int>(digits.size()) - 2;
    digits.erase(1, 1);
  }
  constexpr double kExactMax = 9007199254740992.0;
  const bool is_largest = std::abs(value) == std::numeric_limits<double>::max();
  if (digits.size() > 15 && std::abs(value) >= kExactMax && !is_largest) return std::nullopt;
  std::string out = plain_decimal(std::move(digits), exponent);
  return value < 0 && out != "0" ? "-" + out : out;
}

}  // namespace llmrt
