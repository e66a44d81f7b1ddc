// What kernels share that sum a tile of weight rows (grid x) by rows of x (grid y) in registers: 16 x kColLanes invocations,
// each with kQuads x kQuads blocks of 4 x 4 sums, as far apart as those of all reach. Where tiles are few the columns are
// split among workgroups (grid z): each leaves its sums in `products`, and the last to arrive adds them in their order.

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Products { queuefamilycoherent vec4 v[]; };

layout(push_constant) uniform Push {
  Words x, weight;
  Floats bias, result;
  Words count;
  Products products;  // [tile][split][block of an invocation's sums][invocation]
  Words arrivals;     // [tile] splits that are done; 0 before and after
  uint columns, row_words, num_rows;
  uint result_first, result_columns;
};

const uint kLanes = 16 * kColLanes;
const uint kTileRows = 16 * 4 * kQuads, kTileCols = kColLanes * 4 * kQuads;

// An invocation's first four rows and columns. 8 x 4 invocations beside each other share what they read, those whose number
// differs in bit 0 the columns, in bit 1 the rows, as NVIDIA's CUTLASS has them (docs/kernels/matmul_plain_vulkan.md).
uint row_quad_of(uint lane) { return (lane & 1u) + (lane >> 1 & 6u) + lane / (8u * kColLanes) * 8u; }
uint col_quad_of(uint lane) { return (lane >> 1 & 1u) + (lane >> 3 & 2u) + lane / 32u * 4u % kColLanes; }

vec4 sums[kQuads * 4][kQuads];  // by column, blocks of rows
void clear_sums() {
  [[unroll]] for (uint c = 0; c < kQuads * 4; ++c)
    [[unroll]] for (uint i = 0; i < kQuads; ++i) sums[c][i] = vec4(0);
}

// The first of a workgroup's steps; of the next one, the end of them.
uint split_first(uint num_steps, uint split) { return num_steps * split / gl_NumWorkGroups.z; }
