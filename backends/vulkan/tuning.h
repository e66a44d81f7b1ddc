// Every measured threshold by which a kernel is chosen, by name, with the device and the date of the measurement.
// "Twin" constants that must match a shader, limits of the API and plain group sizes are not here.
#pragma once

#include <cstdint>

#include "backends/vulkan/traits.h"
#include "core/attention/tuning.h"
#include "core/weights/encoding.h"

namespace llmrt::vulkan {

// A tile of matmul_matrix: weight rows by rows of x, of a workgroup and of a subgroup; slices of the columns, and steps
// whose loads are under way.
struct MatrixTile {
  uint32_t rows, cols, part_rows, part_cols, slices = 1, ahead = 1;
};
// A tile for many rows, with the time that it takes relative to the first one; 0: never chosen.
struct LargeTile {
  MatrixTile tile;
  double cost, quantized_cost;
};
// A tile of paged_attention_matrix and _wide: a subgroup owns row_frags matrices of rows.
struct AttentionTile {
  uint32_t subgroups, row_frags, keys;
};

// matmul_vector: weight rows of a team, and units of each that a lane has in flight.
struct VectorShape {
  uint32_t team_rows, unroll;
};
// matmul_tile, matmul_pairs, matmul_dots: how many invocations share x's rows, and blocks of 4 x 4 sums that each has
// both ways.
struct SumTile {
  uint32_t col_lanes, quads;

  uint32_t weight_rows() const { return 64 * quads; }
  uint32_t x_rows() const { return 4 * col_lanes * quads; }
  uint32_t shared_bytes() const { return (weight_rows() + x_rows()) * 32 * 4; }  // twin: shaders/matmul_tile.comp
  uint32_t core_groups() const { return (quads > 1 ? 16u : 32u) / col_lanes; }   // that registers hold
};
// matmul_batch: subgroups of a group, matrices of weight rows of each, columns of a lane in a step (0: one unit),
// groups of a core; and matrices of rows of x (0: as many as the rows make).
struct BatchShape {
  uint32_t subgroups, parts, lane_columns, core_groups, matrices = 0;

  uint32_t tile_rows(const Traits& traits) const { return subgroups * parts * traits.fragment.m; }
};
// matmul_wide: subgroups of a group, matrices of weight rows and of rows of x of each.
struct WideShape {
  uint32_t subgroups, parts, matrices;

  uint32_t tile_rows(const Traits& traits) const { return subgroups * parts * traits.fragment.m; }
  uint32_t tile_cols(const Traits& traits) const { return matrices * traits.fragment.n; }
};

// expert_fragment: matrices of rows of x, and up to how many rows an expert, in the mean of all experts.
struct ExpertMatrices {
  uint32_t matrices, mean_rows_max;
};

struct Tuning {
  // ---- matmul_vector. NVIDIA H200, 2026-11-21, one row of x: f16 2,638 GB/s with 1 row and 8 units a lane (4 x 1:
  // 2,153), q4_0 is best with 2 x 2.
  VectorShape vector_float{1, 8}, vector_quantized{2, 2};  // up to two rows of x
  VectorShape vector_4_rows{4, 1}, vector_more_rows{2, 1};
  // AMD GCN and Intel, 2026-11-23, by the compilers' figures, not measured: no more than leave a SIMD four subgroups,
  // which with two units a lane have several times the bytes under way that such memories need. Intel has
  // lane_registers / 64 rows of quants, or of more than two rows of x.
  VectorShape vector_small_simds_quantized{2, 1}, vector_small_lanes_float{1, 4};
  // Most rows of x for which it beats tiles. NVIDIA H200, 2026-11-27, on tiers T0 to T2; with packed f16 and bytes
  // tiles win from fewer rows on. On matrix units matmul_matrix wins from 4 rows on.
  uint32_t vector_rows_max = 8;
  uint32_t vector_packed_quantized_rows_max = 7, vector_packed_rows_max = 6;
  uint32_t vector_dots_rows_max = 4;
  uint32_t vector_rows_max_beside_matrix = 3;

  // ---- experts. NVIDIA H200, 2026-11-29, 128 experts of [768, 2048], 8 a row. expert_vector, not measured: outputs of
  // a team, most rows of an item; of a router's many rows more.
  uint32_t expert_vector_outputs = 2, expert_vector_cols = 4, router_vector_cols = 8, router_many_rows = 64;
  // expert_fragment: matrices of rows of an item, and mean rows of an expert up to which it has so many; above the last
  // one expert_matrix wins. Subgroups of a group, and the least steps of one; subgroups of a group that has all experts
  // of one row.
  ExpertMatrices expert_matrices[2] = {{1, 8}, {4, 24}};
  uint32_t expert_fragment_wide_mean_rows_max = 12;  // of 8 bits a weight and more
  uint32_t expert_subgroups = 4, expert_subgroup_steps_min = 3, expert_join_subgroups = 16;
  // Lavapipe: a processor's compiler takes minutes over more.
  uint32_t cpu_expert_matrices_max = 2, cpu_expert_subgroups = 2;
  // expert_matrix: up to so many rows an expert, and above.
  uint32_t expert_tile_mean_rows_max = 64;
  MatrixTile expert_tile{256, 64, 32, 32}, expert_tile_more_rows{128, 128, 32, 64};
  MatrixTile expert_small_tile{64, 32, 16, 16};  // other devices, not measured

  // ---- matmul_matrix. NVIDIA H200, 2026-11-22: times rise in waves as if groups of a multiprocessor had some 48 KB of
  // shared memory in all, so tiles of few rows are small enough for two groups. A multiprocessor holds one group of the
  // large tiles; one half as large again takes 1.35 times as long, and 1.22 times where rows of x are added and weights
  // are expanded for more of them.
  MatrixTile matrix_tile_16{64, 16, 16, 16, 1, 2}, matrix_tile_32{128, 32, 16, 32, 1, 2};
  MatrixTile matrix_tile_64{128, 64, 32, 32, 1, 2};
  LargeTile matrix_large_tiles[3] = {
      {{128, 128, 32, 64}, 1, 1}, {{192, 128, 48, 64}, 1.35, 0}, {{128, 192, 64, 48}, 1.35, 1.22}};
  // Intel lanes of 128 registers, 2026-11-23, by the compiler's figures, not measured: small parts, so that nothing
  // spills.
  MatrixTile matrix_small_tile_16{64, 16, 16, 8}, matrix_small_tile_32{128, 32, 16, 16};
  MatrixTile matrix_small_tile_64{128, 64, 16, 16};

  // ---- matmul_tile, matmul_pairs, matmul_dots. NVIDIA H200, 2026-11-27: a split has at least split_columns_min
  // columns; four blocks of sums read half as much a product, where lanes are known to have registers for them (some
  // 210).
  uint32_t sums_split_columns_min = 256;
  SumTile sums_16_rows{4, 1}, sums_32_rows{4, 2}, sums_more_rows{8, 2}, sums_invariant{16, 1};
  // Few invocations have much to store each, for which other lanes have no registers (AMD GCN, Intel, 2026-11-27, by
  // the compilers' figures).
  SumTile sums_small_32_rows{8, 1}, sums_small_more_rows{16, 1};

  // ---- matmul_lanes. Lavapipe on a server CPU, 2026-11-24: rows of x that share a lane, and weight rows of a lane.
  // More rows need more registers than there are, but share more of what x costs.
  uint32_t lanes_cols_max = 4, lanes_rows_one_col = 8, lanes_rows = 2;

  // ---- matmul_fragment, matmul_row: one matrix of rows of x. NVIDIA H200, 2026-11-23; 2026-11-27: matmul_batch wins
  // from 4 rows of 16-bit weights on.
  uint32_t few_float_rows_max = 3;
  uint32_t few_subgroups = 8, few_subgroups_few_groups = 16, few_subgroups_many_groups = 4;
  uint32_t few_groups_few_per_core = 2, few_groups_many_per_core = 8;
  // matmul_row. NVIDIA H200, 2026-11-25.
  uint32_t row_subgroups_max = 16, row_q8_0_subgroups_max = 20;
  // Lavapipe, 2026-11-25: a processor's compiler takes minutes over more subgroups.
  uint32_t cpu_few_subgroups = 2, cpu_row_subgroups_max = 4;

  // ---- matmul_batch. NVIDIA H200 and H100, 2026-11-23 to 26, where registers and 48 KB of shared memory hold
  // core_groups groups. Most matrices of rows of x in a tile; most tiles of rows, in halves: matmul_wide wins above.
  uint32_t batch_matrices_max = 8;
  uint32_t batch_quantized_half_tiles_max = 8, batch_float_half_tiles_max = 7;
  uint32_t batch_steps_min = 4;     // of a group
  uint32_t batch_whole_share = 32;  // tiles exceed the weight by at most 1 / so much
  // By matrices of rows of x; "k": also q8_0 up to four. Sixteen subgroups of a core hide what decoding waits for.
  BatchShape batch_2_quantized{8, 1, 64, 2}, batch_2_float{8, 1, 32, 2};
  BatchShape batch_k[3] = {{8, 1, 32, 2}, {16, 1, 32, 1}, {12, 1, 32, 1}};
  uint32_t batch_k_first_matrices_max = 6;  // of the first of batch_k
  BatchShape batch_3_q4_0{8, 1, 64, 2}, batch_4_q4_0{8, 1, 32, 2};
  // Two matrices of weight rows halve the reading of x. With a tile for each core three groups of it have enough steps.
  BatchShape batch_4_q4_0_many_tiles{4, 2, 32, 3};
  BatchShape batch_4_float{8, 1, 32, 2}, batch_6_float{8, 1, 16, 2};
  BatchShape batch_6{4, 2, 32, 2}, batch_more{8, 2, 32, 1};
  // Lavapipe, 2026-11-25: a processor's compiler takes minutes over more.
  BatchShape cpu_batch{2, 1, 0, 2, 2};

  // ---- matmul_wide. NVIDIA H200, 2026-11-24: groups of a core; the share of groups that may idle, in eighths, where
  // the others then have no parts of two tiles.
  WideShape wide{4, 4, 8};  // a subgroup's sums take half of its registers
  uint32_t wide_core_groups = 2, wide_idle_eighths = 1;
  WideShape cpu_wide{2, 2, 2};  // Lavapipe, 2026-11-25: a processor's compiler takes minutes over more
  // From this many rows of x on quantised weights are multiplied as f16. Written out in each step: NVIDIA H200,
  // 2026-11-26.
  uint32_t halves_rows_min = 1024, halves_k_rows_min = 320;
  // With a copy in f16: NVIDIA H100, 2026-11-27.
  uint32_t copies_rows_min = 320, copies_q8_0_rows_min = 256, copies_k_rows_min = 128;
  uint32_t halves_slice_tiles_min = 4;  // room for that many tiles at least, else weights stay as they are

  // ---- rms_norm. NVIDIA H200, 2026-11-25: vec4s that an invocation has under way while it adds up parts.
  uint32_t norm_parts_quads_max = 16;

  // ---- paged_attention. NVIDIA H200, 2026-11-22: query heads that a decode group keeps in registers; AMD GCN,
  // 2026-11-23, by the compiler's figures: 4. Intel: lane_registers / 32; two heads spill a little on lanes of 64
  // registers, but by the compiler's cycles one at a time takes 1.7 times as long.
  uint32_t decode_heads_max = 8, decode_heads_max_small_simds = 4;
  // One or two rows leave most of a device idle whatever their splits. NVIDIA H200, 2026-11-23.
  uint32_t decode_subgroups = 4, decode_subgroups_few_rows = 8, decode_few_rows_max = 2;
  // Keys under way in a decode group, with up to four heads and with more, whose queries and values leave fewer
  // registers; where registers are few (AMD GCN, Intel, 2026-11-23, by the compilers' figures) one. Partial results
  // under way.
  uint32_t decode_batch_4_heads = 4, decode_batch_more_heads = 2, decode_batch_few_registers = 1;
  uint32_t decode_merge_batch = 8, decode_merge_batch_small_lanes = 2;
  // What splits cost, in keys. NVIDIA H200, 2026-11-23.
  AttentionCosts attention_costs = {.prompt_split = 256,
                                    .prompt_runs = 256,
                                    .prompt_turns = 100,
                                    .prompt_merge = 256,
                                    .decode_round = 20,
                                    .decode_split_round = 125,
                                    .decode_merge = 20,
                                    .decode_partial = 3};
  uint32_t latent_split_keys = 16;                                // two tiles. NVIDIA H200, 2026-11-30
  uint32_t decode_works_core = 2;                                 // items x KV heads that a core computes at a time
  uint32_t attention_groups_core = 8, attention_cpu_groups = 16;  // most groups of a dispatch, in items
  uint32_t merge_groups_core = 32;                                // workgroups of the merge, in heads
  // Prompts. NVIDIA H200, 2026-11-22: 255 registers a lane hold two matrices of rows for each subgroup.
  AttentionTile prompt_many_registers{4, 2, 16}, prompt_other{8, 1, 32};
  AttentionTile prompt_long_heads{8, 1, 16};  // of more than 128 numbers, with as many registers. Not measured
  uint32_t prompt_small_lanes_keys = 16;
  uint32_t prompt_core_groups = 2;
  // paged_attention_wide. NVIDIA H200, 2026-11-27: one group has a core to itself; matrices of a row of queries that
  // stay in registers (with outputs of 128 numbers four take 160 of a lane's); keys of a tile times the head's numbers.
  uint32_t wide_prompt_subgroups = 8, wide_prompt_row_frags = 2, wide_prompt_numbers = 2048, wide_prompt_held_max = 4;
  AttentionTile cpu_wide_prompt{2, 1, 16};
  // paged_attention_lanes. Lavapipe on a server CPU, 2026-11-24: prompts fill two vectors of rows from this many tokens
  // on.
  uint32_t lanes_two_vecs_tokens_min = 64;
};

// The figures in use. A device on which nothing was measured takes those of the nearest one; choose_*.cpp say which.
const Tuning& default_tuning();

// What choosing looks at besides the op and its shapes.
struct Target {
  const Traits& traits;
  const Tuning& tuning;
};

// Rows of x that matmul_vector multiplies where there are no matrix units.
uint32_t vector_rows_max(const Target& target, bool quantized);
// The least number of rows of x for which a matrix of this encoding is multiplied as f16, from a copy or written out in
// each step.
uint32_t halves_rows_min(const Tuning& tuning, Encoding encoding, bool has_copy);

}  // namespace llmrt::vulkan
