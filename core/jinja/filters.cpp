#include "core/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "core/jinja/arguments.h"
#include "core/jinja/code_points.h"
#include "core/jinja/convert.h"
#include "core/jinja/integers.h"
#include "core/jinja/interpreter.h"
#include "core/jinja/operators.h"

namespace llmrt::jinja {
namespace {

// "1_000" to "1000"; nullopt where an underscore is not between digits.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
    } else if (i == 0 || i + 1 == text.size() || !std::isalnum(static_cast<unsigned char>(text[i - 1])) ||
               !std::isalnum(static_cast<unsigned char>(text[i + 1]))) {
      return std::nullopt;
    }
  }
  return out;
}

// A number without the blanks around it and its sign.
std::string_view take_sign(std::string_view text, bool& negative) {
  negative = text.starts_with('-');
  return negative || text.starts_with('+') ? text.substr(1) : text;
}

std::optional<Value> parse_int(const Text& text, int64_t base, Meter& meter) {
  meter.charge_characters(text.size());
  const Text stripped = strip(text, std::nullopt, Side::kBoth, meter);
  bool negative = false;
  std::string_view digits = take_sign(stripped.bytes(), negative);
  static constexpr std::pair<char, int64_t> kPrefixes[] = {{'b', 2}, {'o', 8}, {'x', 16}};
  for (const auto& [letter, prefix_base] : kPrefixes) {
    if ((base == prefix_base || base == 0) && digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == letter) {
      digits = digits.substr(digits[2] == '_' ? 3 : 2);
      base = prefix_base;
    }
  }
  const std::optional<std::string> plain = without_underscores(digits);
  if (!plain || plain->empty() || (*plain)[0] == '-' || (*plain)[0] == '+') {
    return std::nullopt;
  }
  if (base == 0) {
    base = 10;
  }
  if (base < 2 || base > 36) {
    fail("int() base must be >= 2 and <= 36, or 0");
  }
  return parse_whole(*plain, static_cast<int>(base), negative, meter);
}

std::optional<double> parse_float(const Text& text, Meter& meter) {
  meter.charge_characters(text.size());
  const Text stripped = strip(text, std::nullopt, Side::kBoth, meter);
  bool negative = false;
  const std::string_view digits = take_sign(stripped.bytes(), negative);
  const std::optional<std::string> plain = without_underscores(digits);
  if (!plain || plain->empty() || (*plain)[0] == '-' || (*plain)[0] == '+') {
    return std::nullopt;
  }
  double value = 0;
  const auto [stop, error] = std::from_chars(plain->data(), plain->data() + plain->size(), value);
  const bool is_nan_with_payload = plain->find('(') != std::string::npos;
  if (stop != plain->data() + plain->size() || error == std::errc::invalid_argument || is_nan_with_payload) {
    return std::nullopt;
  }
  if (error == std::errc::result_out_of_range) {
    value = std::strtod(plain->c_str(), nullptr);  // infinity or zero, as Python rounds
  }
  return negative ? -value : value;
}

std::optional<Value> int_of_float(double value, Meter& meter) {
  if (std::isnan(value) || std::isinf(value)) {
    return std::nullopt;
  }
  return whole_of(value, meter);
}

Value filter_int(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("int", arguments, {"default", "base"});
  const Value otherwise = given.has(0) ? given[0] : Value(int64_t{0});
  std::optional<Value> value;
  if (const Text* text = input.as_text()) {
    interpreter.meter().charge_bytes(text->size());
    value = parse_int(*text, given.integer(1, 10), interpreter.meter());
    if (const std::optional<double> number = value ? std::nullopt : parse_float(*text, interpreter.meter())) {
      value = int_of_float(*number, interpreter.meter());  // "42.23"|int is 42
    }
  } else if (input.is_integer()) {
    value = Value(input.integer());
  } else if (input.as_big()) {
    value = input;
  } else if (input.as_double()) {
    value = int_of_float(input.number(), interpreter.meter());
  } else {
    require_defined(input);
  }
  return value.value_or(otherwise);
}

Value filter_float(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("float", arguments, {"default"});
  const Value otherwise = given.has(0) ? given[0] : Value(0.0);
  if (const Text* text = input.as_text()) {
    interpreter.meter().charge_bytes(text->size());
    const std::optional<double> number = parse_float(*text, interpreter.meter());
    return number ? Value(*number) : otherwise;
  }
  require_defined(input);
  return input.is_number() ? Value(input.number()) : otherwise;
}

Value filter_abs(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("abs", arguments, {});
  if (!input.is_number()) {
    require_defined(input);
    fail("bad operand for abs: {}", type_name(input));
  }
  if (!input.is_whole()) {
    return Value(std::fabs(input.number()));
  }
  return apply(is_negative(input) ? UnaryOperator::kMinus : UnaryOperator::kPlus, input, interpreter.meter());
}

Value filter_round(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("round", arguments, {"precision", "method"});
  const int64_t precision = given.integer(0, 0);
  const std::string_view method = given.has(1) ? given.text(1).bytes() : "common";
  if (!input.is_number()) {
    require_defined(input);
    fail("round: expected a number, found {}", type_name(input));
  }
  if (precision < -300 || precision > 300) {
    fail("round: expected a precision between -300 and 300, found {}", precision);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil" || method == "floor") {
    const double scaled = input.number() * scale;
    return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (method != "common") {
    fail("round: method must be common, ceil or floor");
  }
  if (precision < 0) {
    fail_unsupported("round to a negative precision");
  }
  if (input.is_whole()) {
    return input.as_big() ? input : Value(input.integer());
  }
  if (!std::isfinite(input.number())) {
    return input;
  }
  interpreter.meter().charge(8);
  // The decimal printer rounds the exact value, ties to even, as Python's round does.
  const std::string digits = fmt::format("{:.{}f}", input.number(), precision);
  return Value(std::strtod(digits.c_str(), nullptr));
}

Value filter_default(Interpreter&, const Value& input, Arguments& arguments) {
  const Parameters given("default", arguments, {"default_value", "boolean"});
  const bool use_default = input.is_undefined() || (given.flag(1, false) && !is_true(input));
  return !use_default ? input : given.has(0) ? given[0] : Value(Text());
}

Value filter_length(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("length", arguments, {});
  if (const Text* text = input.as_text()) {
    interpreter.meter().charge_bytes(text->size());
  }
  return Value(length_of(input));
}

Value filter_attr(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("attr", arguments, {"name"}, 1);
  if (input.as_dict()) {
    fail_unsupported("filter 'attr' on a dict");
  }
  return get_attribute(interpreter, input, given.text(0).bytes());
}

Value filter_filesizeformat(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("filesizeformat", arguments, {"binary"});
  std::optional<double> bytes;
  if (const Text* text = input.as_text()) {
    bytes = parse_float(*text, interpreter.meter());
  } else if (input.is_number()) {
    bytes = input.number();
  }
  if (!bytes) {
    require_defined(input);
    fail("filesizeformat: expected a number, found {}", type_name(input));
  }
  const bool is_binary = given.flag(0, false);
  const double base = is_binary ? 1024 : 1000;
  interpreter.meter().charge(8);
  if (*bytes == 1) {
    return Value(Text("1 Byte", true));
  }
  if (*bytes < base) {
    if (!std::isfinite(*bytes)) {
      fail("filesizeformat: expected a finite number");
    }
    return Value(Text(
        std::string(to_text(whole_of(*bytes, interpreter.meter()), interpreter.meter()).bytes()) + " Bytes", true));
  }
  static constexpr std::string_view kPrefixes = "kMGTPEZY";
  // Units are whole numbers: those of the last prefixes are no doubles.
  const Value step(is_binary ? int64_t{1024} : int64_t{1000});
  Value unit = apply(BinaryOperator::kMultiply, step, step, interpreter.meter());
  size_t i = 0;
  for (; i + 1 < kPrefixes.size() && compare(Value(*bytes), unit, interpreter.meter()) >= 0; ++i) {
    unit = apply(BinaryOperator::kMultiply, unit, step, interpreter.meter());
  }
  const std::string prefix = is_binary ? std::string{i == 0 ? 'K' : kPrefixes[i], 'i'} : std::string{kPrefixes[i]};
  return Value(Text(fmt::format("{:.1f} {}B", base * *bytes / unit.number(), prefix), true));
}

constexpr NamedFilter kValueFilters[] = {
    {"abs", filter_abs},         {"attr", filter_attr},
    {"count", filter_length},    {"d", filter_default},
    {"default", filter_default}, {"float", filter_float},
    {"int", filter_int},         {"length", filter_length},
    {"round", filter_round},     {"filesizeformat", filter_filesizeformat},
};

}  // namespace

std::span<const NamedFilter> value_filters() {
  return kValueFilters;
}

FilterCall::Function find_filter(std::string_view name) {
  for (const auto filters : {text_filters(), layout_filters(), sequence_filters(), value_filters()}) {
    const auto found = std::ranges::find(filters, name, &NamedFilter::name);
    if (found != filters.end()) {
      return found->function;
    }
  }
  return nullptr;
}

}  // namespace llmrt::jinja
