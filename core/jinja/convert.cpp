#include "core/jinja/convert.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/base/utf8.h"
#include "core/jinja/code_points.h"
#include "core/jinja/integers.h"

namespace llmrt::jinja {
namespace {

// Text under construction, paid for as it grows.
class Builder {
 public:
  explicit Builder(Meter& meter) : meter_(meter) {}
  Builder& operator<<(std::string_view text) {
    meter_.charge_growth(out_.size(), text.size());
    held_.grow(text.size());
    out_ += text;
    return *this;
  }
  std::string take() { return std::move(out_); }
  Meter& meter() { return meter_; }

 private:
  Meter& meter_;
  std::string out_;
  Held held_;
};

constexpr size_t kPieceBytes = 4096;  // escaped text goes to the builder in pieces of about so many

// \xAB, \uABCD, \UABCDEFGH.
void append_hex(std::string& out, char letter, uint32_t code, int num_digits) {
  out.push_back('\\');
  out.push_back(letter);
  for (int shift = 4 * (num_digits - 1); shift >= 0; shift -= 4) {
    out.push_back("0123456789abcdef"[(code >> shift) & 0xF]);
  }
}

void write_repr_text(std::string_view text, Builder& builder) {
  builder.meter().charge_characters(text.size());
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t pos = 0; pos < text.size();) {
    if (out.size() >= kPieceBytes) {
      builder << out;
      out.clear();
    }
    const Utf8Step step = decode_utf8(text, pos);
    const char32_t c = step.code_point;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out += text.substr(pos, step.num_bytes);
    } else {
      const auto code = static_cast<uint32_t>(c);
      append_hex(out, c < 0x100 ? 'x' : c < 0x10000 ? 'u' : 'U', code, c < 0x100 ? 2 : c < 0x10000 ? 4 : 8);
    }
    pos += step.num_bytes;
  }
  out.push_back(quote);
  builder << out;
}

std::string digits_of(const Value& whole, Meter& meter) {
  return (is_negative(whole) ? "-" : "") + magnitude_of(whole, 10, meter);
}

void write_repr(const Value& value, Builder& out, int level);

void write_items(const std::vector<Value>& items, Builder& out, int level) {
  for (size_t i = 0; i < items.size(); ++i) {
    out << (i > 0 ? ", " : "");
    write_repr(items[i], out, level);
  }
}

void write_list(const List& list, Builder& out, int level) {
  switch (list.kind) {
    case ListKind::kList:
      out << "[";
      write_items(list.items, out, level);
      out << "]";
      return;
    case ListKind::kTuple:
      out << "(";
      write_items(list.items, out, level);
      out << (list.items.size() == 1 ? ",)" : ")");
      return;
    default:
      fail_unsupported("printing a {}", list.kind == ListKind::kRange  ? "range"
                                        : list.kind == ListKind::kView ? "view of a dict"
                                                                       : "lazy sequence (add |list)");
  }
}

void write_pairs(const std::vector<std::pair<Value, Value>>& pairs, Builder& out, int level) {
  out << "{";
  for (size_t i = 0; i < pairs.size(); ++i) {
    out << (i > 0 ? ", " : "");
    write_repr(pairs[i].first, out, level);
    out << ": ";
    write_repr(pairs[i].second, out, level);
  }
  out << "}";
}

void write_repr(const Value& value, Builder& out, int level) {
  out.meter().charge(1);
  if (level > kNestingMax) {
    fail("expected at most {} nested values, found more", kNestingMax);
  }
  if (const Text* text = value.as_text()) {
    write_repr_text(text->bytes(), out);
  } else if (const List* list = value.as_list()) {
    write_list(*list, out, level + 1);
  } else if (const Dict* dict = value.as_dict()) {
    write_pairs(dict->items, out, level + 1);
  } else if (value.is_undefined()) {
    out << "Undefined";
  } else if (value.is_none()) {
    out << "None";
  } else if (value.as_bool()) {
    out << (*value.as_bool() ? "True" : "False");
  } else if (value.is_whole()) {
    out << digits_of(value, out.meter());
  } else if (value.as_double()) {
    out << format_double(*value.as_double());
  } else {
    fail_unsupported("printing a {}", type_name(value));
  }
}

class JsonWriter {
 public:
  JsonWriter(const JsonOptions& options, Meter& meter) : options_(options), out_(meter) {}
  void write(const Value& value, int level);
  std::string take() { return out_.take(); }

 private:
  void write_text(std::string_view text);
  void write_list(const List& list, int level);
  void write_dict(const Dict& dict, int level);
  std::string key_of(const Value& key);
  void write_break(int level) {
    if (options_.indent) {
      out_ << "\n";
      for (int i = 0; i < level; ++i) {
        out_ << *options_.indent;
      }
    }
  }

  const JsonOptions& options_;
  Builder out_;
};

std::string json_double(double value) {
  return std::isnan(value) ? "NaN" : std::isinf(value) ? (value < 0 ? "-Infinity" : "Infinity") : format_double(value);
}

void JsonWriter::write(const Value& value, int level) {
  out_.meter().charge(1);
  if (const Text* text = value.as_text()) {
    write_text(text->bytes());
  } else if (const List* list = value.as_list(); list && list->kind <= ListKind::kTuple) {
    write_list(*list, level);
  } else if (const Dict* dict = value.as_dict()) {
    write_dict(*dict, level);
  } else if (value.is_none()) {
    out_ << "null";
  } else if (value.as_bool()) {
    out_ << (*value.as_bool() ? "true" : "false");
  } else if (value.is_whole()) {
    out_ << digits_of(value, out_.meter());
  } else if (value.as_double()) {
    out_ << json_double(*value.as_double());
  } else {
    fail("object of type {} is not JSON serializable", type_name(value));
  }
}

void JsonWriter::write_list(const List& list, int level) {
  out_ << "[";
  for (size_t i = 0; i < list.items.size(); ++i) {
    out_ << (i > 0 ? std::string_view(options_.item_separator) : "");
    write_break(level + 1);
    write(list.items[i], level + 1);
  }
  if (!list.items.empty()) {
    write_break(level);
  }
  out_ << "]";
}

std::string JsonWriter::key_of(const Value& key) {
  if (const Text* text = key.as_text()) {
    return std::string(text->bytes());
  }
  if (key.is_none()) {
    return "null";
  }
  if (key.as_bool()) {
    return *key.as_bool() ? "true" : "false";
  }
  if (!key.is_number()) {
    fail("JSON keys must be strings or numbers, found {}", type_name(key));
  }
  return key.is_whole() ? digits_of(key, out_.meter()) : json_double(*key.as_double());
}

void JsonWriter::write_dict(const Dict& dict, int level) {
  std::vector<const std::pair<Value, Value>*> items;
  items.reserve(dict.items.size());
  for (const auto& item : dict.items) {
    items.push_back(&item);
  }
  if (options_.sort_keys) {
    std::ranges::stable_sort(items, [&](const auto* a, const auto* b) {
      out_.meter().charge(1);
      return compare(a->first, b->first, out_.meter()) < 0;
    });
  }
  out_ << "{";
  for (size_t i = 0; i < items.size(); ++i) {
    out_ << (i > 0 ? std::string_view(options_.item_separator) : "");
    write_break(level + 1);
    write_text(key_of(items[i]->first));
    out_ << options_.key_separator;
    write(items[i]->second, level + 1);
  }
  if (!items.empty()) {
    write_break(level);
  }
  out_ << "}";
}

void JsonWriter::write_text(std::string_view text) {
  out_.meter().charge_characters(text.size());
  std::string escaped(1, '"');
  for (size_t pos = 0; pos < text.size();) {
    if (escaped.size() >= kPieceBytes) {
      out_ << escaped;
      escaped.clear();
    }
    const Utf8Step step = decode_utf8(text, pos);
    const auto c = static_cast<uint32_t>(step.code_point);
    static constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kLetters = "\"\\nrtfb";
    if (const size_t special = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
        special != std::string_view::npos) {
      escaped.push_back('\\');
      escaped.push_back(kLetters[special]);
    } else if (c < 0x20 || (options_.ensure_ascii && c >= 0x7F && c < 0x10000)) {
      append_hex(escaped, 'u', c, 4);
    } else if (options_.ensure_ascii && c >= 0x10000) {
      append_hex(escaped, 'u', 0xD800 + ((c - 0x10000) >> 10), 4);
      append_hex(escaped, 'u', 0xDC00 + ((c - 0x10000) & 0x3FF), 4);
    } else {
      escaped += text.substr(pos, step.num_bytes);
    }
    pos += step.num_bytes;
  }
  escaped.push_back('"');
  out_ << escaped;
}

}  // namespace

std::string format_double(double value) {
  if (std::isnan(value) || std::isinf(value)) {
    return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  }
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));  // such as -1.25e-07
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + 1 + (text[e + 1] == '+'), end, exponent);
  if (exponent < -4 || exponent >= 16) {
    return std::string(text);
  }
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(negative, e - negative)) {
    if (c != '.') {
      digits.push_back(c);
    }
  }
  if (exponent < 0) {
    digits = "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else {
    const auto whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() < whole + 1) {
      digits.append(whole + 1 - digits.size(), '0');
    }
    digits.insert(whole, ".");
  }
  return (negative ? "-" : "") + digits;
}

Text to_text(const Value& value, Meter& meter) {
  if (const Text* text = value.as_text()) {
    meter.charge_bytes(text->size());
    return *text;
  }
  if (value.is_undefined()) {
    return Text();
  }
  const bool is_container = value.as_list() || value.as_dict();
  return Text(repr(value, meter), !is_container);
}

std::string repr(const Value& value, Meter& meter) {
  Builder out(meter);
  write_repr(value, out, 0);
  return out.take();
}

std::string to_json(const Value& value, const JsonOptions& options, Meter& meter) {
  JsonWriter writer(options, meter);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace llmrt::jinja
