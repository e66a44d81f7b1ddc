// Runs op lists: walks the ops, fusing neighbours, either straight onto the stream or once into a CUDA graph that is
// launched from then on. Graphs hold addresses and grids only; every live size comes from the inputs on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <unordered_map>
#include <vector>

#include "backends/cuda/op_context.h"

namespace llmrt::cuda {

inline constexpr uint64_t kArenaAlignment = 256;

class Executor {
 public:
  Executor() = default;
  ~Executor() { drop_graphs(); }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Queues the list on base.stream; small lists go through a graph, captured on first use. `base` has everything but
  // list and plan. Errors: out_of_memory when the list needs more than arena_bytes; those of the ops.
  Status run(const OpList& list, const OpContext& base, uint64_t arena_bytes);
  // Captures ahead of the first run.
  Status prepare(const OpList& list, const OpContext& base, uint64_t arena_bytes);
  // Op by op, without graph; waits. Appends milliseconds of each op, 0 for those that ran with the one before.
  Status profile(const OpList& list, const OpContext& base, uint64_t arena_bytes, std::vector<double>* op_ms);

  // Graphs refer to addresses: they go when anything moves. The stream must be idle.
  void drop_graphs();

 private:
  struct Compiled {
    ArenaPlan plan;
    cudaGraphExec_t graph = nullptr;
    bool is_loaded = false;  // the code of a list without a graph, by prepare
    uint64_t last_used = 0;
  };
  Result<Compiled*> compiled(const OpList& list, uint64_t arena_bytes);
  // `exec`: what is captured, ready to be launched; null: nothing is kept.
  Status capture(const OpList& list, const OpContext& at, cudaGraphExec_t* exec);
  void evict_oldest();

  std::unordered_map<uint64_t, Compiled> entries_;  // by OpList::key()
  uint64_t uses_ = 0;
};

}  // namespace llmrt::cuda
