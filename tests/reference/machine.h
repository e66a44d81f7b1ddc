// What the reference backend's ops work on: weights, row state, KV pools, and the tensors and inputs of the running
// step. Each op is a free function run(Machine&, const <Op>&) in a file of its own; plain loops in double, no tricks.
// Tensors hold doubles, rounded to their dtype where that is f16 or bf16.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/status.h"
#include "core/ops/op_list.h"
#include "tests/reference/number.h"

namespace llmrt::reference {

struct Tensor {
  DType dtype = DType::kF32;
  uint32_t rows = 0, columns = 0;
  std::vector<double> values;

  double* row(uint32_t r) { return values.data() + static_cast<uint64_t>(r) * columns; }
  const double* row(uint32_t r) const { return values.data() + static_cast<uint64_t>(r) * columns; }
  void set(uint32_t r, uint32_t c, double x) { row(r)[c] = round_to(dtype, x); }
};

// One pool, in the bytes that kv_format.h describes. A pool of states has records in place of blocks.
struct KvPool {
  KvGroup group;
  std::vector<std::vector<std::byte>> data;  // by layer; the host pool's blocks follow the pool's
  std::vector<std::vector<float>> scales;    // by layer; empty without scales

  // Where an op that sees so many heads finds a vector's run of tokens (KvGroup::seen_by).
  struct Run {
    uint32_t block, which, head;
  };
  Run run_of(uint32_t heads, uint32_t block, uint32_t which, uint32_t head) const {
    if (!group.is_expanded) return {block, which, head};
    const uint32_t run = (block * 2 + which) * heads + head;
    return {run / 2, run % 2, 0};
  }
  // The first scale of a vector.
  uint64_t scale_index(uint32_t block, uint32_t which, uint32_t head, uint32_t token) const {
    return group.element_index(block, which, head, token) / group.head_dim * group.scales_vector();
  }
  // The head_dim numbers of one token's k (which = 0) or v (1). `scale`: of an fp8-tensor pool.
  void load(uint32_t layer, uint32_t block, uint32_t which, uint32_t head, uint32_t token, float scale,
            double* out) const;
  void store(uint32_t layer, uint32_t block, uint32_t which, uint32_t head, uint32_t token, float scale,
             const double* x);
  // The numbers of a record.
  std::vector<double> load_state(uint32_t layer, uint32_t record) const;
  void store_state(uint32_t layer, uint32_t record, const std::vector<double>& state);
};

struct Slot {
  RowSampling sampling;
  int32_t last_token = -1;
  std::vector<std::vector<int32_t>> tables;  // by KV group: blocks_row_max block ids, -1 = none
};

// Token counts of one penalty row, by token id.
struct PenaltyCounts {
  std::vector<uint32_t> prompt, output;
};

struct Machine {
  uint32_t num_threads = 2;

  WeightTable weights;  // data pointers replaced by our copies
  std::vector<std::vector<std::byte>> weight_bytes;
  std::vector<std::vector<float>> weight_values;  // dequantised on first use by values_of()

  StateConfig state;
  std::vector<Slot> slots;
  std::vector<PenaltyCounts> penalty_counts;
  Tensor hidden;
  std::vector<KvPool> pools;
  AdapterPoolConfig adapters;
  std::vector<std::byte> adapter_pool;
  DType adapter_dtype = DType::kF32;

  // The running step.
  ForwardInputs forward;
  SampleInputs sample;
  std::vector<Tensor*> tensors;  // of the running list, by TensorId
  StepOutput output;

  Tensor& tensor(TensorId id) { return *tensors[static_cast<size_t>(id)]; }
  // Rows of `tensor` that mean something: tokens or records of the step.
  uint32_t live_rows(const OpList& list, TensorId id) const;
  // The numbers of one row of a group, and its bias.
  const float* group_row(const WeightGroup& group, uint64_t row);
  // All numbers of a weight, row-major.
  const std::vector<float>& values_of(WeightId id);
  const OpList* list = nullptr;
  uint32_t live(TensorId id) const { return live_rows(*list, id); }
};

// Sums in eight fixed lanes.
double dot(const double* x, const float* w, uint64_t count);
// activation(gate, up).
double gated(Activation activation, double gate, double up);

// fn(begin, end) over parts of [0, count), on the machine's threads.
void parallel_for(uint32_t num_threads, uint64_t count, const std::function<void(uint64_t, uint64_t)>& fn);

Status run(Machine& machine, const UpdateRows& op);
Status run(Machine& machine, const PrepareRows& op);
Status run(Machine& machine, const Embed& op);
Status run(Machine& machine, const RmsNorm& op);
Status run(Machine& machine, const Matmul& op);
Status run(Machine& machine, const AdapterShrink& op);
Status run(Machine& machine, const AdapterExpand& op);
Status run(Machine& machine, const ExpertShrink& op);
Status run(Machine& machine, const ExpertTerm& op);
Status run(Machine& machine, const ExpertExpand& op);
Status run(Machine& machine, const QkNorm& op);
Status run(Machine& machine, const JoinedQkNorm& op);
Status run(Machine& machine, const Rope& op);
Status run(Machine& machine, const KvWrite& op);
Status run(Machine& machine, const PagedAttention& op);
Status run(Machine& machine, const LatentRows& op);
Status run(Machine& machine, const HeadMatmul& op);
Status run(Machine& machine, const LatentAttention& op);
Status run(Machine& machine, const ExpandLatent& op);
Status run(Machine& machine, const RunningSum& op);
Status run(Machine& machine, const CausalConv& op);
Status run(Machine& machine, const GatedDelta& op);
Status run(Machine& machine, const SelectiveScan& op);
Status run(Machine& machine, const GatedNorm& op);
Status run(Machine& machine, const GatedActivation& op);
Status run(Machine& machine, const RouteExperts& op);
Status run(Machine& machine, const ExpertGateUp& op);
Status run(Machine& machine, const ExpertDown& op);
Status run(Machine& machine, const Add& op);
Status run(Machine& machine, const Scale& op);
Status run(Machine& machine, const SoftCap& op);
Status run(Machine& machine, const SigmoidGate& op);
Status run(Machine& machine, const GatherRows& op);
Status run(Machine& machine, const ApplyPenalties& op);
Status run(Machine& machine, const ApplyBias& op);
Status run(Machine& machine, const Filter& op);
Status run(Machine& machine, const Sample& op);
Status run(Machine& machine, const Logprobs& op);
Status run(Machine& machine, const CopyBlocks& op);
Status run(Machine& machine, const StoreBlocks& op);
Status run(Machine& machine, const LoadBlocks& op);

// The row of logits that Filter and Sample read for record r, as the f32 numbers that a device has.
std::vector<float> logits_row(Machine& machine, TensorId logits, TensorId processed, uint32_t r);

}  // namespace llmrt::reference
