// What an op's run() gets: the stream to launch on and where everything lies. Made by the executor for one list;
// pointers stay the same as long as the graph that was captured with them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/packed_matrix.h"
#include "core/backend/backend.h"
#include "core/base/status.h"
#include "core/kv/kv_format.h"
#include "core/ops/op_list.h"
#include "core/ops/step_inputs.h"

namespace llmrt::cuda {

class Cublas;
class DeviceWeights;

// Row state by slot (step_inputs.h). Passed to kernels by value.
struct RowState {
  RowSampling* sampling = nullptr;  // [slots_max]
  int32_t* last_token = nullptr;    // [slots_max], -1 = none
  int32_t* tables = nullptr;        // [num_kv_groups, slots_max, blocks_row_max] block ids, -1 = none
  uint32_t* counts = nullptr;       // [penalty_rows_max, vocab_size]: kInPrompt and the number of times in the output
  uint32_t slots_max = 0, blocks_row_max = 0, penalty_rows_max = 0, vocab_size = 0, num_kv_groups = 1;

  static constexpr uint32_t kInPrompt = 1u << 31;
  __host__ __device__ int32_t* tables_of(uint32_t kv_group) const {
    return tables + uint64_t{kv_group} * slots_max * blocks_row_max;
  }
};

// The blocks of one pool, on the device or in pinned memory of the host. Passed to kernels by value.
struct KvMemory {
  std::byte* data = nullptr;  // [layer][block][k, v][head][token][dim]
  float* scales = nullptr;    // [layer][block][k, v][head][token][scale], where the dtype has such

  uint64_t layer_bytes = 0, layer_scales = 0;  // from one layer to the next: bytes of data, numbers of scales
  uint32_t num_blocks = 0;
};
struct KvPool {
  KvGroup group;
  KvMemory device, host;
};

// Memory that lives inside one op only (stream order keeps ops apart), and counters that every kernel leaves at zero.
struct Workspace {
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint32_t* counters = nullptr;
  uint32_t num_counters = 0;
};

struct OpContext {
  cudaStream_t stream = nullptr;
  int num_sms = 0;
  bool dependent_launch = false;  // programmatic dependent launch between our kernels (compute capability 9)
  uint32_t shared_bytes_max = 0;  // of a block
  bool has_clusters = false;      // compute capability 9, of the device and of the code that is loaded
  bool has_bulk_copies = false;   // from there on too
  bool has_warpgroups = false;    // the device is of compute capability 9.0 and the build has code for sm_90a

  const OpList* list = nullptr;
  const RmsNorm* norm = nullptr;  // that a matmul makes its x by (can_fuse)
  const ArenaPlan* plan = nullptr;
  std::byte* arena = nullptr;
  float* hidden = nullptr;  // [hidden_rows, hidden_columns]
  uint32_t hidden_rows = 0;

  const DeviceWeights* weights = nullptr;
  Cublas* cublas = nullptr;  // null: not there
  RowState rows;
  const KvPool* pools = nullptr;
  uint32_t num_pools = 0;
  float* partial_values = nullptr;  // [partials_max, heads_max, head_dim_max]
  float* partial_sums = nullptr;    // [partials_max, heads_max, 2]: max, sum
  Workspace workspace;

  const uint32_t* forward_inputs = nullptr;
  const uint32_t* sample_inputs = nullptr;
  SampleResult* results = nullptr;  // [sample_rows_max]
  LogprobRow* logprobs = nullptr;   // [sample_rows_max]

  const TensorDesc& desc(TensorId id) const { return list->tensors[static_cast<size_t>(id)]; }
  uint32_t rows_of(TensorId id) const { return list->rows_of(id); }
  std::byte* bytes(TensorId id) const {
    if (desc(id).storage == Storage::kHidden) return reinterpret_cast<std::byte*>(hidden);
    return arena + plan->offsets[static_cast<size_t>(id)];
  }
  template <class T>
  T* tensor(TensorId id) const {
    return reinterpret_cast<T*>(bytes(id));
  }
  // The numbers of an f32 tensor, such as the weights of a norm.
  const float* weight_vector(WeightId id) const;
  // Where the device finds how many rows of the tensor are live.
  const uint32_t* live(TensorId id) const {
    return desc(id).rows == Rows::kTokens ? forward_inputs + kFwdNumTokens : sample_inputs + kSmpNumRecords;
  }
};

// One file each in ops/. Errors: unsupported, for a shape or dtype that the kernels do not have, by name; device_lost
// when a launch fails.
Status run(const UpdateRows& op, const OpContext& at);
Status run(const PrepareRows& op, const OpContext& at);
Status run(const Embed& op, const OpContext& at);
Status run(const RmsNorm& op, const OpContext& at);
Status run(const Matmul& op, const OpContext& at);
Status run(const QkNorm& op, const OpContext& at);
Status run(const Rope& op, const OpContext& at);
Status run(const KvWrite& op, const OpContext& at);
Status run(const PagedAttention& op, const OpContext& at);
uint32_t attention_head_dim_max(uint32_t shared_bytes_max);  // of prompts, with so much shared memory a block
Status run(const GatedActivation& op, const OpContext& at);
Status run(const Add& op, const OpContext& at);
Status run(const Scale& op, const OpContext& at);
Status run(const GatherRows& op, const OpContext& at);
Status run(const ApplyPenalties& op, const OpContext& at);
Status run(const ApplyBias& op, const OpContext& at);
Status run(const Filter& op, const OpContext& at);
uint64_t filter_workspace_bytes(uint32_t rows_max, int num_sms);  // the most that it needs
Status run(const Sample& op, const OpContext& at);
Status run(const Logprobs& op, const OpContext& at);
Status run(const CopyBlocks& op, const OpContext& at);
Status run(const StoreBlocks& op, const OpContext& at);
Status run(const LoadBlocks& op, const OpContext& at);

// qk_norm (when there is one), rope and kv_write of the same qkv in one kernel.
Status run_fused(const QkNorm* qk_norm, const Rope& rope, const KvWrite& kv_write, const OpContext& at);
// For prompts and for few rows, where can_fuse says so and nothing else reads what the matmul writes, which is not
// written then: the products go to the activation, in prompts in f16, as its own results do (beyond its range they
// become inf, which sampling reports), or are added to the norm's x where they are made.
bool can_fuse(const Matmul& matmul, const GatedActivation& activation, const OpContext& at);
Status run_fused(const Matmul& matmul, const GatedActivation& activation, const OpContext& at);
bool can_fuse(const Matmul& matmul, const RmsNorm& norm, const OpContext& at);
Status run_fused(const Matmul& matmul, const RmsNorm& norm, const OpContext& at);
Status run_added(const Matmul& matmul, const RmsNorm& norm, const OpContext& at);  // the sum alone
// Whether the matmul, in whichever way it runs, can make the norm's results where it reads them (OpContext::norm).
bool can_fuse(const RmsNorm& norm, const Matmul& matmul, const OpContext& at);
// Of an x that holds f16.
Status run_from_f16(const GatedActivation& op, const OpContext& at);

}  // namespace llmrt::cuda
