// How a workgroup brings tiles of kTileKeys keys and values from a paged pool: a lane has the octets that are its share of
// the next tile on their way, and the blocks of the one after. Needs paged.glsl, kTileKeys and kLanes.
const uint kOctets = kHeadDim / 8;
// 8-bit numbers are multiplied as they are; the scale of a key is applied to its score, that of a value to its weight (times
// kValueGain, so that f16 holds the weights as well as it would hold the values). Scales of blocks are applied before.
const bool kScaled = kBytes && !kBlockScales;
const float kUnit = kF8 ? 256.0 : 1.0;  // of a scaled number as f16 (f8_halves)
const float kValueGain = kScaled && !kF8 ? 128.0 : 1.0;

// Octets of keys and of the same keys' values.
const uint kPieces = (kTileKeys * kOctets + kLanes - 1) / kLanes;
uint next_block[kPieces];
uvec4 next_k[kPieces], next_v[kPieces];
vec2 next_scale[kPieces];

uvec2 to_halves(vec4 v) { return uvec2(packFloat2x16(f16vec2(v.xy)), packFloat2x16(f16vec2(v.zw))); }
uvec4 to_halves(vec4 a, vec4 b) { return uvec4(to_halves(a), to_halves(b)); }
// Numbers of four bytes as f16, in units of kUnit where there are scales to be applied later.
uvec2 byte_halves(uint word, float factor) {
  if (!kScaled) return to_halves(byte_values(word) * factor);
  return kF8 ? f8_halves(word) : to_halves(i8_values(word));
}

bool has_piece(uint j) {
  return kTileKeys * kOctets % kLanes == 0 || j * kLanes + gl_LocalInvocationIndex < kTileKeys * kOctets;
}
// Keys from key_end on are the last one again, so that every number is one that was written.
uint piece_key(uint j, uint key_first, uint key_end) {
  return min(key_first + (j * kLanes + gl_LocalInvocationIndex) / kOctets, key_end - 1u);
}
void fetch_blocks(Item item, uint block_shift, uint key_first, uint key_end) {
  [[unroll]] for (uint j = 0; j < kPieces; ++j)
    next_block[j] = tables.w[item.slot * blocks_row_max + (piece_key(j, key_first, key_end) >> block_shift)];
}
// 8 numbers a piece.
uvec4 fetch_octet(uint vector, uint octet) {
  if (kBytes) return uvec4(Pairs(data).p[vector * kOctets + octet], 0u, 0u);
  return Quads(data).q[vector * kOctets + octet];
}
void fetch_keys(uint kv_head, uint key_first, uint key_end) {
  [[unroll]] for (uint j = 0; j < kPieces; ++j) {
    uint octet = (j * kLanes + gl_LocalInvocationIndex) % kOctets;
    uint at = piece_key(j, key_first, key_end) & (block_tokens - 1u);  // blocks are of 16, 32 or 64
    uint k = (next_block[j] * 2u * num_kv_heads + kv_head) * block_tokens + at, v = k + num_kv_heads * block_tokens;
    if (!has_piece(j)) continue;
    next_k[j] = fetch_octet(k, octet);
    next_v[j] = fetch_octet(v, octet);
    if (kBytes) next_scale[j] = vec2(kv_scale(k, octet, 1.0), kv_scale(v, octet, v_scale));
  }
}

uvec4 octet_halves(uvec4 q, float factor) {
  if (kBytes) return uvec4(byte_halves(q.x, factor), byte_halves(q.y, factor));
  if (kKvDType == kKvF16) return q;
  return to_halves(vec4(unpack16(q.x, kKvDType), unpack16(q.y, kKvDType)),
                   vec4(unpack16(q.z, kKvDType), unpack16(q.w, kKvDType)));
}
