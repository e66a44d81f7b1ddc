#include "backends/vulkan/choose_attention.h"

#include <algorithm>
#include <bit>

#include "backends/vulkan/kernels/paged_attention_decode.h"
#include "backends/vulkan/kernels/paged_attention_fragment.h"
#include "backends/vulkan/kernels/paged_attention_merge.h"
#include "core/base/checked_math.h"
#include "core/ops/step_inputs.h"

namespace llmrt::vulkan {
namespace {

constexpr uint32_t kNoItems = kForwardHeaderWords - 1;  // a header word that is always 0
constexpr ItemLists kAllItems{{kFwdNumDecodeItems, kFwdNumPromptItems}, {kFwdDecodeItems, kFwdPromptItems}};
constexpr ItemLists kPromptItems{{kFwdNumPromptItems, kNoItems}, {kFwdPromptItems, kNoItems}};
constexpr ItemLists kDecodeItems{{kFwdNumDecodeItems, kNoItems}, {kFwdDecodeItems, kNoItems}};
constexpr ItemLists kMerges{{kFwdNumMerges, kNoItems}, {kFwdMerges, kNoItems}};

bool has_decode_kernel(const Traits& traits, uint32_t head_dim) {
  return traits.tier >= Tier::kSubgroup && !traits.cpu_kernels && head_dim / 8 <= traits.subgroup_size;
}

// Where registers are few, a group of 8 subgroups would take a core alone. Shared memory holds values that subgroups
// merge.
uint32_t decode_subgroups(const Target& target, const AttentionShape& shape, uint32_t heads) {
  const Traits& traits = target.traits;
  const bool is_wide = shape.num_tokens <= target.tuning.decode_few_rows_max && !shape.batch_invariant &&
                       !traits.is_cpu && !has_small_simds(traits);
  uint32_t subgroups = is_wide ? target.tuning.decode_subgroups_few_rows : target.tuning.decode_subgroups;
  if (has_small_lanes(traits)) subgroups *= 2;  // as their batches are small
  while (subgroups > 1 && subgroups * heads * (shape.head_dim + 2) * 4 > traits.shared_bytes) subgroups /= 2;
  return subgroups;
}

// On matrix units: a tile at work, one on its way, queries and outputs fill a lane's registers.
bool has_fragment_kernel(const Traits& traits, uint32_t head_dim, KvDType dtype) {
  return traits.fragment.m > 0 && traits.fragment.m == traits.fragment.k && (head_dim == 64 || head_dim == 128) &&
         (dtype == KvDType::kF16 || dtype == KvDType::kI8 || dtype == KvDType::kF8 || dtype == KvDType::kF8Tensor);
}

// Rows that a group has registers for where it computes them by itself.
uint32_t decode_rows_max(const Target& target) {
  return has_small_lanes(target.traits)   ? target.traits.lane_registers / 32
         : has_small_simds(target.traits) ? target.tuning.decode_heads_max_small_simds
                                          : target.tuning.decode_heads_max;
}

// Which items may have several tokens. A batch-invariant list without runs has the same pipeline as one with them, as
// another need not round alike.
bool may_have_runs(const AttentionShape& shape) {
  return shape.has_runs || shape.batch_invariant;
}

AttentionChoice choose_fragment_decode(const Target& target, const AttentionShape& shape) {
  const Fragment& fragment = target.traits.fragment;
  const uint32_t rows = may_have_runs(shape) ? fragment.n : std::min(shape.group_heads(), fragment.n);
  const uint32_t subgroups = decode_subgroups(target, shape, fragment.n);
  return {make_kernel<PagedAttentionFragmentKernel>(subgroups * target.traits.subgroup_size,
                                                    {.head_dim = shape.head_dim,
                                                     .kv_dtype = kv_constant(shape.kv_dtype),
                                                     .out_dtype = static_cast<uint32_t>(shape.out_dtype),
                                                     .soft_cap = shape.soft_cap,
                                                     .sinks = shape.sinks,
                                                     .rows = rows,
                                                     .subgroups = subgroups,
                                                     .m = fragment.m,
                                                     .n = fragment.n,
                                                     .row_lanes = fragment.row_lanes,
                                                     .has_runs = may_have_runs(shape)}),
          rows};
}

AttentionChoice choose_decode(const Target& target, const AttentionShape& shape) {
  const Traits& traits = target.traits;
  if (has_fragment_kernel(traits, shape.head_dim, shape.kv_dtype)) return choose_fragment_decode(target, shape);
  const bool has_runs = shape.has_runs && !shape.batch_invariant;
  const uint32_t rows_max = decode_rows_max(target);
  const uint32_t rows = has_runs ? rows_max : std::min(shape.group_heads(), rows_max);
  const uint32_t subgroups = decode_subgroups(target, shape, rows);
  const Tuning& tuning = target.tuning;
  const uint32_t batch = has_small_lanes(traits) || has_small_simds(traits) ? tuning.decode_batch_few_registers
                         : rows <= 4                                        ? tuning.decode_batch_4_heads
                                                                            : tuning.decode_batch_more_heads;
  const uint32_t merge_batch =
      has_small_lanes(traits) ? tuning.decode_merge_batch_small_lanes : tuning.decode_merge_batch;
  return {make_kernel<PagedAttentionDecodeKernel>(subgroups * traits.subgroup_size,
                                                  {.head_dim = shape.head_dim,
                                                   .kv_dtype = kv_constant(shape.kv_dtype),
                                                   .out_dtype = static_cast<uint32_t>(shape.out_dtype),
                                                   .soft_cap = shape.soft_cap,
                                                   .sinks = shape.sinks,
                                                   .rows = rows,
                                                   .key_lanes = std::bit_ceil(shape.head_dim / 8),
                                                   .subgroups = subgroups,
                                                   .batch = batch,
                                                   .merge_batch = merge_batch,
                                                   .has_runs = may_have_runs(shape)}),
          rows};
}

// Enough groups to fill the device; each walks the items from its own on.
uint32_t groups_max(const Target& target) {
  return target.traits.cpu_kernels ? target.tuning.attention_cpu_groups
                                   : target.traits.num_cores * target.tuning.attention_groups_core;
}

AttentionLaunch launch_of(const Target& target, const AttentionShape& shape, AttentionChoice choice, uint32_t items,
                          uint32_t item_tokens, const ItemLists& lists) {
  const uint32_t tiles = ceil_div(item_tokens * shape.group_heads(), choice.tile_rows);
  const uint32_t count = std::clamp(items, 1u, groups_max(target));
  AttentionLaunch launch;
  launch.kernel = std::move(choice.kernel);
  launch.groups =
      choice.items_last ? Groups{shape.num_kv_heads, tiles, count} : Groups{count, shape.num_kv_heads, tiles};
  launch.lists = lists;
  return launch;
}

// In a step with prompts few tokens may need a merge, and a group without work costs as much as a short one.
AttentionLaunch choose_merge(const Target& target, const AttentionShape& shape, bool prompt_only) {
  const bool is_cpu = target.traits.cpu_kernels;
  const uint32_t most = is_cpu
                            ? groups_max(target)
                            : std::max(target.traits.num_cores * target.tuning.merge_groups_core / shape.num_heads, 1u);
  AttentionLaunch launch;
  launch.kernel =
      make_kernel<PagedAttentionMergeKernel>(is_cpu ? 8 : 64, {.head_dim = shape.head_dim,
                                                               .kv_dtype = kv_constant(shape.kv_dtype),
                                                               .out_dtype = static_cast<uint32_t>(shape.out_dtype),
                                                               .soft_cap = shape.soft_cap,
                                                               .sinks = shape.sinks,
                                                               .prompt_only = prompt_only});
  launch.groups = {std::min(shape.num_tokens, most), shape.num_heads};
  launch.lists = kMerges;
  launch.merges = true;
  return launch;
}

// As many rows as the decode kernel has in a group, or computes beside each other for nothing: columns of matrices,
// lanes or a tile's rows. A batch-invariant list of the kernel that has neither has as many rows as heads, so that a
// token by itself takes no longer.
void set_item_rows(const Target& target, AttentionTuning* attention) {
  constexpr uint32_t kAnyItemRows = 8;  // of the kernels for any item: lanes, or the smallest tile's
  const Traits& traits = target.traits;
  const bool fills_matrices = has_fragment_kernel(traits, 128, KvDType::kF16);
  if (has_decode_kernel(traits, 0) && !fills_matrices) {
    attention->decode_item_rows = decode_rows_max(target);
    return;
  }
  attention->decode_item_rows = fills_matrices ? traits.fragment.n : kAnyItemRows;
  attention->invariant_item_rows = attention->decode_item_rows;
}

}  // namespace

AttentionTuning attention_tuning(const Target& target) {
  AttentionTuning attention;
  attention.costs = target.tuning.attention_costs;
  attention.latent_split_keys = target.tuning.latent_split_keys;
  attention.splits_prompts = !target.traits.is_cpu;
  attention.decode_works = decode_works(target);
  set_item_rows(target, &attention);
  set_prompt_tiles(target, &attention);
  return attention;
}

uint32_t decode_works(const Target& target) {
  return has_decode_kernel(target.traits, 0) ? target.traits.num_cores * target.tuning.decode_works_core : 0;
}

Result<std::vector<AttentionLaunch>> choose_attention(const Target& target, const AttentionShape& shape) {
  if (shape.head_dim > 256 || shape.head_dim % 8 != 0)
    return make_error(ErrorCode::kUnsupported,
                      "vulkan: paged_attention: expected head_dim in multiples of 8 up to 256, found {}",
                      shape.head_dim);
  const uint32_t num_tokens = shape.num_tokens, prompt_tokens = std::min(kPromptItemTokens, num_tokens);
  if (!has_decode_kernel(target.traits, shape.head_dim))
    return std::vector<AttentionLaunch>{
        launch_of(target, shape, choose_any_item(target, shape), std::max(num_tokens, 16u), prompt_tokens,
                  shape.prompts_alone ? kPromptItems : kAllItems),
        choose_merge(target, shape, false)};
  const uint32_t prompt_items = ceil_div(num_tokens, kPromptItemTokens) * 2 + kSplitPromptItemsMax / 4;
  const auto prompts = [&] {
    return launch_of(target, shape, choose_prompt(target, shape), prompt_items, prompt_tokens, kPromptItems);
  };
  if (shape.prompts_alone) return std::vector<AttentionLaunch>{prompts(), choose_merge(target, shape, true)};
  const uint32_t works = std::max(decode_works(target) / shape.num_kv_heads, 1u);
  const uint32_t decode_items =
      shape.decode_only ? std::max(num_tokens * 8, works) : std::min(num_tokens * 8, 2 * works);
  AttentionLaunch decode = launch_of(target, shape, choose_decode(target, shape), decode_items, 1, kDecodeItems);
  if (shape.decode_only) return std::vector<AttentionLaunch>{decode};
  // Prompts first, so that rows that decode take what they leave idle. The two write different rows of out and
  // different partial results.
  decode.claims = false;
  return std::vector<AttentionLaunch>{prompts(), decode, choose_merge(target, shape, true)};
}

}  // namespace llmrt::vulkan
