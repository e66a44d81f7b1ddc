// Where each tensor of a model lies in device memory, planned before anything is allocated. Tensors that stand next to
// each other in a group, in one encoding, lie plane by plane behind each other, so that a kernel can read them as one
// matrix.
#pragma once

#include <array>
#include <vector>

#include "backends/cuda/packed_matrix.h"
#include "core/weights/weight_table.h"

namespace llmrt::cuda {

struct WeightLayout {
  std::vector<std::array<uint64_t, kNumPlanes>> offsets;  // by WeightId
  uint64_t bytes = 0;
  bool is_padded = false;  // some rows end with bytes that no file has: they must be zero
};
WeightLayout lay_out(const WeightTable& table);
// The tensors of the layout in the memory at `base`, by WeightId.
std::vector<PackedMatrix> place(const WeightTable& table, const WeightLayout& layout, const uint8_t* base);
// A plain tensor whose rows need no padding lies on the device exactly as in the file.
bool is_raw_copy(const WeightTensor& tensor);

// Rows of a group that one launch multiplies: they go to columns [out_column, out_column + matrix.rows) of the output.
struct GroupRun {
  PackedMatrix matrix;
  PackedMatrix f16 = {};  // the same numbers, rounded, for many rows; without rows: there is no copy
  uint32_t out_column = 0;
};

struct DeviceGroup {
  std::vector<GroupRun> runs;
  const float* bias = nullptr;  // [rows], or null
  uint32_t rows = 0, columns = 0;
  uint32_t num_experts = 0;  // WeightGroup::num_experts
};
// By WeightGroupId. `tensors` by WeightId, in the encodings that they have on the device.
std::vector<DeviceGroup> make_groups(const WeightTable& table, const std::vector<PackedMatrix>& tensors);

}  // namespace llmrt::cuda
