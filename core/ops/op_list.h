// A list of ops: the shape of a step's work. It prints and compares. Lists are built once per bucket by
// core/engine/lower (or by a test), and sealed when they are complete (sealed_list.h): backends run sealed lists.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/ops/ops.h"
#include "core/ops/tensor.h"

namespace llmrt {

struct OpList {
  std::string name;          // "forward", "sample" or "memory", for prints
  uint32_t num_tokens = 0;   // T of the bucket
  uint32_t num_sampled = 0;  // R of the bucket (0 in a forward list)
  std::vector<TensorDesc> tensors;
  std::vector<Op> ops;
  // A row's numbers do not depend on how many others there are and what they hold: one order of sums per shape of
  // weights, whatever the bucket. Attention's is in its work lists.
  bool batch_invariant = false;
  // No step that is run by it has prompt items: attention's kernels for those are not there. If it is not
  // batch-invariant, no row has more than kRingRowTokens tokens.
  bool decode_only = false;
  // Decode items of its steps may hold several tokens of a row (a run). In other lists each holds one.
  bool has_runs = false;

  // Rows of a kRouted tensor for each of the list's own, which are R in a list that samples and else T. 0 = no tensor
  // is routed.
  uint32_t routed_per_row = 0;

  TensorId add_tensor(TensorDesc desc);
  uint32_t rows_of(TensorId id) const;  // T, R, or a multiple of the one
  // The same in a step of so many tokens and sampled rows.
  uint32_t rows_of(TensorId id, uint32_t tokens, uint32_t sampled) const;
  uint64_t bytes_of(TensorId id) const;  // rows * columns * dtype
};

// The tensors that an op reads and writes (an in-place tensor is in both).
struct OpAccess {
  std::vector<TensorId> reads, writes;
};
OpAccess access(const Op& op);

// The group of states that an op reads and writes, if it has a state.
std::optional<uint32_t> state_group(const Op& op);

// One line an op: "rms_norm x=x[T,576]f32 delta=o weight=3 -> h[T,576]f16".
std::string print(const OpList& list);

// Unsupported, naming op and tensor, when an op other than those of experts has a routed one: no backend has kernels
// for them.
Status refuse_routed_rows(const OpList& list);

// How many of `num_experts` are chosen when `rows` rows choose `used` each, evenly: E (1 - (1 - k / E)^rows).
double expected_distinct_experts(uint32_t num_experts, uint32_t used, double rows);

// What an op must do and move at least, for given live sizes; weights excluded when they would be counted twice.
struct OpCost {
  double flops = 0;
  double bytes = 0;
};
struct KvSizes {
  uint64_t tokens = 0;           // sum over query tokens' rows of keys read from the pool
  uint64_t attention_pairs = 0;  // sum over query tokens of keys each looks at
  uint32_t bytes_token = 0;      // k and v of one token in one layer
};
// Rows that have adapters, and what those do, where that is known: a list does not tell.
struct AdapterSizes {
  uint32_t num_rows = 0, num_adapters = 0;  // of the rows: distinct ones
  uint32_t number_bytes = 0;                // of A and B
  std::vector<AdapterEntry> entries = {};   // by weight group, the same of each adapter
};
struct CostSizes {
  uint32_t num_tokens = 0, num_sampled = 0;
  std::vector<KvSizes> kv = {};  // by KV group
  // Experts that rows go to, by the TensorId of their ids, as counted behind a run (core/engine/expert_counts.h).
  // Empty: as many as there would be if every row chose evenly.
  std::vector<double> distinct_experts = {};
  uint32_t num_absorbed = ~0u;  // ForwardInputs::num_absorbed
  AdapterSizes adapters = {};   // without entries the ops of adapters cost nothing
};
struct WeightTable;
OpCost cost(const OpList& list, const Op& op, const WeightTable& weights, const CostSizes& sizes);

// Offsets of arena tensors, aliased by lifetime; first fit by size. kHidden tensors get no offset.
struct ArenaPlan {
  std::vector<uint64_t> offsets;  // by TensorId; kNoOffset for kHidden
  std::vector<int> last_ops;      // by TensorId: the op that it lives to; of pinned ones none, one past the end
  uint64_t bytes = 0;             // peak
  static constexpr uint64_t kNoOffset = ~0ull;
};
// lives_with: for each op the last op that a backend may run together with it. What an op reads lives to the end of
// that one, since a kernel of both may still read it while it writes the later op's result.
ArenaPlan plan_arena(const OpList& list, uint64_t alignment_bytes, std::span<const int> lives_with);

}  // namespace llmrt
