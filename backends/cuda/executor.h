// Keeps the programs of lists and, for small lists, the CUDA graphs that were captured from them. A graph holds
// addresses and grids only; every live size comes from the inputs on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <unordered_map>
#include <vector>

#include "backends/cuda/op_context.h"
#include "backends/cuda/program.h"
#include "core/ops/sealed_list.h"

namespace llmrt::cuda {

class Executor {
 public:
  // What programs are compiled for and run with. Whatever changes them calls drop() first.
  struct Setting {
    const CompileInputs* inputs = nullptr;
    const OpContext* context = nullptr;
    uint64_t arena_bytes = 0;
  };

  Executor() = default;
  ~Executor() { drop(); }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Queues the list on the context's stream; small lists go through a graph, captured on first use. Errors:
  // out_of_memory when the list needs more than arena_bytes; those of compile() and of the launches.
  Status run(const SealedList& list, const Setting& setting);
  // Compiles and captures ahead of the first run.
  Status prepare(const SealedList& list, const Setting& setting);
  // Step by step, without a graph, and waits (program.h: time).
  Status profile(const SealedList& list, const Setting& setting, std::vector<double>* op_ms);
  // The list's program; it is kept until many others have been used.
  Result<const Program*> program(const SealedList& list, const Setting& setting);

  // Programs refer to addresses: they go when anything moves. The stream must be idle.
  void drop();

 private:
  struct Entry {
    Program program;
    cudaGraphExec_t graph = nullptr;
    bool is_loaded = false;  // the code of a list without a graph, by prepare
    uint64_t last_used = 0;
  };
  Result<Entry*> entry_of(const SealedList& list, const Setting& setting);
  Status prepare(Entry* entry, const Setting& setting);
  void evict_oldest();

  std::unordered_map<uint64_t, Entry> entries_;  // by SealedList::key
  uint64_t uses_ = 0;
};

}  // namespace llmrt::cuda
