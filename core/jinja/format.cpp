#include "core/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/base/utf8.h"
#include "core/jinja/code_points.h"
#include "core/jinja/convert.h"
#include "core/jinja/integers.h"
#include "core/jinja/interpreter.h"
#include "core/jinja/operators.h"

namespace llmrt::jinja {
namespace {

constexpr int64_t kPrecisionMax = 1000;  // of digits; more than any double has

struct Spec {
  Text fill = Text(" ", true);
  char align = '\0';  // '<' '>' '^' '=', or '\0' for the type's own
  char sign = '-';    // '+' and ' ' show one for positive numbers
  bool alternate = false;
  bool grouped = false;  // thousands by commas
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

int64_t read_number(std::string_view text, size_t& pos) {
  int64_t number = 0;
  for (; pos < text.size() && is_digit(text[pos]); ++pos) {
    number = std::min<int64_t>(number * 10 + (text[pos] - '0'), INT32_MAX);
  }
  return number;
}

std::string group_thousands(std::string_view digits) {
  const size_t end = std::min(std::string_view(digits).find_first_of("."), digits.size());
  std::string grouped;
  for (size_t pos = 0; pos < digits.size(); ++pos) {
    if (pos > 0 && pos < end && (end - pos) % 3 == 0) {
      grouped.push_back(',');
    }
    grouped.push_back(digits[pos]);
  }
  return grouped;
}

std::string integer_digits(const Value& whole, const Spec& spec, Meter& meter) {
  const int base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  std::string digits = magnitude_of(whole, base, meter);
  if (spec.type == 'X') {
    std::ranges::transform(digits, digits.begin(), [](char c) { return c >= 'a' ? static_cast<char>(c - 32) : c; });
  }
  return base != 10 && spec.alternate ? std::string{'0', spec.type} + digits : digits;
}

std::string float_digits(double magnitude, const Spec& spec) {
  const int precision = static_cast<int>(std::min(spec.precision < 0 ? 6 : spec.precision, kPrecisionMax));
  const char type = spec.type == '%' ? 'f' : spec.type;
  const std::string format = fmt::format("%{}.*{}", spec.alternate ? "#" : "", type);
  const int size = std::snprintf(nullptr, 0, format.c_str(), precision, magnitude);
  std::string digits(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(digits.data(), digits.size(), format.c_str(), precision, magnitude);
  digits.pop_back();
  return spec.type == '%' ? digits + "%" : digits;
}

// A sign and digits, filled up to the width.
Text place_number(bool negative, std::string digits, const Spec& spec, Meter& meter) {
  if (spec.grouped) {
    digits = group_thousands(digits);
  }
  std::string sign;
  if (negative || spec.sign != '-') {
    sign.push_back(negative ? '-' : spec.sign);
  }
  const auto room = static_cast<int64_t>(sign.size());
  if (spec.align == '=') {
    Text out(sign, true);
    out.append(pad(Text(digits, true), std::max<int64_t>(spec.width - room, 0), spec.fill, '>', meter));
    return out;
  }
  return pad(Text(sign + digits, true), spec.width, spec.fill, spec.align ? spec.align : '>', meter);
}

Text format_number(const Value& value, Spec spec, Meter& meter) {
  const bool wants_float = std::string_view("eEfFgG%").find(spec.type) != npos && spec.type != '\0';
  if (value.is_whole() && !wants_float) {
    std::string digits = integer_digits(value, spec, meter);
    if (spec.precision > static_cast<int64_t>(digits.size())) {
      digits.insert(0, static_cast<size_t>(std::min(spec.precision, kPrecisionMax)) - digits.size(), '0');
    }
    return place_number(is_negative(value), std::move(digits), spec, meter);
  }
  double number = value.number();
  if (!wants_float) {
    fail_unsupported("format type '{}' of a float", spec.type ? spec.type : ' ');
  }
  if (spec.type == '%') {
    number *= 100;
  }
  meter.charge(8 + static_cast<size_t>(std::clamp<int64_t>(spec.precision, 0, kPrecisionMax)) / 8);
  return place_number(std::signbit(number), float_digits(std::fabs(number), spec), spec, meter);
}

Text format_string(Text text, const Spec& spec, Meter& meter) {
  if (spec.precision >= 0) {
    text = text.substr(0, offset_of(text.bytes(), spec.precision));
  }
  return pad(text, spec.width, spec.fill, spec.align ? spec.align : '<', meter);
}

// '%' formatting.

class PercentFormatter {
 public:
  PercentFormatter(const Text& format, const Value& values, Meter& meter)
      : format_(format), text_(format.bytes()), values_(values), meter_(meter) {
    const List* list = values.as_list();
    tuple_ = list && list->kind == ListKind::kTuple ? list : nullptr;
  }

  Text run() {
    Text out;
    while (pos_ < text_.size()) {
      meter_.charge(1);
      const size_t percent = std::min(text_.find('%', pos_), text_.size());
      meter_.charge_bytes(percent - pos_);
      append(out, format_.substr(pos_, percent));
      pos_ = percent;
      if (pos_ < text_.size()) {
        ++pos_;
        append(out, format_next());
      }
    }
    // As in Python, only a tuple or a plain value must be used up: whatever has items counts as a mapping here.
    const bool is_mapping = values_.as_dict() || values_.as_list() || values_.is_undefined();
    const size_t num_values = tuple_ ? tuple_->items.size() : is_mapping ? next_ : 1;
    if (next_ < num_values) {
      fail("not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  void append(Text& out, const Text& part) {
    meter_.charge_growth(out.size(), part.size());
    out.append(part);
  }

  const Value& take() {
    if (named_) {
      return *std::exchange(named_, nullptr);
    }
    if (next_ >= (tuple_ ? tuple_->items.size() : 1)) {
      fail("not enough arguments for format string");
    }
    return tuple_ ? tuple_->items[next_++] : (++next_, values_);
  }

  Spec read_spec() {
    Spec spec;
    spec.align = '>';
    if (pos_ < text_.size() && text_[pos_] == '(') {
      const size_t end = text_.find(')', pos_);
      if (end == npos || !values_.as_dict()) {
        fail("format requires a mapping");
      }
      const std::string_view key = text_.substr(pos_ + 1, end - pos_ - 1);
      named_ = values_.as_dict()->find(key, meter_);
      if (!named_) {
        fail_about(key, "format: key not found");
      }
      pos_ = end + 1;
    }
    for (; pos_ < text_.size() && std::string_view("-+ 0#").find(text_[pos_]) != npos; ++pos_) {
      switch (text_[pos_]) {
        case '-':
          spec.align = '<';
          break;
        case '0':
          zero_ = true;
          break;
        case '#':
          spec.alternate = true;
          break;
        default:
          spec.sign = spec.sign == '+' ? '+' : text_[pos_];
      }
    }
    if (pos_ < text_.size() && text_[pos_] == '*') {
      fail_unsupported("format width '*'");
    }
    spec.width = read_number(text_, pos_);
    if (pos_ < text_.size() && text_[pos_] == '.') {
      spec.precision = read_number(text_, ++pos_);
    }
    return spec;
  }

  Text format_next() {
    zero_ = false;
    Spec spec = read_spec();
    if (pos_ == text_.size()) {
      fail("incomplete format");
    }
    spec.type = text_[pos_++];
    if (spec.type == '%') {
      return format_.substr(pos_ - 1, pos_);
    }
    const Value& value = take();
    if (spec.type == 's') {
      return format_string(to_text(value, meter_), spec, meter_);
    }
    if (spec.type == 'r') {
      return format_string(Text(repr(value, meter_), false), spec, meter_);
    }
    if (std::string_view("diuxXoeEfFgG").find(spec.type) == npos) {
      fail_unsupported("format type '%{}'", spec.type);
    }
    if (!value.is_number()) {
      fail("%{} format: a number is required, not {}", spec.type, type_name(value));
    }
    if (zero_ && spec.align != '<') {
      spec.fill = Text("0", true);
      spec.align = '=';
    }
    if (std::string_view("diu").find(spec.type) != npos) {
      spec.type = 'd';
      return format_number(truncated(value, meter_), spec, meter_);
    }
    return format_number(value, spec, meter_);
  }

  static Value truncated(const Value& value, Meter& meter) {
    if (value.is_whole()) {
      return value;
    }
    if (!std::isfinite(value.number())) {
      fail("cannot convert an infinite or undefined float to an integer");
    }
    return whole_of(value.number(), meter);
  }

  const Text& format_;
  std::string_view text_;
  const Value& values_;
  Meter& meter_;
  const List* tuple_;
  const Value* named_ = nullptr;
  size_t pos_ = 0;
  size_t next_ = 0;
  bool zero_ = false;
};

// '{}' formatting.

Spec parse_brace_spec(std::string_view text) {
  Spec spec;
  size_t pos = 0;
  const auto is_align = [&](size_t at) { return at < text.size() && std::string_view("<>=^").find(text[at]) != npos; };
  const size_t first = text.empty() ? 0 : decode_utf8(text, 0).num_bytes;
  if (first > 0 && is_align(first)) {
    spec.fill = Text(std::string(text.substr(0, first)), false);  // the format may be data
    spec.align = text[first];
    pos = first + 1;
  } else if (is_align(0)) {
    spec.align = text[pos++];
  }
  const auto skip = [&](char c) { return pos < text.size() && text[pos] == c && ++pos; };
  if (pos < text.size() && std::string_view("+- ").find(text[pos]) != npos) {
    spec.sign = text[pos++];
  }
  spec.alternate = skip('#');
  if (skip('0') && !spec.align) {
    spec.fill = Text("0", true);
    spec.align = '=';
  }
  spec.width = read_number(text, pos);
  spec.grouped = skip(',');
  if (skip('.')) {
    spec.precision = read_number(text, pos);
  }
  if (pos < text.size()) {
    spec.type = text[pos++];
  }
  if (pos != text.size() || std::string_view("sdxXobeEfFgG%").find(spec.type ? spec.type : 's') == npos) {
    throw TemplateError{ErrorCode::kUnsupported, "this format specification", {}, excerpt(text)};
  }
  return spec;
}

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const Text& format, const Arguments& arguments)
      : interpreter_(interpreter), format_(format), text_(format.bytes()), arguments_(arguments) {}

  Text run() {
    Text out;
    const auto append = [&](const Text& part) {
      interpreter_.meter().charge_growth(out.size(), part.size());
      out.append(part);
    };
    while (pos_ < text_.size()) {
      interpreter_.meter().charge(1);
      const size_t brace = std::min(text_.find_first_of("{}", pos_), text_.size());
      append(format_.substr(pos_, brace));
      pos_ = brace;
      if (pos_ == text_.size()) {
        break;
      }
      if (text_.substr(pos_).starts_with("{{") || text_.substr(pos_).starts_with("}}")) {
        append(format_.substr(pos_, pos_ + 1));
        pos_ += 2;
      } else if (text_[pos_] == '}') {
        fail("format: single '}}' in format string");
      } else {
        append(format_field());
      }
    }
    return out;
  }

 private:
  Text format_field() {
    const size_t end = text_.find('}', pos_);
    if (end == npos) {
      fail("format: expected '}}' before end of string");
    }
    std::string_view field = text_.substr(pos_ + 1, end - pos_ - 1);
    if (field.find('{') != npos) {
      fail_unsupported("nested fields in a format string");
    }
    pos_ = end + 1;
    std::string_view spec_text;
    if (const size_t colon = field.find(':'); colon != npos) {
      spec_text = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = '\0';
    if (const size_t mark = field.find('!'); mark != npos) {
      if (mark + 2 != field.size() || (field[mark + 1] != 'r' && field[mark + 1] != 's')) {
        throw TemplateError{ErrorCode::kUnsupported, "this format conversion", {}, excerpt(field.substr(mark))};
      }
      conversion = field[mark + 1];
      field = field.substr(0, mark);
    }
    return format_value(resolve(field), conversion, parse_brace_spec(spec_text));
  }

  Text format_value(const Value& value, char conversion, const Spec& spec) {
    Meter& meter = interpreter_.meter();
    if (conversion == 'r') {
      return format_string(Text(repr(value, meter), false), spec, meter);
    }
    const bool is_plain = spec.type == '\0' && spec.precision < 0 && !spec.grouped && spec.sign == '-';
    if (value.is_number() && conversion == '\0' && !value.as_bool() && !(is_plain && value.as_double())) {
      return format_number(value, spec, meter);
    }
    Spec as_text = spec;
    if (value.is_number() && !spec.align) {
      as_text.align = '>';
    }
    if (spec.type != '\0' && spec.type != 's') {
      fail("format: unknown code '{}' for object of type '{}'", spec.type, type_name(value));
    }
    return format_string(to_text(value, meter), as_text, meter);
  }

  // A field's name: a number, a keyword or nothing, then .attributes and [items].
  Value resolve(std::string_view field) {
    const size_t end = std::min(field.find_first_of(".["), field.size());
    Value value = argument(field.substr(0, end));
    for (size_t pos = end; pos < field.size();) {
      interpreter_.meter().charge(1);
      if (field[pos] == '.') {
        const size_t next = std::min(field.find_first_of(".[", pos + 1), field.size());
        value = get_attribute(interpreter_, value, field.substr(pos + 1, next - pos - 1));
        pos = next;
        continue;
      }
      const size_t close = field.find(']', pos);
      if (field[pos] != '[' || close == npos) {
        fail_about(field, "format: malformed field");
      }
      const std::string_view key = field.substr(pos + 1, close - pos - 1);
      size_t digits = 0;
      const int64_t index = read_number(key, digits);
      value = get_item(interpreter_, value,
                       !key.empty() && digits == key.size() ? Value(index) : Value(Text(std::string(key), true)));
      pos = close + 1;
    }
    return value;
  }

  Value argument(std::string_view name) {
    size_t digits = 0;
    int64_t index = read_number(name, digits);
    if (name.empty()) {
      index = next_++;
    } else if (digits != name.size()) {
      interpreter_.meter().charge(arguments_.named.size() / 8);
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) {
          return value;
        }
      }
      fail_about(name, "format: key not found");
    }
    if (index >= static_cast<int64_t>(arguments_.positional.size())) {
      fail("format: index out of range for positional arguments");
    }
    return arguments_.positional[static_cast<size_t>(index)];
  }

  Interpreter& interpreter_;
  const Text& format_;
  std::string_view text_;
  const Arguments& arguments_;
  size_t pos_ = 0;
  int64_t next_ = 0;
};

}  // namespace

Text pad(const Text& text, int64_t width, const Text& fill, char align, Meter& meter) {
  if (fill.size() > 4 || count_code_points(fill.bytes()) != 1) {
    fail("the fill character must be exactly one character long");
  }
  meter.charge_bytes(text.size());
  const int64_t length = count_code_points(text.bytes());
  if (width <= length) {
    return text;
  }
  const int64_t room = width - length;
  meter.charge_repeated(fill.size(), static_cast<size_t>(room));
  meter.charge_growth(text.size(), static_cast<size_t>(room) * fill.size());
  const int64_t left = align == '<' ? 0 : align == '>' ? room : room / 2 + (align == '^' ? room & width & 1 : 0);
  Text out;
  out.append_repeated(fill, static_cast<size_t>(left));
  out.append(text);
  out.append_repeated(fill, static_cast<size_t>(room - left));
  return out;
}

Text percent_format(const Text& format, const Value& values, Meter& meter) {
  return PercentFormatter(format, values, meter).run();
}

Text brace_format(Interpreter& interpreter, const Text& format, const Arguments& arguments) {
  return BraceFormatter(interpreter, format, arguments).run();
}

}  // namespace llmrt::jinja
