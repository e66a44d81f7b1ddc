// How large the KV pools get, and why: every term is a number that can be printed. Pure arithmetic; the measured inputs
// come from the backend.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/engine/engine_config.h"
#include "core/engine/pool_shapes.h"
#include "core/model/model.h"

namespace llmrt {

// What else of an engine is on its device: for good, and for each block of the first pool.
struct BesideMemory {
  uint64_t fixed_bytes = 0, block_bytes = 0;
  std::optional<MemoryReport> before = {};  // of the device when it was not there yet
  bool reads_hidden = false;                // of the model, behind its steps
};

// What all engines on the device may take together; `before` was read before the first was there.
uint64_t memory_for_engines(const EngineConfig& config, const Caps& caps, const MemoryReport& before);
// That the device has the dtype, and the model what it asks for.
Status check_kv_dtype(KvDType dtype, const Model& model, const Caps& caps);
// Rows with token counts: as many as sequences where their counts take no more than an eighth of what the weights
// leave, or what the config asks for. Errors: invalid_argument when that is more than the device addresses or has room
// for, with both numbers. `loaded` was read with the weights in place.
Result<uint32_t> penalty_rows_of(const EngineConfig& config, const Caps& caps, uint32_t vocab_size,
                                 const MemoryReport& before, const MemoryReport& loaded);

// Fills the terms of budget, weights, workspace and blocks. `before` was read before anything was allocated, `after`
// with weights, state and a small pool in place and the largest step run; what stands beside them is in neither.
// Errors: out_of_memory when not even one sequence of block_tokens fits, invalid_argument for what was asked for and
// finds no room, with the numbers.
Result<MemoryPlan> size_pools(const EngineConfig& config, const Caps& caps, const PoolShapes& shapes,
                              const MemoryReport& before, const MemoryReport& after, const BesideMemory& beside = {},
                              const KvGroup& expanded = {});

// What copies of weights in f16 may take (Backend::add_f16_copies): the larger of f16_copies_share of what the weights
// leave and what the pool has no use for; 0 where nothing would read them. `loaded` was read with the weights in place.
uint64_t f16_copies_bound(const EngineConfig& config, const Caps& caps, const PoolShapes& shapes,
                          const MemoryReport& before, const MemoryReport& loaded, const BesideMemory& beside = {});

// The pool that latents of prompts are expanded into (core/attention/expanded_rows.h): a 16th of what the weights
// leave, at most 512 MiB (64 on a processor), and no more than the keys of the longest context take. No blocks where
// the model has none, its heads are not the device's, or it is not wanted. `loaded` was read with the weights in place.
KvGroup expanded_pool(const EngineConfig& config, const Caps& caps, const ModelConfig& model,
                      const MemoryReport& before, const MemoryReport& loaded);
inline constexpr uint64_t kExpandedBytesMax = 512ull << 20;
// The same, of at most so many bytes, whatever memory there is.
KvGroup expanded_pool_of(const EngineConfig& config, const Caps& caps, const ModelConfig& model, uint64_t bytes);

// Blocks of the host tier of the first group; 0 = none.
uint32_t host_blocks_of(const EngineConfig& config, const Caps& caps, const PoolShapes& shapes);

// An upper bound of the first pool in tokens, from what is known before anything is allocated.
uint64_t pool_tokens_bound(const EngineConfig& config, const Caps& caps, const PoolShapes& shapes);

// A table of the terms, one a line, and how many sequences of `context_tokens` fit.
std::string print(const MemoryPlan& plan, uint32_t context_tokens, uint32_t num_sequences);

}  // namespace llmrt
