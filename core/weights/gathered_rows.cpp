#include "core/weights/gathered_rows.h"

#include <algorithm>
#include <utility>

#include "core/weights/weight_bytes.h"

namespace llmrt {

WeightTensor gathered_rows(std::string name, WeightTensor from, std::vector<RowRange> ranges) {
  WeightTensor out;
  out.name = std::move(name);
  out.encoding = from.encoding;
  out.columns = from.columns;
  std::vector<uint64_t> ends;  // of each range, in rows of the result
  for (const RowRange& range : ranges) ends.push_back(out.rows += range.count);
  out.generate = [from = std::move(from), ranges = std::move(ranges), ends = std::move(ends)](
                     uint64_t offset, std::span<std::byte> bytes) {
    const uint64_t bytes_row = from.bytes_row();
    uint64_t row = offset / bytes_row;
    auto i = static_cast<size_t>(std::ranges::upper_bound(ends, row) - ends.begin());
    for (; !bytes.empty(); ++i) {
      const uint64_t left = ends[i] - row;
      const auto part = bytes.first(std::min<uint64_t>(bytes.size(), left * bytes_row));
      copy_weight_bytes(from, (ranges[i].begin + ranges[i].count - left) * bytes_row, part);
      bytes = bytes.subspan(part.size());
      row = ends[i];
    }
  };
  return out;
}

std::vector<RowRange> ranges_of_each(uint64_t num_rows, uint64_t period, uint64_t begin, uint64_t count) {
  std::vector<RowRange> ranges;
  for (uint64_t first = begin; first < num_rows; first += period) ranges.push_back({first, count});
  return ranges;
}

}  // namespace llmrt
