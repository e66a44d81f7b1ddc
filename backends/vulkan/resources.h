// Everything on the device that kernels may touch, as views.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/vulkan/setting.h"
#include "backends/vulkan/view.h"
#include "core/backend/backend.h"
#include "core/kv/kv_format.h"

namespace llmrt::vulkan {

// The blocks of one pool, on the device or in the host's memory.
struct KvMemory {
  std::vector<View> data, scales;  // by layer; no scales: empty
};
struct KvPool {
  KvGroup group;
  KvMemory device, host;
};

inline constexpr uint32_t kRowWords = 20;   // twin: shaders/step_inputs.glsl
inline constexpr uint32_t kListMax = 1024;  // twin: shaders/logits_row.glsl
inline constexpr uint64_t kHalvesBytesMax = 128 << 20;

struct Resources {
  const Traits* traits = nullptr;
  const WeightPieces* weights = nullptr;
  StateConfig config;
  View arena, hidden;
  View rows;            // [slots_max, kRowWords]: RowSampling, last token
  View tables;          // [num_kv_groups, slots_max, blocks_row_max] block ids
  View counts;          // [penalty_rows_max, vocab]: bit 31 in the prompt, below it how often in the output
  View partials;        // [partials_max, heads_max, head_dim_max + 2] f32: max, sum, values
  View merge_arrivals;  // [partials_max, heads_max] words: how many splits of a token are done
  View candidates;      // [sample_rows_max, 2 * kListMax]: keys and ids of the best tokens, from filter to sample
  View products;        // [num_cores, kSplitBytesCore]: sums that workgroups of a matmul hand to each other
  View arrivals;  // [num_cores, kArrivalsCore] words: how many have done so for a tile, or for a row that is sampled
  View norms;     // NormParts
  View routes;    // routed rows by expert: choose_experts.h ExpertItems
  View halves;    // of up to kHalvesBytesMax: quantised weights written out in f16
  View results;   // [sample_rows_max] SampleResult, then [sample_rows_max] LogprobRow
  View forward_inputs, sample_inputs;
  View adapters;  // the pool (core/ops/adapter_ops.h), of numbers of adapter_dtype; no bytes: none
  DType adapter_dtype = DType::kF32;
  std::vector<KvPool> pools;
};

Setting setting_of(const Resources& resources, const OpList& list);

// A norm of few rows that one matmul leaves for the next to end: shaders/matmul_fragment.comp.
struct NormParts {
  View all;
  View factors[2];  // [fragment.n] f32 each: this norm's and the one's before it in turn
  View squares;     // [fragment.n, groups] f32: a row's squares, summed by each group of the first matmul
  View x;           // [fragment.n, columns] f16: the norm but for its factor
};
NormParts norm_parts(const Resources& resources);
uint64_t norm_parts_bytes(const Traits& traits, uint32_t columns);

}  // namespace llmrt::vulkan
