// Ops of low-rank adapters (LoRA; Hu and others 2021), and how adapters lie on the device. An adapter adds to the
// products of a weight group, for those rows of the step that have it: out += B (A x) scale.
//
// The pool of adapters is one range of device bytes, written through Backend::write_adapter_pool: first a table, an
// AdapterEntry for each weight group of each slot, slot by slot; behind it whatever the entries point to. Numbers are
// in Caps::activation_dtype. Which rows have which slot is in the step's inputs (AdapterItem).
#pragma once

#include <cstdint>

#include "core/ops/tensor.h"

namespace llmrt {

inline constexpr uint32_t kAdapterPartsMax = 4;   // segments of a weight group, each with its own A and B
inline constexpr uint32_t kAdapterRankMax = 128;  // of a part
// Ranks in the pool are multiples of it: rows of A and columns of B beyond an adapter's own rank are zero.
inline constexpr uint32_t kAdapterRankStep = 8;
inline constexpr uint32_t kAdapterAlignment = 16;  // bytes

// What an adapter adds to the products of a group [N, K]: out[n] += scale[p] * sum over j of B_p[n - first row of p][j]
// (A_p x)[j], where part p holds row n.
struct AdapterEntry {
  uint32_t rank = 0;  // of all parts together; 0 = the adapter leaves the group as it is
  uint32_t num_parts = 0;
  uint32_t a_offset = 0;  // in kAdapterAlignment from the pool's start: [rank, K], one part's rows after the other's
  uint32_t reserved = 0;
  uint32_t b_offset[kAdapterPartsMax] = {};  // likewise: [rows of the part, its rank]; not read where that is 0
  uint32_t rank_end[kAdapterPartsMax] = {};  // ranks of the parts up to and with this one
  uint32_t row_end[kAdapterPartsMax] = {};   // rows of the parts up to and with this one
  float scale[kAdapterPartsMax] = {};
};
static_assert(sizeof(AdapterEntry) == 80);

// Bytes of the table in front of a pool.
constexpr uint64_t adapter_table_bytes(uint64_t slots, uint64_t weight_groups) {
  return slots * weight_groups * sizeof(AdapterEntry);
}

// y[t] = A x[t] for each row t that has an adapter, by the slot's entry for `group`; what stands in other rows, and
// beyond the entry's rank, is unspecified. A row's sums depend on nothing but the row and its adapter.
struct AdapterShrink {
  TensorId x;     // [T or R, K], f32, f16 or bf16
  int32_t group;  // WeightGroupId [N, K]
  TensorId y;     // out [T or R, Q] f32, with Q no less than any entry's rank
};

// out[t, n] += scale of the row * scale[p] * sum over j of B_p[n][j] y[t][j]. Rows without an adapter stay.
struct AdapterExpand {
  TensorId y;     // [T or R, Q] f32
  int32_t group;  // WeightGroupId [N, K]
  TensorId out;   // [T or R, N] f32, in/out
};

}  // namespace llmrt
