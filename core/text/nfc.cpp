#include "core/text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/check.h"
#include "core/text/utf8.h"

namespace llmrt {
namespace {

int combining_class(int32_t code_point) { return utf8proc_get_property(code_point)->combining_class; }

// utf8proc's own ordering of combining marks is quadratic in the length of their run; this one sorts.
void order_marks(std::vector<int32_t>& code_points) {
  for (size_t begin = 0; begin < code_points.size(); ++begin) {
    if (code_points[begin] < 0x300 || combining_class(code_points[begin]) == 0) {
      continue;
    }
    size_t end = begin + 1;
    while (end < code_points.size() && combining_class(code_points[end]) != 0) {
      ++end;
    }
    std::stable_sort(code_points.begin() + begin, code_points.begin() + end,
                     [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

}  // namespace

bool is_trivially_nfc(std::string_view text) {
  // U+0300 is CC 80 in UTF-8: every byte below CC belongs to a smaller code point or continues a larger one.
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
}

std::string normalize_nfc(std::string_view text) {
  std::vector<int32_t> code_points;
  code_points.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    pos += step.num_bytes;
    if (step.code_point < 0xC0) {
      code_points.push_back(static_cast<int32_t>(step.code_point));
      continue;
    }
    int32_t parts[8];  // the longest canonical decomposition has 4
    const auto count = utf8proc_decompose_char(static_cast<int32_t>(step.code_point), parts, 8, UTF8PROC_DECOMPOSE, nullptr);
    LLMRT_CHECK(count >= 1 && count <= 8, "a canonical decomposition longer than Unicode has");
    code_points.insert(code_points.end(), parts, parts + count);
  }
  order_marks(code_points);
  const auto composed = utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
                                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  LLMRT_CHECK(composed >= 0, "utf8proc refused to compose");
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < composed; ++i) {
    append_utf8(out, static_cast<char32_t>(code_points[i]));
  }
  return out;
}

}  // namespace llmrt
