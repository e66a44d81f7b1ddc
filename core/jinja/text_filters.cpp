// Filters that make text.
#include <algorithm>
#include <cctype>
#include <optional>

#include "core/base/utf8.h"
#include "core/jinja/arguments.h"
#include "core/jinja/code_points.h"
#include "core/jinja/convert.h"
#include "core/jinja/filters.h"
#include "core/jinja/format.h"
#include "core/jinja/interpreter.h"
#include "core/jinja/lexer.h"
#include "core/jinja/operators.h"

namespace llmrt::jinja {
namespace {

Text text_of(Interpreter& interpreter, const Value& value) {
  return to_text(value, interpreter.meter());
}

// Appends and pays.
void append(Interpreter& interpreter, Text& out, const Text& part) {
  interpreter.meter().charge_growth(out.size(), part.size());
  out.append(part);
}

template <Text (*function)(const Text&, Meter&)>
Value map_text(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("filter", arguments, {});
  return Value(function(text_of(interpreter, input), interpreter.meter()));
}

// Jinja's title: a word begins behind a blank, a hyphen or an opening bracket, and nowhere else.
Text title_words(const Text& text, Meter& meter) {
  meter.charge_characters(text.size());
  const std::string_view bytes = text.bytes();
  const auto separates = [&](size_t pos) {
    const char32_t c = decode_utf8(bytes, pos).code_point;
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  Text out;
  for (size_t pos = 0; pos < bytes.size();) {
    const bool is_separator = separates(pos);
    const size_t second = pos + decode_utf8(bytes, pos).num_bytes;
    size_t end = second;
    while (end < bytes.size() && separates(end) == is_separator) {
      end += decode_utf8(bytes, end).num_bytes;
    }
    meter.charge(1);
    out.append(upper(text.substr(pos, second), meter));
    out.append(lower(text.substr(second, end), meter));
    pos = end;
  }
  return out;
}

Value filter_string(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("string", arguments, {});
  return input.as_text() ? input : Value(text_of(interpreter, input));
}

Value filter_trim(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("trim", arguments, {"chars"});
  std::optional<std::string_view> chars;
  if (!given[0].is_none()) {
    chars = given.text(0).bytes();
  }
  return Value(strip(text_of(interpreter, input), chars, Side::kBoth, interpreter.meter()));
}

Value filter_replace(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("replace", arguments, {"old", "new", "count"}, 2);
  const Text from = text_of(interpreter, given[0]);
  const int64_t num_max = given[2].is_none() ? -1 : given.integer(2, -1);
  return Value(
      replace(text_of(interpreter, input), from.bytes(), text_of(interpreter, given[1]), num_max, interpreter.meter()));
}

Value filter_center(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("center", arguments, {"width"});
  return Value(pad(text_of(interpreter, input), given.integer(0, 80), Text(" ", true), '^', interpreter.meter()));
}

Value filter_indent(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("indent", arguments, {"width", "first", "blank"});
  const Text indention =
      given[0].as_text() ? given.text(0) : pad(Text(), given.integer(0, 4), Text(" ", true), '<', interpreter.meter());
  const Text newline("\n", true);
  if (!input.as_text()) {
    require_defined(input);
    fail("indent: expected a string, found {}", type_name(input));
  }
  interpreter.meter().charge_text(input.as_text()->size());
  Text ended = *input.as_text();
  ended.append(newline);  // so that a last empty line counts
  const std::vector<Text> lines = split_lines(ended, false, interpreter.meter());
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    interpreter.meter().charge(1);
    if (i > 0) {
      append(interpreter, out, newline);
    }
    const bool indented = i == 0 ? given.flag(1, false) : given.flag(2, false) || !lines[i].empty();
    if (indented) {
      append(interpreter, out, indention);
    }
    append(interpreter, out, lines[i]);
  }
  return Value(std::move(out));
}

Value filter_truncate(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t length = given.integer(0, 255);
  const Text end = given.has(2) ? given.text(2) : Text("...", true);
  const int64_t leeway = given[3].is_none() ? 5 : given.integer(3, 5);
  interpreter.meter().charge_bytes(end.size());
  const int64_t end_length = count_code_points(end.bytes());
  if (length < end_length || leeway < 0) {
    fail("truncate: expected a length that holds the end of {} characters", end_length);
  }
  if (const Text* text = input.as_text()) {
    interpreter.meter().charge_bytes(2 * text->size());
  }
  if (length_of(input) - leeway <= length) {
    return input;
  }
  if (!input.as_text()) {
    fail("truncate: expected a string, found {}", type_name(input));
  }
  const Text& text = *input.as_text();
  Text out = text.substr(0, offset_of(text.bytes(), length - end_length));
  if (!given.flag(1, false)) {
    const size_t blank = out.bytes().rfind(' ');
    out = blank == std::string_view::npos ? out : out.substr(0, blank);
  }
  append(interpreter, out, end);
  return Value(std::move(out));
}

Value filter_wordcount(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("wordcount", arguments, {});
  const Text text = text_of(interpreter, input);
  interpreter.meter().charge_characters(2 * text.size());
  int64_t words = 0;
  bool inside = false;
  for (size_t pos = 0; pos < text.size();) {
    const size_t length = decode_utf8(text.bytes(), pos).num_bytes;
    const std::string_view character = text.bytes().substr(pos, length);
    const bool in_word = character == "_" || is_alphanumeric(character);
    words += in_word && !inside;
    inside = in_word;
    pos += length;
  }
  return Value(words);
}

Value filter_escape(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("escape", arguments, {});
  const Text text = text_of(interpreter, input);
  interpreter.meter().charge_characters(text.size());
  static constexpr std::string_view kSpecial = "&<>\"'";
  static constexpr std::string_view kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
  Text out;
  size_t begin = 0;
  for (size_t hit = text.bytes().find_first_of(kSpecial); hit != npos;) {
    const std::string_view escape = kEscapes[kSpecial.find(text.bytes()[hit])];
    interpreter.meter().charge_growth(out.size(), hit - begin + escape.size());
    out.append(text, begin, hit);
    out.append(escape, true);
    begin = hit + 1;
    hit = text.bytes().find_first_of(kSpecial, begin);
  }
  interpreter.meter().charge_growth(out.size(), text.size() - begin);
  out.append(text, begin, text.size());
  return Value(std::move(out));
}

// Percent-encodes all but letters, digits, "_.-~" and `safe`.
Text quote_url(const Text& text, std::string_view safe, Meter& meter) {
  meter.charge_characters(text.size());
  Text out;
  text.for_each_run([&](std::string_view run, bool from_template) {
    std::string quoted;
    for (const char c : run) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x80 && (std::isalnum(byte) || std::string_view("_.-~").find(c) != std::string_view::npos ||
                          safe.find(c) != std::string_view::npos)) {
        quoted.push_back(c);
      } else {
        quoted.push_back('%');
        quoted.push_back("0123456789ABCDEF"[byte >> 4]);
        quoted.push_back("0123456789ABCDEF"[byte & 0xF]);
      }
    }
    meter.charge_growth(out.size(), quoted.size());
    out.append(quoted, from_template);
  });
  return out;
}

Value filter_urlencode(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("urlencode", arguments, {});
  if (!input.as_dict() && !input.as_list()) {
    return Value(quote_url(text_of(interpreter, input), "/", interpreter.meter()));
  }
  std::vector<std::pair<Value, Value>> pairs;
  if (input.as_dict()) {
    interpreter.meter().charge(input.as_dict()->items.size());
    pairs = input.as_dict()->items;
  } else {
    for (const Value& pair : iterate(input, interpreter.meter())) {
      const std::vector<Value> both = iterate(pair, interpreter.meter());
      if (both.size() != 2) {
        fail("urlencode: expected pairs, found {} items", both.size());
      }
      pairs.emplace_back(both[0], both[1]);
    }
  }
  const auto quote = [&](const Value& value) {
    return replace(quote_url(text_of(interpreter, value), "", interpreter.meter()), "%20", Text("+", true), -1,
                   interpreter.meter());
  };
  Text out;
  for (const auto& [key, value] : pairs) {
    if (!out.empty()) {
      out.append("&", true);
    }
    append(interpreter, out, quote(key));
    out.append("=", true);
    append(interpreter, out, quote(value));
  }
  return Value(std::move(out));
}

Value filter_format(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail("format: can't handle positional and keyword arguments at the same time");
  }
  const Text format = text_of(interpreter, input);
  if (arguments.named.empty()) {
    return Value(percent_format(format, Value::list(arguments.positional, ListKind::kTuple), interpreter.meter()));
  }
  std::vector<std::pair<Value, Value>> items;
  interpreter.meter().charge(arguments.named.size());
  for (const auto& [name, value] : arguments.named) {
    items.emplace_back(Value(Text(name, true)), value);
  }
  return Value(percent_format(format, Value::dict(std::move(items), interpreter.meter()), interpreter.meter()));
}

// As Hugging Face redefines it: keys in their order, no escapes for HTML, other scripts as they are.
Value filter_tojson(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonOptions options;
  options.ensure_ascii = given.flag(0, false);
  options.sort_keys = given.flag(3, false);
  if (const Text* indent = given[1].as_text()) {
    options.indent = std::string(indent->bytes());
  } else if (!given[1].is_none()) {
    const auto width = static_cast<size_t>(std::max<int64_t>(given.integer(1, 0), 0));
    interpreter.meter().charge_text(width);
    options.indent = std::string(width, ' ');
  }
  if (options.indent) {
    options.item_separator = ",";
  }
  if (!given[2].is_none()) {
    const std::vector<Value> both = iterate(given[2], interpreter.meter());
    if (both.size() != 2 || !both[0].as_text() || !both[1].as_text()) {
      fail("tojson: argument 'separators': expected two strings");
    }
    options.item_separator = both[0].as_text()->bytes();
    options.key_separator = both[1].as_text()->bytes();
  }
  return Value(Text(to_json(input, options, interpreter.meter()), false));
}

constexpr NamedFilter kTextFilters[] = {
    {"capitalize", map_text<capitalize>},
    {"center", filter_center},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"forceescape", filter_escape},
    {"format", filter_format},
    {"indent", filter_indent},
    {"lower", map_text<lower>},
    {"replace", filter_replace},
    {"safe", filter_string},
    {"string", filter_string},
    {"title", map_text<title_words>},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", map_text<upper>},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
};

}  // namespace

std::span<const NamedFilter> text_filters() {
  return kTextFilters;
}

}  // namespace llmrt::jinja
