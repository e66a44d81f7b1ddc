#include "core/text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/utf8.h"

namespace llmrt {
namespace {

// Code points that got a combining class or a composition after Unicode 9, whose data Hugging Face's normalizer has.
// To it they are starters that compose with nothing: the text falls apart there.
constexpr std::pair<int32_t, int32_t> kYounger[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42},
    {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F},
    {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
};

bool is_younger(int32_t code_point) {
  const auto* next = std::ranges::upper_bound(kYounger, code_point, {}, &std::pair<int32_t, int32_t>::first);
  return next != std::begin(kYounger) && code_point <= std::prev(next)->second;
}

// To utf8proc 2.8 this one, just before the first trailing consonant of Hangul, is one that composes to nothing: the
// text would lose it.
constexpr int32_t kNoTrailingConsonant = 0x11A7;

// Whether the text may be cut before it: it begins a character, whatever stands in front. Not all such ones, but those
// that most text is made of: up to U+02FF, Greek and Cyrillic letters, leading consonants of Hangul, punctuation and
// symbols, kana, ideographs, syllables of Hangul, U+FFFD, emoji. What composes with the character in front is a mark, a
// vowel sign, or the rest of a syllable.
bool begins_character(int32_t c) {
  constexpr std::pair<int32_t, int32_t> kRanges[] = {
      {0, 0x2FF},       {0x388, 0x482},   {0x1100, 0x1112}, {0x2000, 0x20CF}, {0x2100, 0x2BFF},   {0x3041, 0x3096},
      {0x30A1, 0x30FA}, {0x3400, 0x9FFF}, {0xAC00, 0xD7A3}, {0xFFFD, 0xFFFD}, {0x1F000, 0x1FAFF},
  };
  return std::ranges::any_of(kRanges, [c](const auto& range) { return c >= range.first && c <= range.second; });
}

int combining_class(int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// utf8proc's own ordering of combining marks is quadratic in the length of their run; this one sorts.
void order_marks(std::vector<int32_t>& code_points) {
  for (auto begin = code_points.begin(); begin != code_points.end();) {
    if (*begin < 0x300 || combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, code_points.end(), [](int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end, [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

void append_composed(std::vector<int32_t>& code_points, std::string& out) {
  order_marks(code_points);
  const auto count = utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
                                              static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  LLMRT_CHECK(count >= 0, "utf8proc refused to compose");
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(out, static_cast<char32_t>(code_points[i]));
  }
  code_points.clear();
}

}  // namespace

bool is_trivially_nfc(std::string_view text) {
  // U+0300 is CC 80 in UTF-8: every byte below CC belongs to a smaller code point or continues a larger one.
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
}

std::string normalize_nfc(std::string_view text, const std::function<bool(std::string_view)>& is_enough) {
  constexpr size_t kCodePointsAtOnce = 4096;
  std::string out;
  std::vector<int32_t> code_points;
  size_t next_question = 1 << 16;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    pos += step.num_bytes;
    const auto code_point = static_cast<int32_t>(step.code_point);
    if (code_points.size() >= kCodePointsAtOnce && begins_character(code_point)) {
      append_composed(code_points, out);
      if (is_enough && out.size() >= next_question) {
        if (is_enough(out)) {
          return out;
        }
        next_question = 2 * out.size();
      }
    }
    if (code_point < 0xC0) {
      code_points.push_back(code_point);
    } else if (is_younger(code_point) || code_point == kNoTrailingConsonant) {
      append_composed(code_points, out);
      append_utf8(out, step.code_point);
    } else {
      int32_t parts[8];  // the longest canonical decomposition has 4
      const auto count = utf8proc_decompose_char(code_point, parts, 8, UTF8PROC_DECOMPOSE, nullptr);
      LLMRT_CHECK(count >= 1 && count <= 8, "a canonical decomposition longer than Unicode has");
      code_points.insert(code_points.end(), parts, parts + count);
    }
  }
  append_composed(code_points, out);
  return out;
}

}  // namespace llmrt
