// What kernels share that sum a tile of weight rows (grid x) by rows of x (grid y) in registers: 16 x kColLanes invocations,
// each with kQuads x kQuads blocks of 4 x 4 sums, as far apart as those of all reach.
layout(push_constant) uniform Push {
  Words x, weight;
  Floats bias, result;
  Words count;
  uint columns, row_words, num_rows;
  uint result_first, result_columns;
};

const uint kLanes = 16 * kColLanes;
const uint kTileRows = 16 * 4 * kQuads, kTileCols = kColLanes * 4 * kQuads;

// An invocation's first four rows and columns. 8 x 4 invocations beside each other share what they read, those whose number
// differs in bit 0 the columns, in bit 1 the rows, as NVIDIA's CUTLASS has them (docs/performance.md says what it is worth).
uint row_quad_of(uint lane) { return (lane & 1u) + (lane >> 1 & 6u) + lane / (8u * kColLanes) * 8u; }
uint col_quad_of(uint lane) { return (lane >> 1 & 1u) + (lane >> 3 & 2u) + lane / 32u * 4u % kColLanes; }

vec4 sums[kQuads * 4][kQuads];  // by column, blocks of rows
void clear_sums() {
  [[unroll]] for (uint c = 0; c < kQuads * 4; ++c)
    [[unroll]] for (uint i = 0; i < kQuads; ++i) sums[c][i] = vec4(0);
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
