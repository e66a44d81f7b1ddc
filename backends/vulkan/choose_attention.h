// Which attention kernels walk the decode items, the prompt items and the merges of a step, and in what shapes.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/setting.h"
#include "core/backend/caps.h"
#include "core/ops/ops.h"

namespace llmrt::vulkan {

// What the choice depends on.
struct AttentionShape {
  uint32_t head_dim, num_heads, num_kv_heads;
  KvDType kv_dtype;
  DType out_dtype;
  bool soft_cap, sinks;
  uint32_t num_tokens;
  bool batch_invariant, decode_only, has_runs;
  bool prompts_alone = false;  // no decode items, and heads of out of another size

  uint32_t group_heads() const { return num_heads / num_kv_heads; }
};

// Which lists of items a launch walks: words of the forward inputs' header. A word that is always 0 is no list.
struct ItemLists {
  uint32_t counts[2], firsts[2];
};

struct AttentionLaunch : KernelChoice {
  ItemLists lists;
  bool merges = false;  // reads partial results alone
  bool claims = true;   // what it writes; else an earlier launch claimed it, and the two write different rows
};

// Kernels leave at once where a list is empty. Errors: unsupported.
Result<std::vector<AttentionLaunch>> choose_attention(const Target& target, const AttentionShape& shape);

// A kernel for items, before it is known how many. tile_rows: rows of an item that a group computes.
struct AttentionChoice {
  Kernel kernel;
  uint32_t tile_rows;
  bool items_last = false;  // the grid has items in z: the groups of a long item start together
};
// For prompt items alone, where the device has such a kernel; else the one for any item.
AttentionChoice choose_prompt(const Target& target, const AttentionShape& shape);
AttentionChoice choose_any_item(const Target& target, const AttentionShape& shape);

// Caps::attention.
AttentionTuning attention_tuning(const Target& target);
uint32_t decode_works(const Target& target);
// Sets prompt_tiles and prompt_tile_rows, where they are known.
void set_prompt_tiles(const Target& target, AttentionTuning* attention);

}  // namespace llmrt::vulkan
