// Which kernels walk the decode and prompt items, then merges. Empty lists leave at once.
#include <algorithm>
#include <bit>

#include "backends/vulkan/recorder.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

constexpr uint32_t kDecodeHeadsMax = 8, kDecodeHeadsMaxFew = 4;  // query heads that it keeps in registers

struct Choice {
  const char* shader;
  uint32_t group_size;
  std::vector<uint32_t> constants;  // beyond those of paged.glsl
  uint32_t tile_rows;
  bool items_last = false;  // of the grid: an item's groups start together, before those of shorter items
};

// The kernel for any item.
Choice choose(const Traits& traits, const OpList& list, uint32_t head_dim) {
  if (traits.cpu_kernels && traits.subgroup_size == 8) {
    // Prompts fill two vectors of rows; a decode item has only as many rows as its group has heads.
    const uint32_t row_vecs = list.num_tokens >= 64 && !list.batch_invariant ? 2 : 1;
    return {"paged_attention_lanes", 8, {row_vecs}, 8 * row_vecs};
  }
  // Tiles of q, k and v within 32 KiB of shared memory.
  const bool few = has_small_lanes(traits);
  const uint32_t rows = head_dim <= (few ? 64 : 128) ? 16 : 8, keys = few ? 8 : rows;
  return {"paged_attention_tile", 128, {rows, keys}, rows};
}

// The kernel for prompt items alone without matrix units: tiles of 32 rows by two keys a lane, of 16 or 8 lanes, in f32 or
// packed f16. Twins: q_tile, kv_tile and weights of shaders/paged_attention_block.comp.
constexpr uint32_t kBlockRows = 32;
bool takes_pairs(const Traits& traits, const OpList& list, uint32_t head_dim, KvDType dtype) {
  return traits.packed_f16 && head_dim % 16 == 0 && dtype != KvDType::kBF16 && !list.batch_invariant;
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
Choice choose_block(uint32_t lanes, bool pairs) {
  return {pairs ? "paged_attention_block.pairs" : "paged_attention_block", 8 * lanes, {lanes}, kBlockRows};
}

// The kernel for decode items alone, where the device has it.
bool has_decode_kernel(const Traits& traits, uint32_t head_dim) {
  return traits.tier >= Tier::kSubgroup && !traits.cpu_kernels && head_dim / 8 <= traits.subgroup_size;
}
// One or two rows leave most of a device idle whatever their splits; where registers are few, one group of 8 would take
// a core alone. Shared memory holds values that subgroups merge.
uint32_t decode_subgroups(const Traits& traits, const OpList& list, uint32_t heads, uint32_t head_dim) {
  const bool is_wide = list.num_tokens <= 2 && !list.batch_invariant && !traits.is_cpu && !has_small_simds(traits);
  uint32_t subgroups = is_wide ? 8 : 4;
  if (has_small_lanes(traits)) subgroups *= 2;  // as their batches are small
  while (subgroups > 1 && subgroups * heads * (head_dim + 2) * 4 > traits.shared_bytes) subgroups /= 2;
  return subgroups;
}
// The same on matrix units: a tile at work, one on its way, queries and outputs fill a lane's registers.
bool has_fragment_kernel(const Traits& traits, uint32_t head_dim, KvDType dtype) {
  return traits.fragment.m > 0 && traits.fragment.m == traits.fragment.k && (head_dim == 64 || head_dim == 128) &&
         (dtype == KvDType::kF16 || dtype == KvDType::kI8 || dtype == KvDType::kF8 || dtype == KvDType::kF8Tensor);
}
Choice choose_decode(const Traits& traits, const OpList& list, uint32_t head_dim, uint32_t group_heads, KvDType dtype) {
  if (has_fragment_kernel(traits, head_dim, dtype)) {
    const Fragment& shape = traits.fragment;
    const uint32_t heads = std::min(group_heads, shape.n);
    const uint32_t subgroups = decode_subgroups(traits, list, shape.n, head_dim);
    return {"paged_attention_fragment",
            subgroups * traits.subgroup_size,
            {heads, subgroups, shape.m, shape.n, shape.row_lanes},
            heads};
  }
  // Two heads spill a little on lanes of 64 registers; by the compiler's cycles one at a time takes 1.7 times as long.
  const uint32_t heads_max = has_small_lanes(traits)   ? traits.lane_registers / 32
                             : has_small_simds(traits) ? kDecodeHeadsMaxFew
                                                       : kDecodeHeadsMax;
  const uint32_t heads = std::min(group_heads, heads_max), key_lanes = std::bit_ceil(head_dim / 8);
  // Queries and values of many heads leave fewer registers for keys under way.
  const uint32_t batch = has_small_lanes(traits) || has_small_simds(traits) ? 1 : heads <= 4 ? 4 : 2;
  const uint32_t merge_batch = has_small_lanes(traits) ? 2 : 8;
  const uint32_t subgroups = decode_subgroups(traits, list, heads, head_dim);
  return {"paged_attention_decode",
          subgroups * traits.subgroup_size,
          {heads, key_lanes, subgroups, batch, merge_batch},
          heads};
}

// Tiles of the kernel for prompt items alone: a subgroup owns row_frags * matrix_m rows.
struct MatrixTile {
  uint32_t subgroups, row_frags, keys;
};
// Twins: kv_tile, scratch and tile_scales of shaders/paged_attention_matrix.comp.
uint32_t shared_bytes(const Traits& traits, const MatrixTile& tile, uint32_t head_dim) {
  const uint32_t frag_rows = tile.subgroups * traits.matrix_m;
  const uint32_t output_dims = std::min(head_dim, std::max(traits.matrix_n, 32u));
  const uint32_t kv = 2 * tile.keys * (head_dim / 8 + 1) * 16, outputs = frag_rows * (output_dims / 4 + 1) * 16;
  return std::max(kv, outputs) + frag_rows * (tile.keys / 4 + 1) * 16 + 2 * tile.keys * 4;
}

// The kernel for prompt items alone, where the device has it: outputs of so many numbers stay in registers, and a lane
// weighs at least eight of the 32 keys of a tile.
bool has_matrix_kernel(const Traits& traits, uint32_t head_dim) {
  return traits.tier >= Tier::kMatrix && head_dim <= 128 && head_dim % traits.matrix_n == 0 &&
         head_dim % traits.matrix_k == 0 && traits.subgroup_size % traits.matrix_m == 0 &&
         traits.subgroup_size <= 4 * traits.matrix_m;
}
// Lanes have 255 registers.
bool has_many_registers(const Traits& traits) {
  return is_nvidia(traits);
}
constexpr MatrixTile kManyRegistersTile{4, 2, 16};

// Each key and value that is loaded serves as many rows as registers last for: two fragments of them where a lane has
// 255 (NVIDIA), else more subgroups, as long as items have rows for them, shared memory lasts and, where the driver
// says, registers: queries and outputs of a head of 128 in 64 lanes with what passes by take some 160 (several
// lanes hold the same number of a query), and two SIMDs hold a group. Four subgroups fit in 32 KiB.
Choice choose_matrix(const Traits& traits, uint32_t head_dim, uint32_t group_heads, uint32_t item_tokens) {
  const uint32_t item_rows = item_tokens * group_heads;
  MatrixTile tile =
      has_many_registers(traits) ? kManyRegistersTile : MatrixTile{8, 1, has_small_lanes(traits) ? 16u : 32u};
  const uint32_t rows = tile.row_frags * traits.matrix_m;
  const auto spills = [&] {
    const uint32_t lane_registers = head_dim + 32, subgroups_simd = tile.subgroups / 2;
    return traits.simd_registers > 0 &&
           lane_registers * subgroups_simd * traits.subgroup_size > traits.simd_registers * 64;
  };
  while (tile.subgroups > 4 && (item_rows <= tile.subgroups / 2 * rows || spills() ||
                                shared_bytes(traits, tile, head_dim) > traits.shared_bytes))
    tile.subgroups /= 2;
  return {"paged_attention_matrix",
          tile.subgroups * traits.subgroup_size,
          {tile.subgroups, traits.matrix_m, traits.matrix_n, traits.matrix_k, tile.row_frags, tile.keys, group_heads},
          tile.subgroups * rows,
          true};
}

// The same for 16-bit pools where scores can stay in registers, as they lie in lanes as weights do. One group has a
// core to itself.
MatrixTile wide_tile(const Traits& traits, uint32_t head_dim) {
  return traits.is_cpu ? MatrixTile{2, 1, 16} : MatrixTile{8, 2, 2048 / head_dim};
}
// Matrices of a row of queries that stay in registers: with outputs of 128 numbers four take 160 of a lane's.
uint32_t wide_held(const Traits& traits, uint32_t head_dim) {
  return std::min(head_dim / traits.fragment.k, 4u);
}
// Twins: tiles and row_factors of shaders/paged_attention_wide.comp.
uint32_t wide_shared_bytes(const Traits& traits, uint32_t head_dim) {
  const MatrixTile tile = wide_tile(traits, head_dim);
  const uint32_t loose = head_dim / traits.fragment.k - wide_held(traits, head_dim);
  const uint32_t place = 2 * tile.keys * (head_dim / 8 + 1) * 16;
  const uint32_t queries = tile.row_frags * loose * tile.subgroups * traits.subgroup_size * 16;
  const uint32_t outputs = tile.subgroups * traits.fragment.m * (32 / 4 + 1) * 16;
  return std::max(place + queries, outputs) + tile.subgroups * tile.row_frags * traits.fragment.m * 4;
}
bool has_wide_kernel(const Traits& traits, uint32_t head_dim, KvDType dtype) {
  const Fragment& shape = traits.fragment;
  return !traits.cpu_kernels && shape.sums_as_factor && shape.m == shape.k &&
         shape.m * shape.k == 8 * traits.subgroup_size && (head_dim == 64 || head_dim == 128) &&
         (dtype == KvDType::kF16 || dtype == KvDType::kBF16) &&
         wide_shared_bytes(traits, head_dim) <= traits.shared_bytes;
}
Choice choose_wide(const Traits& traits, uint32_t head_dim, uint32_t group_heads, uint32_t item_tokens) {
  const Fragment& shape = traits.fragment;
  MatrixTile tile = wide_tile(traits, head_dim);
  const uint32_t rows = tile.row_frags * shape.m;
  while (tile.subgroups > 4 && item_tokens * group_heads <= tile.subgroups / 2 * rows) tile.subgroups /= 2;
  return {"paged_attention_wide",
          tile.subgroups * traits.subgroup_size,
          {tile.subgroups, shape.m, shape.n, shape.row_lanes, tile.row_frags, tile.keys, wide_held(traits, head_dim),
           group_heads},
          tile.subgroups * rows,
          true};
}

}  // namespace

uint32_t decode_works(const Traits& traits) {
  return has_decode_kernel(traits, 0) ? traits.num_cores * 2 : 0;
}

void set_prompt_tiles(const Traits& traits, Caps* caps) {
  if (traits.tier < Tier::kMatrix || !has_many_registers(traits)) return;
  const bool is_wide = has_wide_kernel(traits, 128, KvDType::kF16);
  const MatrixTile tile = is_wide ? wide_tile(traits, 128) : kManyRegistersTile;
  const uint32_t core_groups = is_wide ? 1 : 2;  // that registers hold
  caps->prompt_tile_rows = tile.subgroups * tile.row_frags * traits.matrix_m;
  caps->prompt_tiles = traits.num_cores * core_groups * caps->prompt_tile_rows / kPromptItemTokens;
}

Status record(Recorder& r, const PagedAttention& op) {
  const Resources& res = r.resources();
  const KvPool& pool = res.pools[op.kv_group];
  if (op.head_dim > 256 || op.head_dim % 8 != 0)
    return make_error(ErrorCode::kUnsupported,
                      "vulkan: paged_attention: expected head_dim in multiples of 8 up to 256, found {}", op.head_dim);
  const View qkv = r.tensor(op.qkv), out = r.tensor(op.out), data = pool.device.data[op.layer];
  const View scales = kv_has_scales(pool.group.dtype) ? pool.device.scales[op.layer] : data;
  const std::vector<uint32_t> shape = {op.head_dim, kv_constant(pool.group.dtype),
                                       static_cast<uint32_t>(r.desc(op.out).dtype), op.soft_cap > 0};
  // The group's own header and tables.
  constexpr uint64_t kHeaderBytes = kForwardHeaderWords * 4;
  const View inputs =
      res.forward_inputs.part(op.kv_group * kHeaderBytes, res.forward_inputs.bytes - op.kv_group * kHeaderBytes);
  const uint64_t group_bytes = uint64_t{res.config.slots_max} * res.config.blocks_row_max * 4;
  const View tables = res.tables.part(op.kv_group * group_bytes, group_bytes);
  constexpr uint32_t kNoItems = kForwardHeaderWords - 1;  // a header word that is always 0
  const auto push_for = [&](uint32_t count, uint32_t count2, uint32_t first, uint32_t first2) {
    Push push;
    for (const View& view : {qkv, out, inputs, tables, data, scales, res.partials, res.merge_arrivals}) push.add(view);
    push.add(op.num_heads).add(op.num_kv_heads).add(pool.group.block_tokens).add(res.config.blocks_row_max);
    push.add(count).add(count2).add(first).add(first2);
    push.add(op.scale * op.scales.k).add(op.window).add(op.soft_cap).add(op.scales.v);
    return push;
  };
  const uint32_t group_heads = op.num_heads / op.num_kv_heads, num_tokens = r.list().num_tokens;
  const View reads[] = {qkv, data, scales, tables}, writes[] = {out, res.partials};
  // Enough groups to fill the device; each walks the items from its own on.
  const uint32_t groups_max = r.traits().cpu_kernels ? 16 : r.traits().num_cores * 8;
  // Beside prompts few tokens may decode or be merged, and a group without work costs as much as a short one.
  const uint32_t merge_groups =
      r.traits().cpu_kernels ? groups_max : std::max(r.traits().num_cores * 32 / op.num_heads, 1u);
  const auto attend = [&](const Choice& choice, uint32_t items, uint32_t item_tokens, const Push& push,
                          std::span<const View> claimed) {
    std::vector<uint32_t> constants = shape;
    constants.insert(constants.end(), choice.constants.begin(), choice.constants.end());
    const uint32_t tiles = ceil_div(item_tokens * group_heads, choice.tile_rows);
    const uint32_t count = std::clamp(items, 1u, groups_max);
    const Groups groups =
        choice.items_last ? Groups{op.num_kv_heads, tiles, count} : Groups{count, op.num_kv_heads, tiles};
    r.dispatch({choice.shader, choice.group_size, constants}, push, groups, reads, claimed);
  };
  const auto merge = [&](bool prompt_only) {
    std::vector<uint32_t> constants = shape;
    constants.push_back(prompt_only);
    const View merge_reads[] = {res.partials};
    r.dispatch({"paged_attention_merge", r.traits().cpu_kernels ? 8u : 64u, constants},
               push_for(kFwdNumMerges, kNoItems, kFwdMerges, kNoItems),
               {std::min(num_tokens, merge_groups), op.num_heads}, merge_reads, writes);
  };
  const uint32_t prompt_tokens = std::min(kPromptItemTokens, num_tokens);
  const Choice any = choose(r.traits(), r.list(), op.head_dim);
  if (!has_decode_kernel(r.traits(), op.head_dim)) {
    attend(any, std::max(num_tokens, 16u), prompt_tokens,
           push_for(kFwdNumDecodeItems, kFwdNumPromptItems, kFwdDecodeItems, kFwdPromptItems), writes);
    merge(false);
    return {};
  }
  // Prompts first, so that rows that decode take what they leave idle. The two write different rows of out and
  // different partial results, so the second claims nothing.
  if (!r.list().decode_only) {
    const bool pairs = takes_pairs(r.traits(), r.list(), op.head_dim, pool.group.dtype);
    const uint32_t lanes = block_lanes(r.traits(), op.head_dim, pairs);
    const Choice prompt = has_wide_kernel(r.traits(), op.head_dim, pool.group.dtype)
                              ? choose_wide(r.traits(), op.head_dim, group_heads, prompt_tokens)
                          : has_matrix_kernel(r.traits(), op.head_dim)
                              ? choose_matrix(r.traits(), op.head_dim, group_heads, prompt_tokens)
                          : lanes > 0 ? choose_block(lanes, pairs)
                                      : any;
    attend(prompt, ceil_div(num_tokens, kPromptItemTokens) * 2 + kSplitPromptItemsMax / 4, prompt_tokens,
           push_for(kFwdNumPromptItems, kNoItems, kFwdPromptItems, kNoItems), writes);
  }
  const uint32_t works = std::max(decode_works(r.traits()) / op.num_kv_heads, 1u);
  attend(choose_decode(r.traits(), r.list(), op.head_dim, group_heads, pool.group.dtype),
         r.list().decode_only ? std::max(num_tokens * 8, works) : std::min(num_tokens * 8, 2 * works),
         kDecodeItemTokens, push_for(kFwdNumDecodeItems, kNoItems, kFwdDecodeItems, kNoItems),
         std::span(writes).first(r.list().decode_only ? 2 : 0));
  if (!r.list().decode_only) merge(true);
  return {};
}

}  // namespace llmrt::vulkan
