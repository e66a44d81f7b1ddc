#include "backends/cuda/weight_layout.h"

#include "core/base/checked_math.h"

namespace llmrt::cuda {
namespace {

constexpr uint64_t kAlignment = 256;

// Tensors that lie behind each other. A tensor joins the one before it in a group when both are whole and of one
// encoding.
std::vector<std::vector<WeightId>> units_of(const WeightTable& table) {
  std::vector<std::vector<WeightId>> units;
  std::vector<bool> placed(table.tensors.size());
  for (const WeightGroup& group : table.groups) {
    bool joined = false;
    for (const RowSegment& segment : group.segments) {
      const WeightTensor& tensor = table.tensors[static_cast<size_t>(segment.tensor)];
      const bool whole = segment.row_begin == 0 && segment.num_rows == tensor.rows;
      if (placed[static_cast<size_t>(segment.tensor)] || !whole) {
        joined = false;
        continue;
      }
      if (!joined || table.tensors[static_cast<size_t>(units.back().back())].encoding != tensor.encoding)
        units.emplace_back();
      units.back().push_back(segment.tensor);
      placed[static_cast<size_t>(segment.tensor)] = true;
      joined = true;
    }
  }
  for (size_t id = 0; id < table.tensors.size(); ++id)
    if (!placed[id]) units.push_back({static_cast<WeightId>(id)});
  return units;
}

}  // namespace

bool is_raw_copy(const WeightTensor& tensor) {
  return !is_quantized(tensor.encoding) && plane_row_bytes(tensor.encoding, 0, tensor.columns) == tensor.bytes_row();
}

WeightLayout lay_out(const WeightTable& table) {
  WeightLayout layout;
  layout.offsets.resize(table.tensors.size());
  for (const std::vector<WeightId>& unit : units_of(table)) {
    for (int plane = 0; plane < kNumPlanes; ++plane) {
      layout.bytes = round_up(layout.bytes, kAlignment);
      for (WeightId id : unit) {
        const WeightTensor& tensor = table.tensors[static_cast<size_t>(id)];
        layout.offsets[static_cast<size_t>(id)][static_cast<size_t>(plane)] = layout.bytes;
        layout.bytes += tensor.rows * plane_row_bytes(tensor.encoding, plane, tensor.columns);
        layout.is_padded |= !is_quantized(tensor.encoding) && !is_raw_copy(tensor);
      }
    }
  }
  return layout;
}

std::vector<PackedMatrix> place(const WeightTable& table, const WeightLayout& layout, const uint8_t* base) {
  std::vector<PackedMatrix> tensors(table.tensors.size());
  for (size_t id = 0; id < table.tensors.size(); ++id) {
    const WeightTensor& tensor = table.tensors[id];
    PackedMatrix& target = tensors[id];
    target.encoding = tensor.encoding;
    target.rows = static_cast<uint32_t>(tensor.rows);
    target.columns = static_cast<uint32_t>(tensor.columns);
    target.row_stride = static_cast<uint32_t>(plane_row_bytes(tensor.encoding, 0, tensor.columns));
    for (int plane = 0; plane < kNumPlanes; ++plane)
      if (step_bytes(tensor.encoding).plane[plane])
        target.plane[plane] = base + layout.offsets[id][static_cast<size_t>(plane)];
  }
  return tensors;
}

std::vector<DeviceGroup> make_groups(const WeightTable& table, const std::vector<PackedMatrix>& tensors) {
  std::vector<DeviceGroup> groups;
  for (const WeightGroup& group : table.groups) {
    DeviceGroup out;
    out.rows = static_cast<uint32_t>(group.rows);
    out.columns = static_cast<uint32_t>(group.columns);
    out.num_experts = group.num_experts;
    if (group.bias >= 0) out.bias = reinterpret_cast<const float*>(tensors[static_cast<size_t>(group.bias)].plane[0]);
    uint32_t column = 0;
    for (const RowSegment& segment : group.segments) {
      const uint32_t num_rows = static_cast<uint32_t>(segment.num_rows);
      const PackedMatrix part = tensors[static_cast<size_t>(segment.tensor)].slice(segment.row_begin, num_rows);
      if (!out.runs.empty() && out.runs.back().matrix.continues_with(part))
        out.runs.back().matrix.rows += num_rows;
      else if (num_rows > 0)
        out.runs.push_back({part, {}, column});
      column += num_rows;
    }
    groups.push_back(std::move(out));
  }
  return groups;
}

}  // namespace llmrt::cuda
