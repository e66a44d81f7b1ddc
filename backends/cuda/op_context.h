// What a launch gets: the stream and where everything lies. The places stay the same for as long as a graph that was
// captured with them. It says nothing about which ops come before or behind.
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
  bool dependent_launch = false;  // programmatic dependent launch between our kernels (compute capability 9)

  const OpList* list = nullptr;  // of the program that runs
  const ArenaPlan* plan = nullptr;
  std::byte* arena = nullptr;
  float* hidden = nullptr;  // [hidden_rows, hidden_columns]
  uint32_t hidden_rows = 0;

  const DeviceWeights* weights = nullptr;
  Cublas* cublas = nullptr;  // null: not there
  RowState rows;
  const std::byte* adapter_pool = nullptr;  // core/ops/adapter_ops.h; null: there is none
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

}  // namespace llmrt::cuda
