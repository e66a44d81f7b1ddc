// A Backend executes op lists on one device (or one tensor-parallel group: one plan, N ranks inside). It holds memory,
// never requests. One thread at a time may call it (the engine's); nothing here keeps a pointer into its arguments
// after it returned, but WeightTable data, which load_weights has copied by then too.
//
// Order of life: load_weights, create_state, create_kv_pools (may be repeated; the contents of the old pool are gone),
// then submit and wait. All device work is one in-order queue: what a later submission reads, an earlier one has
// written. A step is one submission, or two: its memory and forward lists, then its sample list alone, with nothing
// between them that runs a forward list. Submissions may be made ahead of waiting, at most kInFlightMax.
//
// Errors: out_of_memory, missing_feature and unsupported name what and how much; device_lost is final for the object:
// every later call returns it too, and what was in flight is lost as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/backend/caps.h"
#include "core/base/status.h"
#include "core/kv/kv_format.h"
#include "core/ops/adapter_ops.h"
#include "core/ops/sealed_list.h"
#include "core/ops/step_inputs.h"
#include "core/weights/weight_table.h"

namespace llmrt {

// Sizes of everything that is allocated once.
struct StateConfig {
  uint32_t step_tokens_max = 2048;           // T of the largest step
  uint32_t sample_rows_max = 256;            // R of the largest step
  uint32_t slots_max = 256;                  // rows with state
  uint32_t penalty_rows_max = 16;            // rows with token counts
  uint32_t num_kv_groups = 1;                // tables of a row, at most kKvGroupsMax
  uint32_t blocks_row_max = 0;               // entries of a block table
  uint32_t partials_max = 0;                 // attention splits of one step and group (tokens x splits)
  uint32_t heads_max = 0, head_dim_max = 0;  // of the partials
  uint32_t hidden_columns = 0;               // width of the kHidden tensor
  uint32_t vocab_size = 0;
  uint64_t forward_words_max = 0;  // of a packed ForwardInputs
  uint64_t sample_words_max = 0;
  uint64_t arena_bytes = 0;  // largest Backend::arena_bytes() of any list that will be submitted
};

// Room for adapters (core/ops/adapter_ops.h).
struct AdapterPoolConfig {
  uint64_t bytes = 0;      // the table of slots_max * groups entries in front included; 0 = no pool
  uint32_t slots_max = 0;  // at most kAdapterSlotsMax
};

struct StepSubmission {
  // Any of the three lists may be null. This one runs first: moves of KV blocks, for steps that have any. Its inputs
  // are the forward's.
  const SealedList* memory = nullptr;
  const SealedList* forward = nullptr;
  std::span<const uint32_t> forward_inputs = {};  // packed
  const SealedList* sample = nullptr;
  std::span<const uint32_t> sample_inputs = {};
  uint32_t num_sampled = 0;    // live R: results that come back
  bool want_logprobs = false;  // some record asks: LogprobRows come back too
};

struct StepOutput {
  std::vector<SampleResult> results;                    // R
  std::vector<LogprobRow> logprobs;                     // R when want_logprobs, else empty
  double memory_ms = 0, forward_ms = 0, sample_ms = 0;  // device timestamps around each list
};

using Ticket = uint64_t;
// Submissions, not steps: a step may take two, and the forward part of the next one may follow.
inline constexpr int kInFlightMax = 3;

struct MemoryReport {
  uint64_t total_bytes = 0, free_bytes = 0;  // of the device, now
  uint64_t weight_bytes = 0, kv_bytes = 0, state_bytes = 0, arena_bytes = 0, other_bytes = 0;
  uint64_t f16_copy_bytes = 0;  // of weight_bytes: add_f16_copies
  uint64_t adapter_bytes = 0;   // the pool of adapters
  uint64_t peak_bytes = 0;      // of ours
};

using Progress = std::function<void(uint64_t done, uint64_t total)>;

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const Caps& caps() const = 0;
  // Names of ops (op_name) that this backend does not execute; submitting one is `unsupported`.
  virtual std::vector<std::string> unsupported() const { return {}; }

  // Copies the weights to the device, quantised ones as they are. `progress` may be empty; it is called on this thread.
  virtual Status load_weights(const WeightTable& weights, const Progress& progress) = 0;
  // Keeps quantised weights in f16 too, where steps of many rows are faster by them, in at most so many bytes. Between
  // load_weights and create_state, whose memory depends on it; the last call counts, and KV pools are gone by it.
  // Optional.
  virtual Status add_f16_copies(uint64_t bytes_max) {
    (void)bytes_max;
    return {};
  }
  // What the arena must hold to run the list, on any device of this backend and with any weights.
  virtual uint64_t arena_bytes(const OpList& list) const = 0;
  virtual Status create_state(const StateConfig& config) = 0;
  // One pool per group, at most num_kv_groups, cleared to zero bytes, and a host pool for each that asks for one
  // (out_of_memory, too, when the host can't give it).
  virtual Status create_kv_pools(std::span<const KvGroup> groups) = 0;

  // The pool of adapters, its table cleared; what an earlier one held is gone. Behind load_weights.
  virtual Status create_adapter_pool(const AdapterPoolConfig& config) {
    if (config.bytes == 0) return {};
    return make_error(ErrorCode::kUnsupported, "adapters: {} has no kernels for them", caps().device_id);
  }
  // Writes bytes of the pool: behind all submissions so far, in front of all later ones. Offset and size are multiples
  // of kAdapterAlignment. The bytes have been copied when it returns; it does not wait for the device's work.
  virtual Status write_adapter_pool(uint64_t offset, std::span<const std::byte> bytes) {
    (void)offset, (void)bytes;
    return make_error(ErrorCode::kUnsupported, "adapters: {} has no pool of them", caps().device_id);
  }

  // Compiles the kernels of all of the lists side by side, where kernels are compiled at all. Optional: prepare does it
  // too.
  virtual Status compile(std::span<const SealedList* const> lists) {
    (void)lists;
    return {};
  }
  // Compiles what `list` needs (pipelines, graphs) ahead of its first submission. Optional: submit does it too.
  virtual Status prepare(const SealedList& list) = 0;
  virtual Result<Ticket> submit(const StepSubmission& step) = 0;
  // Tickets are waited for in order. A step that fails is an error of the whole step.
  virtual Result<StepOutput> wait(Ticket ticket) = 0;
  // Runs the step op by op and waits; milliseconds of each op of the forward list, then of the sample list (a memory
  // list runs untimed). Where ops run as one, the first has their time and the others have 0, as no other op has. A
  // separate, slower recording: never the serving path. Row state and KV change as by submit.
  virtual Result<std::vector<double>> profile(const StepSubmission& step) = 0;

  // What the backend makes of the list, as text for people: a line for each launch, with the choice of its kernel, then
  // the patterns of ops that it would run as one and that the list keeps apart ("lost"), with the reason. For use
  // behind create_kv_pools; nothing is compiled for the device and nothing runs. Errors: those of prepare.
  virtual Result<std::string> explain(const OpList& list) = 0;

  // The bytes of a block of a group's host pool as they lie in this process's memory: layer by layer data, then scales.
  // They stay there as long as the KV pools. Empty: this backend has no such memory. Any thread may read or write them
  // while no submission that is not waited for moves the block.
  virtual std::vector<std::span<std::byte>> host_block(uint32_t kv_group, uint32_t block) {
    (void)kv_group, (void)block;
    return {};
  }

  virtual MemoryReport memory() const = 0;
  // What the device would be faster with, for whoever starts an engine; empty: nothing. Known after the first prepare.
  virtual std::string remark() const { return {}; }

  // Doors for tests and tools. A tensor must be kPinned (or kHidden) to keep its bytes around a submission; the list
  // must be the one that is then submitted. Each waits for the device.
  virtual Status write_tensor(const SealedList& list, TensorId tensor, std::span<const std::byte> bytes) = 0;
  virtual Status read_tensor(const SealedList& list, TensorId tensor, std::span<std::byte> bytes) = 0;
  // The bytes of one layer of one block as kv_format.h lays them out: data, then scales. The host pool's blocks follow
  // the pool's: they count from num_blocks.
  virtual Status write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) = 0;
  virtual Status read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) = 0;
};

}  // namespace llmrt
