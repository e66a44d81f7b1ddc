// A unit's numbers as f16, two to a pair: what matrix units multiply. Needs dequant.glsl.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

// Of quantised numbers a pair is made at a time, two bytes apart: the pairs of a vec4 are its numbers (0, 2) and (1, 3);
// of floats (0, 1) and (2, 3).
const bool kSplitPairs = !kIsFloat;

// f16 of 1024, twice: a byte b below it is the f16 of 1024 + b. A kernel may hide from the compiler that it is constant:
// an and with one constant and an xor with another are one instruction only where one of them is in a register.
uint f16_1024 = 0x64006400u;

f16vec2 pair(uint word, uint mask) { return unpackFloat2x16(word & mask ^ f16_1024); }

// Pairs of vec4 `i` of a unit's quants as they come: 1024 + quant, of high nibbles 16 times (64 + quant). Quants of q8_0 are
// then not below 0. Small floats are those of small_pair. Matrices with numbers that f16 does not hold, or NaN, have other
// kernels (weight_rows.h fits_f16).
const bool kIsNibbles = kEncoding == kEncQ4_0 || kEncoding == kEncQ4_1 || kEncoding == kEncQ4_K;
const float kRawZero = kEncoding == kEncQ8_0 ? 128.0 : 0.0;
void raw_pairs(Unit u, uint unit, uint i, out f16vec2 pairs[2]) {
  uint bytes = u.quants[i & 3u], side = i >> 2, mask = 0x00ff00ffu;
  if (kIsNibbles)
    mask = side == 0u ? 0x000f000fu : 0x00f000f0u;
  else if (kEncoding == kEncQ8_0)
    bytes ^= 0x80808080u;
  else if (kEncoding != kEncFP8)
    bytes = bytes >> 4u * side & 0x0f0f0f0fu;
  if (kIs5) bytes |= fifth_bits(u.upper.x >> 4u * i);
  if (kEncoding == kEncQ5_K) bytes |= (u.upper[i & 3u] >> (2u * (unit >> 1 & 3u) + side) & 0x01010101u) << 4;
  if (kEncoding == kEncQ6_K) bytes |= (u.upper[i & 3u] >> (2u * (unit >> 1 & 1u) + 4u * side) & 0x03030303u) << 4;
  [[unroll]] for (uint j = 0; j < 2; ++j)
    pairs[j] = kIsSmallFloat ? unpackFloat2x16(small_pair(bytes >> 8 * j)) : pair(bytes >> 8 * j, mask);
}

// What a unit's quants of up to 6 bits become numbers by, two sub-blocks: of low and of high nibbles. Number = (quant - zero)
// * factor * scale - minimum; of small floats, as they come, number * (scale + scale_rest).
struct Scaling {
  float16_t zero, scale, scale_rest;
  f16vec2 factors, minimum, minimum_rest;
};
Scaling scaling_of(Unit u, uint unit) {
  uint block = unit >> 3, chunk = unit >> 1 & 3u, side = unit & 1u;
  Scaling s;
  s.zero = float16_t(kEncoding == kEncQ6_K ? 32.0 : kHasMin || kIsK ? 0.0 : kIs5 ? 16.0 : 8.0);
  s.factors = f16vec2(1.0);
  s.minimum = s.minimum_rest = f16vec2(0.0);
  s.scale = float16_t(1.0);
  s.scale_rest = float16_t(0.0);
  if (kIsSmallFloat) {
    float exact = small_scale(u, unit) * kSmallFactor;
    // It has 7 bits, so that products with numbers of 4 bits are exact in f16.
    float first = uintBitsToFloat(floatBitsToUint(exact) & 0xfffe0000u);
    s.scale = float16_t(first);
    s.scale_rest = float16_t(exact - first);
  } else if (kIs45) {
    f16vec2 scales = unpackFloat2x16(u.scales.x);
    s.scale = kHasMin || (unit & 1u) == 0u ? scales.x : scales.y;
    if (kHasMin) s.minimum = f16vec2(-scales.y);
  } else if (kEncoding == kEncQ6_K) {
    f16vec2 scales = unpackFloat2x16(u.scales.z);
    s.scale = (block & 1u) == 0u ? scales.x : scales.y;
    int at = int((chunk & 1u) * 2u + side) * 8;
    s.factors = f16vec2(bitfieldExtract(int(u.scales.x), at, 8), bitfieldExtract(int(u.scales.y), at, 8));
  } else if (kIsK) {
    vec4 all = k_scales_mins(u.scales, chunk);
    s.scale = unpackFloat2x16(u.scales.x).x;
    s.factors = f16vec2(all.xy);
    vec2 exact = all.zw * unpackHalf2x16(u.scales.x).y;
    s.minimum = f16vec2(exact);
    s.minimum_rest = f16vec2(exact - vec2(s.minimum));
  }  // expand_vec4 has those of others
  return s;
}

// Pairs of vec4 `i` of a unit. Quants are exact in f16, their products with scales of 6 bits too; what is rounded is the
// number, which f32 would round to f16 alike, and with the minimum of a K block that, to twice f16's bits. `i` is known
// when compiled, and nothing of other vec4s is made; `sub_block` is the one whose scale counts. No function here returns
// early, nor calls dequant.glsl's that do: with unit_numbers in reach NVIDIA's compiler kept the sums of matmul_wide in
// memory (f16 too, which never gets there: 31 for 350 TFLOP/s).
void expand_vec4(Unit u, uint unit, uint i, uint sub_block, Scaling s, out f16vec2 pairs[2]) {
  if (kEncoding == kEncF16) {
    [[unroll]] for (uint j = 0; j < 2; ++j) pairs[j] = unpackFloat2x16(u.quants[(2u * i + j) & 3u]);
  } else if (kIsFloat) {
    vec4 w = unit_floats(u, i);
    pairs[0] = f16vec2(w.xy);
    pairs[1] = f16vec2(w.zw);
  } else {
    raw_pairs(u, unit, i, pairs);
    if (kEncoding == kEncQ8_0) {
      f16vec2 scales = unpackFloat2x16(u.scales.x);
      float16_t scale = (unit >> 1 & 1u) == 0u ? scales.x : scales.y;
      [[unroll]] for (uint j = 0; j < 2; ++j) pairs[j] = (pairs[j] - float16_t(1024.0 + kRawZero)) * scale;
    } else if (kIsSmallFloat) {
      [[unroll]] for (uint j = 0; j < 2; ++j) {
        precise f16vec2 rest = pairs[j] * s.scale_rest;  // else Mesa would add the parts of the scale up, in f16
        pairs[j] = kEncoding == kEncFP8 ? fma(pairs[j], f16vec2(s.scale), rest) : pairs[j] * s.scale;
      }
    } else {
      [[unroll]] for (uint j = 0; j < 2; ++j) {
        pairs[j] = kIsNibbles && i >= 4 ? pairs[j] * float16_t(0.0625) - (float16_t(64.0) + s.zero)
                                        : pairs[j] - (float16_t(1024.0) + s.zero);
        if (kIsK) pairs[j] *= s.factors[sub_block];
        pairs[j] *= s.scale;
        if (kHasMin || kEncoding == kEncQ4_K || kEncoding == kEncQ5_K) pairs[j] -= s.minimum[sub_block];
        if (kEncoding == kEncQ4_K || kEncoding == kEncQ5_K) pairs[j] -= s.minimum_rest[sub_block];
      }
    }
  }
}

// Makes of a unit, octet by octet, what first_octet expects of the next one.
void next_octet(inout Unit u) {
  const bool kNibbles = kUnitVecs == 8;
  u.quants = kNibbles ? uvec4(u.quants.zw, u.quants.xy >> 4) : u.quants.zwxy;
  if (kIs5) u.upper.x >>= 8;
  if (kEncoding == kEncQ5_K) u.upper = uvec4(u.upper.zw, u.upper.xy >> 1);
  if (kEncoding == kEncQ6_K) u.upper = uvec4(u.upper.zw, u.upper.xy >> 4);
}
// Pairs of octet `octet` of a unit of which next_octet has dropped those before.
void first_octet(Unit u, uint unit, uint octet, out f16vec2 pairs[4]) {
  Scaling s = scaling_of(u, unit);
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    f16vec2 two[2];
    expand_vec4(u, unit, i, octet >> 1, s, two);
    pairs[2 * i] = two[0];
    pairs[2 * i + 1] = two[1];
  }
}

void expand_pairs(Unit u, uint unit, out f16vec2 pairs[2 * kUnitsMaxVecs]) {
  Scaling s = scaling_of(u, unit);
  [[unroll]] for (uint i = 0; i < kUnitVecs; ++i) {
    f16vec2 two[2];
    expand_vec4(u, unit, i, i >> 2, s, two);
    pairs[2 * i] = two[0];
    pairs[2 * i + 1] = two[1];
  }
}

// The four numbers of a vec4's pairs in their order.
uvec2 quad_of(f16vec2 first, f16vec2 second) {
  if (kSplitPairs)
    return uvec2(packFloat2x16(f16vec2(first.x, second.x)), packFloat2x16(f16vec2(first.y, second.y)));
  return uvec2(packFloat2x16(first), packFloat2x16(second));
}

// Four numbers of x in the pairs of expand_pairs.
void pairs_of(uvec2 quad, out f16vec2 first, out f16vec2 second) {
  f16vec2 a = unpackFloat2x16(quad.x), b = unpackFloat2x16(quad.y);
  first = kSplitPairs ? f16vec2(a.x, b.x) : a;
  second = kSplitPairs ? f16vec2(a.y, b.y) : b;
}
