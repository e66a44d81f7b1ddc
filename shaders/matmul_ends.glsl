// What stands around the products of matmul_fragment and matmul_row: which rows of the weight make a tile of kM of them,
// and what becomes of its sums. With kActivate half of a tile are rows of gate, half the same rows of up, and out is
// activation(gate) * up in f16. With kRope the rows are heads of q, k and v, and a tile holds both numbers of its pairs: q
// goes to out and k to the pool turned, v to the pool as it is. With kLeavesNorm what would be out is added to the residual,
// and the norm of that is left for the matmul behind it to end (kNormEps).
//
// Needs activation.glsl, rope.glsl, the kernel's constants and the functions below.

layout(push_constant) uniform Push {
  Words x, weight;  // x: f16
  Floats bias, result;
  Words count;
  uint columns, row_words, num_rows;
  uint result_first, result_columns, norm_slot;
  // With kRope. With kLeavesNorm kv_slots is the residual, freqs the norm's weight, data what the next matmul reads.
  Ints positions, kv_slots;
  Floats freqs;
  Words data;
  uint num_heads, num_kv_heads, head_dim, block_tokens;
  float magnitude;
  Floats norms;  // twin: backends/vulkan/resources.h NormParts
};

// The factor of a norm is known once all groups of the matmul that leaves it are done. Until then the factor of the norm
// before it, in slot norm_slot of two, stands in for it, and kHeadroom keeps f16 from overflow unless the root mean square
// grows 65,504-fold in between (4,096 columns, all of it in one).
const float kHeadroom = 1.0 / 64.0;
const uint kSquaresFirst = 2 * kN;
const uint kTileQuads = kM / 4, kTileOutputs = kActivate || kRope != kNoRope ? kM / 2 : kM;

// What a kernel knows of row n of x: quad `quad` of the sums of a tile of the group; with kNormEps what they are multiplied
// by; with kLeavesNorm that quad of the residual and of the norm's weight times kHeadroom and the factor of the norm before.
vec4 sum_of(uint in_group, uint n, uint quad);
float factor_of(uint n);
vec4 residual_of(uint in_group, uint n, uint quad);
vec4 gain_of(uint in_group, uint n, uint quad);

vec4 total(uint in_group, uint n, uint quad) {
  vec4 all = sum_of(in_group, n, quad);
  return kNormEps > 0 ? all * factor_of(n) : all;
}

// Weight row of row `m` of a tile.
uint weight_row(uint tile, uint m) {
  if (kRope != kNoRope) {
    uint pairs = head_dim / 2u, first = tile * kTileOutputs, pair = first % pairs;
    return first / pairs * head_dim +
           (kRope == kInterleaved ? 2u * pair + m : m / kTileOutputs * pairs + pair + m % kTileOutputs);
  }
  uint outputs = kActivate ? num_rows / 2u : num_rows;
  return m / kTileOutputs * outputs + min(tile * kTileOutputs + m % kTileOutputs, outputs - 1u);
}

// Numbers m to m + 3 of a tile for row n of x; `in_group`: which of the group's tiles it is.
void leave_norm(uint tile, uint in_group, uint num_tiles, uint n, uint m) {
  uint quad = (n * result_columns + tile * kM + m) / 4u;
  vec4 sum = residual_of(in_group, n, m / 4u) + total(in_group, n, m / 4u);
  vec4 y = sum * gain_of(in_group, n, m / 4u);
  Vec4s(kv_slots).v[quad] = sum;
  Pairs(data).p[quad] = uvec2(pack16(y.xy, kF16), pack16(y.zw, kF16));
  float squares = dot(sum, sum);
  [[unroll]] for (uint d = 1; d < kM / 4; d *= 2) squares += subgroupShuffleXor(squares, d);
  if (m == 0u) norms.f[kSquaresFirst + n * num_tiles + tile] = squares;
}

void store(uint tile, uint in_group, uint n, uint m) {
  uint row = tile * kTileOutputs + m;
  vec4 all = total(in_group, n, m / 4u);
  if (kActivate) {
    if (row >= num_rows / 2u) return;
    vec4 up = total(in_group, n, m / 4u + kM / 8);
    [[unroll]] for (uint c = 0; c < 4; ++c) all[c] = activate(kActivation, all[c]) * up[c];
    Pairs(result).p[(n * result_columns + row) / 4u] = uvec2(pack16(all.xy, kF16), pack16(all.zw, kF16));
    return;
  }
  [[unroll]] for (uint c = 0; c < 4; ++c) {
    if (row + c >= num_rows) return;
    result.f[n * result_columns + result_first + row + c] = all[c] + (kBias ? bias.f[result_first + row + c] : 0.0);
  }
}

// Pair m; its neighbours are other lanes'.
void store_turned(uint tile, uint in_group, uint n, uint m) {
  uint pairs = head_dim / 2u, first = result_first / 2u + tile * kTileOutputs + m;
  uint head = first / pairs, pair = first % pairs;
  bool halves = kRope == kHalves;
  uint low_at = halves ? pair : 2u * pair, high_at = halves ? pair + pairs : 2u * pair + 1u;  // in the head
  uint low_row = halves ? m : 2u * m, high_row = halves ? m + kM / 2u : 2u * m + 1u;          // of the tile
  vec2 x = vec2(total(in_group, n, low_row / 4u)[low_row % 4u], total(in_group, n, high_row / 4u)[high_row % 4u]);
  if (kBias) x += vec2(bias.f[head * head_dim + low_at], bias.f[head * head_dim + high_at]);
  if (head < num_heads + num_kv_heads) {
    vec2 t = turn(uint(positions.i[n]), freqs.f[pair]) * magnitude;
    x = turned(x, t);
  }
  if (head < num_heads) {
    uint from = n * result_columns + head * head_dim;
    result.f[from + low_at] = x.x;
    result.f[from + high_at] = x.y;
    return;
  }
  vec2 next = subgroupShuffleXor(x, 1u);
  if (kv_slots.i[n] < 0) return;
  uint kv_slot = uint(kv_slots.i[n]), kv_head = head - num_heads, which = kv_head / num_kv_heads;
  uint vector = ((kv_slot / block_tokens * 2u + which) * num_kv_heads + kv_head % num_kv_heads) * block_tokens +
                kv_slot % block_tokens;
  if (!halves) {
    data.w[vector * pairs + pair] = pack16(x, kPoolDType);
  } else if (m % 2u == 0u) {
    data.w[(vector * head_dim + low_at) / 2u] = pack16(vec2(x.x, next.x), kPoolDType);
    data.w[(vector * head_dim + high_at) / 2u] = pack16(vec2(x.y, next.y), kPoolDType);
  }
}

// Behind a barrier: all that the group has.
void finish(uint first_tile, uint group_tiles, uint num_tiles, uint num_cols) {
  const uint run = kRope != kNoRope ? 1 : 4, runs = kTileOutputs / run;
  for (uint i = gl_LocalInvocationIndex; i < group_tiles * num_cols * runs; i += kSubgroups * kSubgroup) {
    uint m = i % runs * run, n = i / runs % num_cols, in_group = i / runs / num_cols, tile = first_tile + in_group;
    if (kRope != kNoRope)
      store_turned(tile, in_group, n, m);
    else if (kLeavesNorm)
      leave_norm(tile, in_group, num_tiles, n, m);
    else
      store(tile, in_group, n, m);
  }
}
