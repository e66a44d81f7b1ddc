// Every threshold of the host code that was measured rather than derived, by name. Measured on one device, and used on
// all: what the device is able to do is DeviceFacts, not this. Sizes that are part of a kernel (its tiles, its ring)
// stand beside the kernel.
#pragma once

#include <cstdint>

#include "core/attention/tuning.h"
#include "core/weights/encoding.h"

namespace llmrt::cuda {

struct Tuning {
  // ---- which matmul, by the rows of the list (docs/kernels/README.md)
  // --------------------------------------------------
  uint32_t vector_rows_max = 8;       // stream or vector, one tile of the matrix units. H200, 2026-11-23
  uint32_t decoded_rows_max = 256;    // quantised weights decoded by warpgroups; cuBLAS beyond. H200, 2026-11-23
  uint32_t skinny_rows_max = 64;      // quantised weights in registers; beyond, f16 for cuBLAS pays. H200, 2026-11-26
  uint32_t f16_copies_rows_min = 65;  // from here on copies in f16 are faster than the weights. H200, 2026-11-26
  // Rows up to which warps beat warpgroups in matmul_batch. H200, 2026-11-24
  uint32_t batch_warps_rows_max(Encoding encoding) const;

  // ---- geometry of matmuls -----------------------------------------------------------------------------------------
  uint32_t stream_two_tiles_slabs_min = 2;  // more slabs per block than this pay for loading 16 rows. H200, 2026-11-24
  uint32_t batch_stages_min = 2;            // per block. H200, 2026-11-24
  uint32_t batch_whole_percent = 95;        // so many of the blocks without a second tile are better. H200, 2026-11-24
  uint32_t decoded_extra_outs = 16;         // what reading x costs a block, in outputs. H200, 2026-11-23
  uint32_t skinny_blocks_sm = 6;            // of 2, 3, 4 and 6 the fastest. H200, 2026-11-22
  bool gated_makes_norm = false;            // of one row, as other matmuls do; not measured
  uint32_t gated_rows_min = 192;            // fewer are faster by cuBLAS and an activation. H200, 2026-11-26
  uint32_t gated_useful_eighths = 7;        // of the rows that it computes. H200, 2026-11-26

  // ---- other ops ---------------------------------------------------------------------------------------------------
  uint32_t norm_few_threads_rows_min = 65;  // more rows get fewer threads each. H200, 2026-11-22
  uint32_t heads_joined_tokens_min = 64;    // a warp then has several heads, which share angles. H200, 2026-11-23
  uint32_t decode_early_tokens_max = 8;     // the next kernel starts early behind so few tokens. H200, 2026-11-23
  uint32_t penalties_blocks_sm = 8;         // all start at once. H200, 2026-11-24
  uint32_t sampling_blocks_sm = 2;          // parts of sampled rows. H200, 2026-11-21
  uint32_t moves_blocks_sm = 2;             // of blocks between pools. H200, 2026-11-21

  // ---- experts -----------------------------------------------------------------------------------------------------
  uint32_t route_few_rows_max = 128;      // tiles of 16 rows; more are in tiles of 64. Not measured
  uint32_t route_blocks_sm = 1;           // parts of scores. Not measured
  uint32_t route_invariant_splits = 8;    // parts of a score's columns in batch-invariant lists
  uint32_t expert_steps_warp = 8;         // of 128 columns that a warp has of a tile. H200, 2026-11-29
  uint32_t expert_blocks_sm = 3;          // all start at once, where they have room. H200, 2026-11-29
  uint32_t expert_rounds_max = 6;         // of tiles, before the sums of several warps are added. H200, 2026-11-29
  uint32_t expert_shared_rounds_min = 6;  // a block; fewer are not shared out evenly. Not measured
  uint32_t expert_joined_rows_max = 4;    // rows whose sum over experts is made by one kernel. Not measured
  uint32_t expert_scan_max = 1024;        // routed rows that each block looks through. Not measured
  uint32_t expert_tiles_rows_min = 9;  // rows an expert, in the mean, that warpgroups are faster for. H200, 2026-11-29
  uint32_t expert_narrow_rows_max = 40;       // rows an expert, in the mean, that get tiles of 64. H200, 2026-11-29
  uint32_t expert_wide_rows_min = 96;         // rows an expert, in the mean, that get tiles of 256. H200, 2026-11-29
  uint64_t expert_scratch_bytes = 128 << 20;  // what experts' launches are cut for; more gains nothing. Not measured

  // ---- lists -------------------------------------------------------------------------------------------------------
  uint32_t graph_tokens_max = 512;       // larger steps hide their launches behind their own length. H200, 2026-11-21
  uint32_t programs_max = 480;           // all buckets of one model, with runs too, and some more
  uint64_t slice_bytes_max = 128 << 20;  // of weights in f16 for cuBLAS; larger ones gain nothing. H200, 2026-11-21

  // ---- work lists of attention (Caps::attention) -------------------------------------------------------------------
  uint32_t prompt_tiles_sm = 2;                                  // prompt works side by side. H200, 2026-11-21
  uint32_t decode_works_sm = 3, decode_works_sm_warpgroups = 2;  // decode works side by side. H200, 2026-11-23
  uint32_t decode_item_rows = 16;  // rows of a decode work in lists with runs: what the kernels hold in registers
  AttentionCosts attention_costs = {.prompt_split = 256,
                                    .prompt_runs = 256,
                                    .prompt_turns = 100,
                                    .prompt_merge = 256,
                                    .decode_round = 20,
                                    .decode_split_round = 125,
                                    .decode_merge = 20,
                                    .decode_partial = 3};  // H200, 2026-11-23
  uint32_t latent_split_keys = 32;                         // a tile's. Not measured
};

inline constexpr Tuning kTuning;

}  // namespace llmrt::cuda
