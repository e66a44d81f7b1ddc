#include "core/jinja/code_points.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/utf8.h"
#include "core/jinja/case_mapping.h"
#include "core/jinja/lexer.h"

namespace llmrt::jinja {
namespace {

bool continues(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

// The begin of the character that ends at `end`.
size_t character_before(std::string_view text, size_t end) {
  do {
    --end;
  } while (end > 0 && continues(text[end]));
  return end;
}

template <typename Predicate>
bool all_characters(std::string_view text, Predicate predicate) {
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    if (!predicate(step.code_point)) {
      return false;
    }
    pos += step.num_bytes;
  }
  return !text.empty();
}

// Rewrites each character; append(std::string& out, std::string_view text, size_t pos, char32_t code_point).
template <typename Append>
Text map_characters(const Text& text, Meter& meter, Append append) {
  meter.charge_characters(text.size());
  Text out;
  size_t pos = 0;
  text.for_each_run([&](std::string_view run, bool from_template) {
    std::string mapped;
    mapped.reserve(run.size());
    for (const size_t end = pos + run.size(); pos < end;) {
      const Utf8Step step = decode_utf8(text.bytes(), pos);
      append(mapped, pos, step.code_point);
      pos += step.num_bytes;
    }
    out.append(mapped, from_template);
  });
  return out;
}

bool is_cased(char32_t c) {
  return is_upper_case(c) || is_lower_case(c) || is_title_case(c);
}

// A sigma ends a word: a cased letter comes before it and none after it, whatever ignorable stands between.
bool is_final_sigma(std::string_view text, size_t pos) {
  bool cased_before = false;
  for (size_t begin = pos; begin > 0;) {
    begin = character_before(text, begin);
    const char32_t c = decode_utf8(text, begin).code_point;
    if (!is_case_ignorable(c)) {
      cased_before = is_cased(c);
      break;
    }
  }
  if (!cased_before) {
    return false;
  }
  for (size_t next = pos + 2; next < text.size();) {
    const Utf8Step step = decode_utf8(text, next);
    if (!is_case_ignorable(step.code_point)) {
      return !is_cased(step.code_point);
    }
    next += step.num_bytes;
  }
  return true;
}

void append_lower_at(std::string& out, std::string_view text, size_t pos, char32_t c) {
  if (c == 0x3A3) {
    append_utf8(out, is_final_sigma(text, pos) ? 0x3C2 : 0x3C3);
  } else {
    append_lower(out, c);
  }
}

int category(char32_t c) {
  return utf8proc_category(static_cast<int32_t>(c));
}
bool is_letter(char32_t c) {
  return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal_digit(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

// Unicode's Numeric_Type=Digit beyond the decimal digits: superscripts, circled numbers and the like.
bool is_digit_character(char32_t c) {
  static constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
      {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
      {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
      {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return is_decimal_digit(c) ||
         std::ranges::any_of(kRanges, [&](const auto& range) { return c >= range.first && c <= range.second; });
}

// Whether a character is one of a given text's, in time that does not grow with the text.
class CharacterSet {
 public:
  CharacterSet(std::string_view characters, Meter& meter) {
    meter.charge_characters(characters.size());
    for (size_t pos = 0; pos < characters.size();) {
      const Utf8Step step = decode_utf8(characters, pos);
      if (step.code_point < 0x80) {
        ascii_[step.code_point] = true;
      } else {
        meter.charge(others_.size() % 8 == 7);
        others_.push_back(step.code_point);
      }
      pos += step.num_bytes;
    }
    std::ranges::sort(others_);
  }
  bool contains(char32_t c) const { return c < 0x80 ? ascii_[c] : std::ranges::binary_search(others_, c); }

 private:
  std::array<bool, 0x80> ascii_{};
  std::vector<char32_t> others_;
};

}  // namespace

int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); });
}

size_t offset_of(std::string_view text, int64_t index) {
  for (size_t pos = 0; pos < text.size(); ++pos) {
    if (!continues(text[pos]) && index-- == 0) {
      return pos;
    }
  }
  return text.size();
}

Text strip(const Text& text, std::optional<std::string_view> chars, Side side, Meter& meter) {
  const std::string_view bytes = text.bytes();
  const std::optional<CharacterSet> set = chars ? std::optional(CharacterSet(*chars, meter)) : std::nullopt;
  const auto stripped = [&](size_t pos) {
    const Utf8Step step = decode_utf8(bytes, pos);
    return set ? set->contains(step.code_point) : is_space(step.code_point);
  };
  size_t begin = 0;
  size_t end = bytes.size();
  while (side != Side::kRight && begin < end && stripped(begin)) {
    begin += decode_utf8(bytes, begin).num_bytes;
  }
  while (side != Side::kLeft && begin < end && stripped(character_before(bytes, end))) {
    end = character_before(bytes, end);
  }
  meter.charge_characters(bytes.size() - (end - begin));
  return text.substr(begin, end);
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) {
    return npos;
  }
  if (needle.empty()) {
    return from;
  }
  const void* hit = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());  // two-way: linear
  return hit ? static_cast<size_t>(static_cast<const char*>(hit) - text.data()) : npos;
}

size_t count_text(std::string_view text, std::string_view needle) {
  if (needle.empty()) {
    return static_cast<size_t>(count_code_points(text)) + 1;
  }
  size_t hits = 0;
  for (size_t hit = find_text(text, needle); hit != npos; hit = find_text(text, needle, hit + needle.size())) {
    ++hits;
  }
  return hits;
}

std::vector<Text> split_at(const Text& text, std::string_view separator, int64_t num_max, Meter& meter) {
  std::vector<Text> parts;
  size_t begin = 0;
  for (size_t hit = find_text(text.bytes(), separator); hit != npos && num_max != 0; --num_max) {
    meter.charge(1);
    parts.push_back(text.substr(begin, hit));
    begin = hit + separator.size();
    hit = find_text(text.bytes(), separator, begin);
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<Text> rsplit_at(const Text& text, std::string_view separator, int64_t num_max, Meter& meter) {
  if (num_max < 0) {
    return split_at(text, separator, -1, meter);
  }
  // Matches from the right: those of the reversed text, so that the search stays linear.
  const std::string reversed(text.bytes().rbegin(), text.bytes().rend());
  const std::string needle(separator.rbegin(), separator.rend());
  std::vector<Text> parts;
  size_t end = text.size();
  for (size_t hit = find_text(reversed, needle); hit != npos && num_max != 0; --num_max) {
    meter.charge(1);
    parts.push_back(text.substr(text.size() - hit, end));
    end = text.size() - hit - needle.size();
    hit = find_text(reversed, needle, hit + needle.size());
  }
  parts.push_back(text.substr(0, end));
  std::ranges::reverse(parts);
  return parts;
}

std::vector<Text> split_at_space(const Text& text, int64_t num_max, Meter& meter) {
  meter.charge_characters(text.size());
  std::vector<Text> parts;
  const std::string_view bytes = text.bytes();
  size_t pos = 0;
  const auto skip = [&](bool space) {
    while (pos < bytes.size()) {
      const Utf8Step step = decode_utf8(bytes, pos);
      if (is_space(step.code_point) != space) {
        return;
      }
      pos += step.num_bytes;
    }
  };
  for (skip(true); pos < bytes.size(); skip(true)) {
    if (num_max-- == 0) {
      parts.push_back(text.substr(pos));
      return parts;
    }
    meter.charge(1);
    const size_t begin = pos;
    skip(false);
    parts.push_back(text.substr(begin, pos));
  }
  return parts;
}

std::vector<Text> rsplit_at_space(const Text& text, int64_t num_max, Meter& meter) {
  if (num_max < 0) {
    return split_at_space(text, -1, meter);
  }
  meter.charge_characters(text.size());
  std::vector<Text> parts;
  const std::string_view bytes = text.bytes();
  size_t end = bytes.size();
  const auto skip = [&](bool space) {
    while (end > 0) {
      const size_t begin = character_before(bytes, end);
      if (is_space(decode_utf8(bytes, begin).code_point) != space) {
        return;
      }
      end = begin;
    }
  };
  for (skip(true); end > 0; skip(true)) {
    if (num_max-- == 0) {
      parts.push_back(text.substr(0, end));
      break;
    }
    meter.charge(1);
    const size_t word_end = end;
    skip(false);
    parts.push_back(text.substr(end, word_end));
  }
  std::ranges::reverse(parts);
  return parts;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends, Meter& meter) {
  meter.charge_characters(text.size());
  std::vector<Text> lines;
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  for (size_t pos = 0; pos < bytes.size();) {
    const Utf8Step step = decode_utf8(bytes, pos);
    const char32_t c = step.code_point;
    const size_t end = pos;
    pos += step.num_bytes;
    if ((c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029) {
      if (c == '\r' && pos < bytes.size() && bytes[pos] == '\n') {
        ++pos;
      }
      meter.charge(1);
      lines.push_back(text.substr(begin, keep_ends ? pos : end));
      begin = pos;
    }
  }
  if (begin < bytes.size()) {
    lines.push_back(text.substr(begin));
  }
  return lines;
}

std::vector<Text> split_characters(const Text& text, Meter& meter) {
  meter.charge(static_cast<size_t>(count_code_points(text.bytes())));
  std::vector<Text> characters;
  text.for_each_run([&](std::string_view run, bool from_template) {
    for (size_t pos = 0; pos < run.size();) {
      const size_t length = decode_utf8(run, pos).num_bytes;
      characters.emplace_back(std::string(run.substr(pos, length)), from_template);
      pos += length;
    }
  });
  return characters;
}

Text replace(const Text& text, std::string_view from, const Text& to, int64_t num_max, Meter& meter) {
  Text out;
  const auto append = [&](const Text& part, size_t begin, size_t end) {
    meter.charge_growth(out.size(), end - begin);
    out.append(part, begin, end);
  };
  if (from.empty()) {  // between all characters, and at both ends
    size_t pos = 0;
    while (pos < text.size() && num_max != 0) {
      meter.charge(1);
      append(to, 0, to.size());
      --num_max;
      const size_t length = decode_utf8(text.bytes(), pos).num_bytes;
      append(text, pos, pos + length);
      pos += length;
    }
    append(text, pos, text.size());
    if (num_max != 0) {
      append(to, 0, to.size());
    }
    return out;
  }
  size_t begin = 0;
  for (size_t hit = find_text(text.bytes(), from); hit != npos && num_max != 0; --num_max) {
    meter.charge(1);
    append(text, begin, hit);
    append(to, 0, to.size());
    begin = hit + from.size();
    hit = find_text(text.bytes(), from, begin);
  }
  append(text, begin, text.size());
  return out;
}

Text upper(const Text& text, Meter& meter) {
  return map_characters(text, meter, [](std::string& out, size_t, char32_t c) { append_upper(out, c); });
}

Text lower(const Text& text, Meter& meter) {
  return map_characters(text, meter,
                        [&](std::string& out, size_t pos, char32_t c) { append_lower_at(out, text.bytes(), pos, c); });
}

Text capitalize(const Text& text, Meter& meter) {
  return map_characters(text, meter, [&](std::string& out, size_t pos, char32_t c) {
    pos == 0 ? append_title(out, c) : append_lower_at(out, text.bytes(), pos, c);
  });
}

Text title(const Text& text, Meter& meter) {
  bool inside_word = false;
  return map_characters(text, meter, [&](std::string& out, size_t pos, char32_t c) {
    inside_word ? append_lower_at(out, text.bytes(), pos, c) : append_title(out, c);
    inside_word = is_cased(c);
  });
}

Text swap_case(const Text& text, Meter& meter) {
  return map_characters(text, meter, [&](std::string& out, size_t pos, char32_t c) {
    if (is_upper_case(c)) {
      append_lower_at(out, text.bytes(), pos, c);
    } else if (is_lower_case(c)) {
      append_upper(out, c);
    } else {
      append_utf8(out, c);
    }
  });
}

bool is_digits(std::string_view text) {
  return all_characters(text, is_digit_character);
}
bool is_decimal(std::string_view text) {
  return all_characters(text, is_decimal_digit);
}
bool is_alpha(std::string_view text) {
  return all_characters(text, is_letter);
}
bool is_alphanumeric(std::string_view text) {
  return all_characters(text, [](char32_t c) {
    return is_letter(c) || is_digit_character(c) || category(c) == UTF8PROC_CATEGORY_NL ||
           category(c) == UTF8PROC_CATEGORY_NO;
  });
}
bool is_blank(std::string_view text) {
  return all_characters(text, is_space);
}

bool is_upper(std::string_view text) {
  bool any = false;
  return all_characters(text,
                        [&](char32_t c) {
                          any |= is_upper_case(c);
                          return !is_lower_case(c) && !is_title_case(c);
                        }) &&
         any;
}

bool is_lower(std::string_view text) {
  bool any = false;
  return all_characters(text,
                        [&](char32_t c) {
                          any |= is_lower_case(c);
                          return !is_upper_case(c) && !is_title_case(c);
                        }) &&
         any;
}

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

}  // namespace llmrt::jinja
