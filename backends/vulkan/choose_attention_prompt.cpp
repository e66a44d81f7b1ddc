// The kernels for prompt items: on matrix units paged_attention_wide or _matrix, without them _block, else one of those
// for any item.
#include <algorithm>

#include "backends/vulkan/choose_attention.h"
#include "backends/vulkan/kernels/paged_attention_block.h"
#include "backends/vulkan/kernels/paged_attention_lanes.h"
#include "backends/vulkan/kernels/paged_attention_matrix.h"
#include "backends/vulkan/kernels/paged_attention_tile.h"
#include "backends/vulkan/kernels/paged_attention_wide.h"
#include "core/base/checked_math.h"
#include "core/ops/step_inputs.h"

namespace llmrt::vulkan {
namespace {

// ---- paged_attention_block: tiles of 32 rows by two keys a lane, of 16 or 8 lanes, in f32 or packed f16. Twins:
// q_tile, kv_tile and weights of shaders/paged_attention_block.comp.
constexpr uint32_t kBlockRows = 32;

bool takes_pairs(const Traits& traits, const AttentionShape& shape) {
  return traits.packed_f16 && shape.head_dim % 16 == 0 && shape.kv_dtype != KvDType::kBF16 && !shape.batch_invariant;
}

uint32_t block_lanes(const Traits& traits, uint32_t head_dim, bool pairs) {
  if (head_dim > 128 || has_small_lanes(traits)) return 0;
  for (const uint32_t lanes : {16u, 8u}) {
    const uint32_t keys = 2 * lanes, row_bytes = (head_dim / (pairs ? 8 : 4) + 1) * 16;
    const uint32_t shared_bytes = (kBlockRows + keys) * row_bytes + keys * kBlockRows * 4;
    if (lanes <= traits.subgroup_size && shared_bytes <= traits.shared_bytes) return lanes;
  }
  return 0;
}

AttentionChoice choose_block(const AttentionShape& shape, uint32_t lanes, bool pairs) {
  using K = PagedAttentionBlockKernel;
  return {make_kernel<K>(8 * lanes,
                         {.head_dim = shape.head_dim,
                          .kv_dtype = kv_constant(shape.kv_dtype),
                          .out_dtype = static_cast<uint32_t>(shape.out_dtype),
                          .soft_cap = shape.soft_cap,
                          .sinks = shape.sinks,
                          .key_lanes = lanes},
                         pairs ? K::kPairsShader : K::kShader),
          kBlockRows};
}

// ---- paged_attention_matrix: outputs of 128 numbers stay in registers, where a lane has 255 of 256, and a lane weighs
// at least eight keys of a tile. Twins: kv_tile, scratch and tile_scales of shaders/paged_attention_matrix.comp.
uint32_t shared_bytes(const Traits& traits, const AttentionTile& tile, uint32_t head_dim) {
  const uint32_t frag_rows = tile.subgroups * traits.matrix_m;
  const uint32_t output_dims = std::min(head_dim, std::max(traits.matrix_n, 32u));
  const uint32_t kv = 2 * tile.keys * (head_dim / 8 + 1) * 16, outputs = frag_rows * (output_dims / 4 + 1) * 16;
  return std::max(kv, outputs) + frag_rows * (tile.keys / 4 + 1) * 16 + 2 * tile.keys * 4;
}

bool has_matrix_kernel(const Traits& traits, uint32_t head_dim) {
  const uint32_t most = has_many_registers(traits) ? 256 : 128;
  return traits.tier >= Tier::kMatrix && head_dim <= most && head_dim % traits.matrix_n == 0 &&
         head_dim % traits.matrix_k == 0 && traits.subgroup_size % traits.matrix_m == 0 &&
         traits.subgroup_size <= 4 * traits.matrix_m;
}

// Each key and value that is loaded serves as many rows as registers last for: two fragments of them where a lane has
// 255 (NVIDIA), else more subgroups, as long as items have rows for them, shared memory lasts and, where the driver
// says, registers: queries and outputs of a head of 128 in 64 lanes with what passes by take some 160 (several
// lanes hold the same number of a query), and two SIMDs hold a group. Four subgroups fit in 32 KiB.
AttentionChoice choose_matrix(const Target& target, const AttentionShape& shape, uint32_t item_tokens) {
  const Traits& traits = target.traits;
  const uint32_t item_rows = item_tokens * shape.group_heads(), head_dim = shape.head_dim;
  AttentionTile tile = has_many_registers(traits) ? target.tuning.prompt_many_registers : target.tuning.prompt_other;
  if (head_dim > 128) tile = target.tuning.prompt_long_heads;
  if (!has_many_registers(traits) && has_small_lanes(traits)) tile.keys = target.tuning.prompt_small_lanes_keys;
  const uint32_t rows = tile.row_frags * traits.matrix_m;
  const auto spills = [&] {
    const uint32_t lane_registers = head_dim + 32, subgroups_simd = tile.subgroups / 2;
    return traits.simd_registers > 0 &&
           lane_registers * subgroups_simd * traits.subgroup_size > traits.simd_registers * 64;
  };
  while (tile.subgroups > 4 && (item_rows <= tile.subgroups / 2 * rows || spills() ||
                                shared_bytes(traits, tile, head_dim) > traits.shared_bytes))
    tile.subgroups /= 2;
  return {make_kernel<PagedAttentionMatrixKernel>(tile.subgroups * traits.subgroup_size,
                                                  {.head_dim = head_dim,
                                                   .kv_dtype = kv_constant(shape.kv_dtype),
                                                   .out_dtype = static_cast<uint32_t>(shape.out_dtype),
                                                   .soft_cap = shape.soft_cap,
                                                   .sinks = shape.sinks,
                                                   .subgroups = tile.subgroups,
                                                   .m = traits.matrix_m,
                                                   .n = traits.matrix_n,
                                                   .k = traits.matrix_k,
                                                   .row_frags = tile.row_frags,
                                                   .tile_keys = tile.keys,
                                                   .group_heads = shape.group_heads()}),
          tile.subgroups * rows, true};
}

// ---- paged_attention_wide: for 16-bit pools where scores can stay in registers, as they lie in lanes as weights do.
// Twins: tiles and row_factors of shaders/paged_attention_wide.comp.
AttentionTile wide_tile(const Target& target, uint32_t head_dim) {
  const Tuning& tuning = target.tuning;
  if (target.traits.is_cpu) return tuning.cpu_wide_prompt;
  return {tuning.wide_prompt_subgroups, tuning.wide_prompt_row_frags, tuning.wide_prompt_numbers / head_dim};
}
uint32_t wide_held(const Target& target, uint32_t head_dim) {
  return std::min(head_dim / target.traits.fragment.k, target.tuning.wide_prompt_held_max);
}
uint32_t wide_shared_bytes(const Target& target, uint32_t head_dim) {
  const Traits& traits = target.traits;
  const AttentionTile tile = wide_tile(target, head_dim);
  const uint32_t loose = head_dim / traits.fragment.k - wide_held(target, head_dim);
  const uint32_t place = 2 * tile.keys * (head_dim / 8 + 1) * 16;
  const uint32_t queries = tile.row_frags * loose * tile.subgroups * traits.subgroup_size * 16;
  const uint32_t outputs = tile.subgroups * traits.fragment.m * (32 / 4 + 1) * 16;
  return std::max(place + queries, outputs) + tile.subgroups * tile.row_frags * traits.fragment.m * 4;
}
bool has_wide_kernel(const Target& target, uint32_t head_dim, KvDType dtype) {
  const Traits& traits = target.traits;
  const Fragment& shape = traits.fragment;
  return !traits.cpu_kernels && shape.sums_as_factor && shape.m == shape.k &&
         shape.m * shape.k == 8 * traits.subgroup_size && (head_dim == 64 || head_dim == 128) &&
         (dtype == KvDType::kF16 || dtype == KvDType::kBF16) &&
         wide_shared_bytes(target, head_dim) <= traits.shared_bytes;
}
AttentionChoice choose_wide(const Target& target, const AttentionShape& shape, uint32_t item_tokens) {
  const Traits& traits = target.traits;
  const Fragment& fragment = traits.fragment;
  AttentionTile tile = wide_tile(target, shape.head_dim);
  const uint32_t rows = tile.row_frags * fragment.m;
  while (tile.subgroups > 4 && item_tokens * shape.group_heads() <= tile.subgroups / 2 * rows) tile.subgroups /= 2;
  return {make_kernel<PagedAttentionWideKernel>(tile.subgroups * traits.subgroup_size,
                                                {.head_dim = shape.head_dim,
                                                 .kv_dtype = kv_constant(shape.kv_dtype),
                                                 .out_dtype = static_cast<uint32_t>(shape.out_dtype),
                                                 .soft_cap = shape.soft_cap,
                                                 .sinks = shape.sinks,
                                                 .subgroups = tile.subgroups,
                                                 .m = fragment.m,
                                                 .n = fragment.n,
                                                 .row_lanes = fragment.row_lanes,
                                                 .row_frags = tile.row_frags,
                                                 .tile_keys = tile.keys,
                                                 .held = wide_held(target, shape.head_dim),
                                                 .group_heads = shape.group_heads()}),
          tile.subgroups * rows, true};
}

}  // namespace

AttentionChoice choose_any_item(const Target& target, const AttentionShape& shape) {
  const Traits& traits = target.traits;
  if (traits.cpu_kernels && traits.subgroup_size == 8) {
    // Prompts fill two vectors of rows; a decode item has only as many rows as its group has heads.
    const bool is_long = shape.num_tokens >= target.tuning.lanes_two_vecs_tokens_min && !shape.batch_invariant;
    const uint32_t row_vecs = is_long ? 2 : 1;
    return {make_kernel<PagedAttentionLanesKernel>(8, {.head_dim = shape.head_dim,
                                                       .kv_dtype = kv_constant(shape.kv_dtype),
                                                       .out_dtype = static_cast<uint32_t>(shape.out_dtype),
                                                       .soft_cap = shape.soft_cap,
                                                       .sinks = shape.sinks,
                                                       .row_vecs = row_vecs}),
            8 * row_vecs};
  }
  // Tiles of q, k and v within 32 KiB of shared memory.
  const bool few = has_small_lanes(traits);
  const uint32_t rows = shape.head_dim <= (few ? 64 : 128) ? 16 : 8;
  return {make_kernel<PagedAttentionTileKernel>(128, {.head_dim = shape.head_dim,
                                                      .kv_dtype = kv_constant(shape.kv_dtype),
                                                      .out_dtype = static_cast<uint32_t>(shape.out_dtype),
                                                      .soft_cap = shape.soft_cap,
                                                      .sinks = shape.sinks,
                                                      .tile_rows = rows,
                                                      .tile_keys = few ? 8 : rows}),
          rows};
}

AttentionChoice choose_prompt(const Target& target, const AttentionShape& shape) {
  const uint32_t item_tokens = std::min(kPromptItemTokens, shape.num_tokens);
  if (!shape.prompts_alone && has_wide_kernel(target, shape.head_dim, shape.kv_dtype))
    return choose_wide(target, shape, item_tokens);
  if (has_matrix_kernel(target.traits, shape.head_dim)) return choose_matrix(target, shape, item_tokens);
  const bool pairs = takes_pairs(target.traits, shape);
  const uint32_t lanes = block_lanes(target.traits, shape.head_dim, pairs);
  return lanes > 0 ? choose_block(shape, lanes, pairs) : choose_any_item(target, shape);
}

void set_prompt_tiles(const Target& target, AttentionTuning* attention) {
  const Traits& traits = target.traits;
  if (traits.tier < Tier::kMatrix || !has_many_registers(traits)) return;
  const bool is_wide = has_wide_kernel(target, 128, KvDType::kF16);
  const AttentionTile tile = is_wide ? wide_tile(target, 128) : target.tuning.prompt_many_registers;
  const uint32_t core_groups = is_wide ? 1 : target.tuning.prompt_core_groups;
  attention->prompt_tile_rows = tile.subgroups * tile.row_frags * traits.matrix_m;
  attention->prompt_tiles = traits.num_cores * core_groups * attention->prompt_tile_rows / kPromptItemTokens;
}

}  // namespace llmrt::vulkan
