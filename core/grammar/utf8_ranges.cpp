#include "core/grammar/utf8_ranges.h"

#include <algorithm>
#include <string>

#include "core/base/utf8.h"

namespace llmrt {
namespace {

using Range = std::pair<char32_t, char32_t>;

// A range inside one encoded length, split where its continuation bytes would not be whole ranges.
void add_sequences(Range range, std::vector<Utf8Sequence>* out) {
  std::vector<Range> open = {range};
  while (!open.empty()) {
    const auto [first, last] = open.back();
    open.pop_back();
    bool is_split = false;
    for (int bits = 6; bits <= 18 && !is_split; bits += 6) {
      const char32_t low = (char32_t{1} << bits) - 1;
      if ((first & ~low) == (last & ~low)) continue;
      if ((first & low) != 0) {
        open.insert(open.end(), {{(first | low) + 1, last}, {first, first | low}});
        is_split = true;
      } else if ((last & low) != low) {
        open.insert(open.end(), {{last & ~low, last}, {first, (last & ~low) - 1}});
        is_split = true;
      }
    }
    if (is_split) continue;
    std::string begin, end;
    append_utf8(begin, first);
    append_utf8(end, last);
    Utf8Sequence sequence;
    for (size_t i = 0; i < begin.size(); ++i) {
      sequence.emplace_back(static_cast<uint8_t>(begin[i]), static_cast<uint8_t>(end[i]));
    }
    out->push_back(std::move(sequence));
  }
}

}  // namespace

std::vector<Range> merge_ranges(std::span<const Range> ranges) {
  std::vector<Range> sorted(ranges.begin(), ranges.end());
  std::ranges::sort(sorted);
  std::vector<Range> merged;
  for (const auto& [first, last] : sorted) {
    if (first > last) continue;
    if (!merged.empty() && first <= merged.back().second + 1) {
      merged.back().second = std::max(merged.back().second, last);
    } else {
      merged.emplace_back(first, last);
    }
  }
  return merged;
}

std::vector<Range> other_ranges(std::span<const Range> ranges) {
  std::vector<Range> others;
  char32_t next = 0;
  for (const auto& [first, last] : merge_ranges(ranges)) {
    if (first > next) others.emplace_back(next, first - 1);
    next = std::max<char32_t>(next, last + 1);
  }
  if (next <= 0x10ffff) others.emplace_back(next, 0x10ffff);
  return others;
}

std::vector<Utf8Sequence> utf8_sequences(std::span<const Range> ranges) {
  constexpr Range kLengths[] = {{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}};
  std::vector<Utf8Sequence> sequences;
  for (const auto& [first, last] : merge_ranges(ranges)) {
    for (const auto& [low, high] : kLengths) {
      const Range part(std::max(first, low), std::min(last, high));
      if (part.first <= part.second) add_sequences(part, &sequences);
    }
  }
  return sequences;
}

}  // namespace llmrt
