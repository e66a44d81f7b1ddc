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
//
// In the entry of a stack of experts N and the parts are those of one expert: its gate rows and its other half, or its
// down rows. Experts [expert_first, + num_experts) of the stack have an A and a B each, of equal ranks, one
// expert's behind the other's; the others stay as they are.
struct AdapterEntry {
  uint32_t rank = 0;  // of all parts together; 0 = the adapter leaves the group as it is
  uint32_t num_parts = 0;
  uint32_t a_offset = 0;  // in kAdapterAlignment from the pool's start: [rank, K], one part's rows after the other's
  uint32_t a_stride = 0;  // likewise, from an expert's A to the next one's; 0: one A for all
  uint32_t b_offset[kAdapterPartsMax] = {};  // likewise: [rows of the part, its rank]; not read where that is 0
  uint32_t rank_end[kAdapterPartsMax] = {};  // ranks of the parts up to and with this one
  uint32_t row_end[kAdapterPartsMax] = {};   // rows of the parts up to and with this one
  float scale[kAdapterPartsMax] = {};
  uint32_t b_stride[kAdapterPartsMax] = {};    // as a_stride
  uint32_t expert_first = 0, num_experts = 0;  // num_experts 0: of a group that is one matrix
  uint32_t reserved[2] = {};
};
static_assert(sizeof(AdapterEntry) == 112);

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

// Ops of adapters on experts. Routed row k of the K = routed_per_row rows of each row t has the adapter of row t, and
// of that the expert ids[k]. Where t has no adapter, or its adapter leaves the group or that expert as it is, nothing
// is added. A routed row's sums depend on nothing but the row, its expert and its adapter.

// y[k] = A x[k], or A x[k / routed_per_row] where x is no routed tensor. What stands in other rows, and beyond the
// entry's rank, is unspecified.
struct ExpertShrink {
  TensorId x;     // [T or R, D] or routed [K, D], f32, f16 or bf16
  TensorId ids;   // [K, 1] i32, each below the group's num_experts
  int32_t group;  // WeightGroupId, of experts
  TensorId y;     // out [K, Q] f32, with Q no less than any entry's rank
};

// out[k, n] = scale of the row * scale[p] * sum over j of B_p[n][j] y[k][j], or 0: what ExpertGateUp adds to the
// products of each live routed row.
struct ExpertTerm {
  TensorId y;    // [K, Q] f32
  TensorId ids;  // [K, 1] i32
  int32_t group;
  TensorId out;  // out [K, N of an expert] f32
};

// out[t, n] += the sum over t's routed rows k, in their order, of weights[k] * the same. Rows without an adapter stay.
struct ExpertExpand {
  TensorId y;        // [K, Q] f32
  TensorId ids;      // [K, 1] i32
  TensorId weights;  // [K, 1] f32
  int32_t group;
  TensorId out;  // [T or R, N of an expert] f32, in/out
};

}  // namespace llmrt
