// What the core has to know of a backend's attention kernels to cut work for them. Each backend fills it beside its
// kernels, from its own table of measured numbers. Plain data.
#pragma once

#include <cstdint>

namespace llmrt {

// What splitting costs, in keys that a work reads while the device is full of works. 0 = nothing.
struct AttentionCosts {
  // A split of a prompt item beside its keys, merging included. What runs (prompt_splits.h) take beside that: as
  // workgroups begin one by one, or in turns, and where without runs there would be nothing to merge.
  double prompt_split = 0, prompt_runs = 0, prompt_turns = 0, prompt_merge = 0;
  // A full round of decode works beside its keys, of whole rows and of splits; merging a row, and each of its partial
  // results.
  double decode_round = 0, decode_split_round = 0, decode_merge = 0, decode_partial = 0;
};

struct AttentionTuning {
  uint32_t prompt_tiles = 512;  // prompt items x query heads that are computed at a time
  // Rows, query tokens x query heads of a KV head, that a workgroup computes where splits of different lengths may fill
  // the device; 0: a round's items should take equally long. Workgroups begin one by one, or, with prompt_turns, each
  // has an item of each round, that of the same place from the list's end.
  uint32_t prompt_tile_rows = 0;
  bool prompt_turns = false;
  bool splits_prompts = true;
  uint32_t decode_works = 0;  // decode items x KV heads that are computed at a time; 0: rows are split by their length
  uint32_t latent_split_keys = 64;  // a split's fewest keys in a latent group
  // Query tokens x query heads of a KV head that a decode work computes with each key that it reads: so many tokens of
  // a row are one item (kDecodeItemTokens at most). 0: each is an item of its own.
  uint32_t decode_item_rows = 0;
  uint32_t invariant_item_rows = 0;  // the same in batch-invariant steps
  AttentionCosts costs;
};

}  // namespace llmrt
