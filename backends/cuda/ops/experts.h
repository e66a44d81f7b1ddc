// The kernels that multiply by experts' matrices: gate, other half and activation (ExpertGateUp), and down with the
// weighted sum (ExpertDown). choose_experts.cpp says which; each kernel's file has its geometry (lay_out_x) and its
// launch (experts_x), which does what the choice says.
#pragma once

#include <algorithm>

#include "backends/cuda/compile_inputs.h"
#include "backends/cuda/kernel_choice.h"
#include "backends/cuda/op_context.h"
#include "core/base/checked_math.h"

namespace llmrt::cuda {

// Expert e's gate is rows [e * stride, + outs) of `gate`, and so on. Of ExpertDown `gate` is the only matrix. Where the
// activation has no other half, `gate` and `up` are the halves of an expert's rows, and each makes outputs of its own
// (experts_rows.cuh). Passed to kernels by value.
struct ExpertArgs {
  PackedMatrix gate, up;
  const float *gate_bias = nullptr, *up_bias = nullptr;  // of the matrices' rows, or null
  uint32_t stride = 0, outs = 0;
  uint32_t num_experts = 0, per_row = 0;
  const void* x = nullptr;         // ExpertGateUp: f32 [rows, columns]; ExpertDown: [routed rows, columns]
  const int32_t* ids = nullptr;    // [routed rows]
  const float* weights = nullptr;  // of ExpertDown: [routed rows]
  const float* term = nullptr;     // of ExpertGateUp, added to the products: [routed rows, 2 outs]; null: nothing
  void* out = nullptr;
  Activation activation = Activation::kSilu;
  const uint32_t* live = nullptr;  // device memory: how many of the list's rows are live
  // x, ids, weights, term and out are those from this row of the list on; how many of the bucket there are.
  uint32_t row_begin = 0, row_count = 0;
  // The routed rows by expert, in their order (experts_order.cu); null: a kernel looks through the ids.
  const uint32_t *offsets = nullptr, *order = nullptr;
};

struct ExpertChoice : KernelChoice {
  bool is_gated = false;
  bool is_ordered = false;                // the routed rows' order is there
  uint32_t rows_max = 0;                  // of an expert that experts_rows multiplies at once, an even number
  uint32_t splits = 1;                    // warps that share the columns of an output
  uint32_t rounds = 1;                    // of tiles, one after the other, before the sums of such warps are added
  uint32_t place_rounds = 0;              // of a block of experts_rows for a routed row; 0: blocks share all rounds
  uint32_t tile_rows = 0;                 // of experts_tiles: 64, 128 or 256
  bool copies_x = false;                  // of order_experts: x comes into the order too, in f16
  uint32_t out_begin = 0, out_count = 0;  // of the outputs that it makes, in the workspace; 0: all, in their place
};

// What a kernel is chosen for. Rows: of the bucket, or as many of them as one launch makes.
struct ExpertShape {
  Encoding encoding = Encoding::kF32;
  uint32_t columns = 0, outs = 0;
  uint32_t num_experts = 0, per_row = 0;
  uint32_t num_rows = 0;  // not yet routed
  bool is_gated = false;
  bool batch_invariant = false;
};

// Rows an expert in the mean, of those that evenly drawn rows would reach.
inline double rows_an_expert(const ExpertShape& shape) {
  const double experts = expected_distinct_experts(shape.num_experts, shape.per_row, shape.num_rows);
  return double{1} * shape.num_rows * shape.per_row / std::max(1.0, experts);
}

// Any encodings, also two, any float x and out; products and sums in f32 from exactly dequantised numbers. Slow.
void lay_out_experts_exact(const ExpertShape& shape, ExpertChoice* choice);
Status experts_exact(const ExpertChoice& choice, const ExpertArgs& args, DType math, const OpContext& at);

// Columns a multiple of 8, one encoding, f16 or quantised, as for all that follow; out f16, of ExpertDown f32 partial
// products [routed rows, outs], each with its weight, which sum_experts adds. In batch-invariant lists the order of a
// row's sums depends on the shape of the weights alone.
inline constexpr uint32_t kExpertsRowsMax = 16;
// Rows of an expert that are multiplied at once: so many have room in shared memory.
uint32_t experts_rows_max(const ExpertShape& shape, const CompileInputs& inputs);
void lay_out_experts_rows(const ExpertShape& shape, const CompileInputs& inputs, ExpertChoice* choice);
Status experts_rows(const ExpertChoice& choice, const ExpertArgs& args, const OpContext& at);
// ExpertDown as a whole, for very few rows: each reads the matrices of its own experts. False: x of all experts of a
// row has no room in shared memory.
bool lay_out_experts_joined(const ExpertShape& shape, const CompileInputs& inputs, ExpertChoice* choice);
Status experts_joined(const ExpertChoice& choice, const ExpertArgs& args, const OpContext& at);

// Where the device has warpgroups, made for many rows; `x`: in f16, sorted by expert. out_count: so many outputs from
// out_begin on, as ExpertArgs has them.
void lay_out_experts_tiles(const ExpertShape& shape, const CompileInputs& inputs, ExpertChoice* choice);
Status experts_tiles(const ExpertChoice& choice, const ExpertArgs& args, const void* x, const OpContext& at);

// Scratch: which routed rows go to which expert.
inline uint64_t order_bytes(const ExpertShape& shape) {
  return round_up(uint64_t{shape.num_experts} + 1 + uint64_t{shape.num_rows} * shape.per_row, uint64_t{64}) * 4;
}
void lay_out_order(const ExpertShape& shape, ExpertChoice* choice);
// Writes what args.offsets and args.order point to, and with copies_x the rows of x in that order to `sorted`.
Status order_experts(const ExpertChoice& choice, const ExpertArgs& args, void* sorted, const OpContext& at);
// out[t] = the sum of t's partial products, in their order.
void lay_out_sum(const ExpertShape& shape, ExpertChoice* choice);
Status sum_experts(const ExpertChoice& choice, const float* partials, const ExpertArgs& args, const OpContext& at);

}  // namespace llmrt::cuda
