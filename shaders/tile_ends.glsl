// The end of kernels that sum tiles in registers (tile_sums.glsl), behind their w_tile, a word of which says who is last:
// with a byte more of shared memory a core would hold one group of matmul_tile less.
#define IS_LAST (w_tile[0].x != 0)
#define SET_LAST(last) w_tile[0].x = (last) ? 1 : 0
#include "arrival.glsl"

// Whether this workgroup has a tile's sums, of all splits.
bool join_splits(uint lane) {
  const uint kBlocks = kQuads * 4 * kQuads;
  uint splits = gl_NumWorkGroups.z, tile = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  if (splits == 1u) return true;
  uint first = (tile * splits + gl_WorkGroupID.z) * kBlocks * kLanes + lane;
  [[unroll]] for (uint b = 0; b < kBlocks; ++b) products.v[first + b * kLanes] = sums[b / kQuads][b % kQuads];
  if (!arrives_last(arrivals, tile, splits)) return false;
  clear_sums();
  for (uint split = 0; split < splits; ++split) {
    first = (tile * splits + split) * kBlocks * kLanes + lane;
    [[unroll]] for (uint b = 0; b < kBlocks; ++b) sums[b / kQuads][b % kQuads] += products.v[first + b * kLanes];
  }
  return true;
}

void write_sums(uint row_first, uint col_first, uint num_cols, uint row_quad, uint col_quad) {
  bool is_aligned = ((result_first | result_columns) & 3u) == 0u;
  [[unroll]] for (uint i = 0; i < kQuads; ++i) {
    uint n = row_first + (row_quad + 16u * i) * 4u;
    [[unroll]] for (uint c = 0; c < kQuads * 4; ++c) {
      uint t = col_first + (col_quad + c / 4 * kColLanes) * 4u + c % 4, to = t * result_columns + result_first + n;
      if (t >= num_cols) continue;
      vec4 sum = sums[c][i];
      if (kBias)
        [[unroll]] for (uint r = 0; r < 4; ++r) sum[r] += bias.f[result_first + min(n + r, num_rows - 1u)];
      if (is_aligned && n + 3u < num_rows) {
        Vec4s(result).v[to / 4u] = sum;
        continue;
      }
      [[unroll]] for (uint r = 0; r < 4; ++r)
        if (n + r < num_rows) result.f[to + r] = sum[r];
    }
  }
}
