#include "tools/llmrt_bench/ops/excerpt.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/ops/op_fields.h"
#include "core/weights/weight_bytes.h"

namespace llmrt::bench {
namespace {

constexpr uint64_t kProductNumbersMax = 1u << 25;  // of a matrix: what the reference multiplies in a moment
constexpr uint64_t kChunkRows = 16;                // that are neighbours

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::ranges::find(ids, id) != ids.end();
}

bool reads(const OpList& list, size_t first, TensorId id) {
  return std::any_of(list.ops.begin() + static_cast<long>(first), list.ops.end(),
                     [&](const Op& op) { return contains(access(op).reads, id); });
}

// Whether ops [first, end) mean nothing without this earlier one: it makes integers that they read, or draws the tokens
// whose log-probabilities they tell.
bool is_needed(const OpList& list, uint32_t earlier, uint32_t first, uint32_t end) {
  const OpAccess made = access(list.ops[earlier]);
  for (uint32_t op = first; op < end; ++op) {
    if (std::holds_alternative<Logprobs>(list.ops[op]) && std::holds_alternative<Sample>(list.ops[earlier]))
      return true;
    for (TensorId id : access(list.ops[op]).reads)
      if (list.tensors[id].dtype == DType::kI32 && contains(made.writes, id)) return true;
  }
  return false;
}

struct WeightsUsed {
  const WeightTable& weights;
  std::set<WeightId> ids = {};

  void in(const char*, TensorId) {}
  void out(const char*, TensorId) {}
  void inout(const char*, TensorId) {}
  void weight(const char*, WeightId id) { ids.insert(id); }
  void group(const char*, WeightGroupId id) {
    const WeightGroup& group = weights.groups[id];
    for (const RowSegment& segment : group.segments) ids.insert(segment.tensor);
    if (group.bias >= 0) ids.insert(group.bias);
  }
  template <class T>
  void value(const char*, T) {}
};

// Of `count` rows about `wanted`, in chunks at equal distances from the first row to the last.
std::vector<uint64_t> spread_rows(uint64_t count, uint64_t wanted) {
  std::vector<uint64_t> rows;
  const uint64_t chunks = std::max<uint64_t>(2, wanted / kChunkRows);
  if (chunks * kChunkRows >= count) {
    for (uint64_t row = 0; row < count; ++row) rows.push_back(row);
    return rows;
  }
  for (uint64_t chunk = 0; chunk < chunks; ++chunk)
    for (uint64_t i = 0; i < kChunkRows; ++i) rows.push_back(chunk * (count - kChunkRows) / (chunks - 1) + i);
  return rows;
}

WeightTensor rows_of(const WeightTensor& source, std::vector<uint64_t> rows) {
  WeightTensor tensor = source;
  tensor.rows = rows.size();
  tensor.data = nullptr;
  tensor.generate = [&source, rows = std::move(rows)](uint64_t offset, std::span<std::byte> out) {
    const uint64_t bytes_row = source.bytes_row();
    for (uint64_t done = 0; done < out.size(); done += bytes_row)
      copy_weight_bytes(source, rows[(offset + done) / bytes_row] * bytes_row, out.subspan(done, bytes_row));
  };
  return tensor;
}

WeightTensor numbers_of(const WeightTensor& vector, const std::vector<uint32_t>& columns) {
  WeightTensor tensor = vector;
  tensor.columns = columns.size();
  tensor.data = nullptr;
  tensor.generate = [&vector, columns](uint64_t, std::span<std::byte> out) {
    std::vector<std::byte> all(vector.bytes());
    copy_weight_bytes(vector, 0, all);
    for (size_t i = 0; i < columns.size(); ++i) std::memcpy(out.data() + i * 4, all.data() + columns[i] * 4ull, 4);
  };
  return tensor;
}

// Replaces the group by one of some of its rows.
void cut_group(const WeightTable& weights, WeightGroupId id, WeightExcerpt* excerpt) {
  const WeightGroup& whole = weights.groups[id];
  WeightTable& table = excerpt->table;
  WeightGroup cut = whole;
  cut.segments.clear();
  uint64_t first = 0;  // of the segment in the group
  for (const RowSegment& segment : whole.segments) {
    std::vector<uint64_t> rows =
        spread_rows(segment.num_rows, kProductNumbersMax / whole.columns * segment.num_rows / whole.rows);
    for (uint64_t& row : rows) {
      excerpt->columns.push_back(static_cast<uint32_t>(first + row));
      row += segment.row_begin;
    }
    cut.segments.push_back({static_cast<WeightId>(table.tensors.size()), 0, rows.size()});
    table.tensors.push_back(rows_of(weights.tensors[segment.tensor], std::move(rows)));
    first += segment.num_rows;
  }
  cut.rows = excerpt->columns.size();
  if (whole.bias >= 0) {
    cut.bias = static_cast<WeightId>(table.tensors.size());
    table.tensors.push_back(numbers_of(weights.tensors[whole.bias], excerpt->columns));
  }
  table.groups[id] = std::move(cut);
}

}  // namespace

Excerpt excerpt_of(const OpList& whole, uint32_t first, uint32_t num_ops) {
  Excerpt excerpt{whole, {}, {}, {}};
  OpList& list = excerpt.list;
  const uint32_t end = first + num_ops;
  list.ops.clear();
  for (uint32_t op = 0; op < first; ++op)
    if (is_needed(whole, op, first, end)) list.ops.push_back(whole.ops[op]);
  const size_t num_before = list.ops.size();
  list.ops.insert(list.ops.end(), whole.ops.begin() + first, whole.ops.begin() + end);

  std::vector<TensorId> written;
  for (size_t op = 0; op < list.ops.size(); ++op) {
    const OpAccess touched = access(list.ops[op]);
    for (TensorId id : touched.reads)
      if (!contains(written, id) && !contains(excerpt.inputs, id)) excerpt.inputs.push_back(id);
    for (TensorId id : touched.writes) {
      if (contains(written, id)) continue;
      written.push_back(id);
      if (op < num_before) continue;
      const bool is_output =
          whole.tensors[id].storage == Storage::kHidden || reads(whole, end, id) || !reads(list, op + 1, id);
      (is_output ? excerpt.outputs : excerpt.handed_on).push_back(id);
    }
  }
  for (TensorId id = 0; id < static_cast<TensorId>(list.tensors.size()); ++id) {
    TensorDesc& tensor = list.tensors[id];
    if (contains(excerpt.inputs, id) || contains(excerpt.outputs, id)) {
      if (tensor.storage == Storage::kArena) tensor.storage = Storage::kPinned;
    } else if (!contains(written, id)) {
      tensor.columns = 0;
    }
  }
  return excerpt;
}

WeightExcerpt weight_excerpt_of(const WeightTable& weights, const OpList& list) {
  WeightsUsed used{weights};
  for (const Op& op : list.ops) {
    if (std::holds_alternative<AdapterShrink>(op) || std::holds_alternative<AdapterExpand>(op))
      continue;  // a group's shape
    std::visit([&](const auto& concrete) { fields(concrete, used); }, op);
  }
  WeightExcerpt excerpt{weights, {}};
  const auto* product = list.ops.size() == 1 ? std::get_if<Matmul>(&list.ops[0]) : nullptr;
  if (product) {
    const WeightGroup& group = weights.groups[product->group];
    if (group.rows * group.columns > kProductNumbersMax) {
      cut_group(weights, product->group, &excerpt);
      used.ids.clear();
    }
  }
  for (WeightId id = 0; id < static_cast<WeightId>(weights.tensors.size()); ++id)
    if (!used.ids.contains(id)) excerpt.table.tensors[id].rows = 0;
  return excerpt;
}

}  // namespace llmrt::bench
