// A unit's numbers as f16, two to a pair: what matrix units multiply. Needs dequant.glsl.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

// Of quantised numbers a pair is made at a time, two bytes apart: the pairs of a vec4 are its numbers (0, 2) and (1, 3);
// of floats (0, 1) and (2, 3).
const bool kSplitPairs = !kIsFloat;

// f16 of 1024, twice: a byte b below it is the f16 of 1024 + b. A kernel may hide from the compiler that it is constant:
// an and with one constant and an xor with another are one instruction only where one of them is in a register.
uint f16_1024 = 0x64006400u;

f16vec2 pair(uint word, uint mask) { return unpackFloat2x16(word & mask ^ f16_1024); }

// Quants are exact in f16, their products with scales of 6 bits too; what is rounded is the number, which f32 would round
// to f16 alike, and with the minimum of a K block that, to twice f16's bits.
void expand_pairs(Unit u, uint unit, out f16vec2 pairs[2 * kUnitsMaxVecs]) {
  if (kEncoding == kEncF16) {
    [[unroll]] for (uint i = 0; i < 4; ++i) pairs[i] = unpackFloat2x16(u.quants[i]);
    return;
  }
  if (kIsFloat) {
    vec4 w[kUnitsMaxVecs];
    expand_unit(u, unit, w);
    [[unroll]] for (uint i = 0; i < kUnitVecs; ++i) {
      pairs[2 * i] = f16vec2(w[i].xy);
      pairs[2 * i + 1] = f16vec2(w[i].zw);
    }
    return;
  }
  if (kEncoding == kEncQ8_0) {
    f16vec2 scales = unpackFloat2x16(u.scales.x);
    float16_t scale = (unit >> 1 & 1u) == 0u ? scales.x : scales.y;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      uint q = u.quants[i] ^ 0x80808080u;
      pairs[2 * i] = (pair(q, 0x00ff00ffu) - float16_t(1152.0)) * scale;
      pairs[2 * i + 1] = (pair(q >> 8, 0x00ff00ffu) - float16_t(1152.0)) * scale;
    }
    return;
  }
  // Two sub-blocks, of low and of high nibbles: number = (quant - zero) * factor * scale - minimum.
  uint block = unit >> 3, chunk = unit >> 1 & 3u, side = unit & 1u;
  float16_t zero = float16_t(kEncoding == kEncQ6_K ? 32.0 : kHasMin || kIsK ? 0.0 : kIs5 ? 16.0 : 8.0), scale;
  f16vec2 factors = f16vec2(1.0), minimum = f16vec2(0.0), minimum_rest = f16vec2(0.0);
  if (kIs45) {
    f16vec2 scales = unpackFloat2x16(u.scales.x);
    scale = kHasMin || (unit & 1u) == 0u ? scales.x : scales.y;
    if (kHasMin) minimum = f16vec2(-scales.y);
  } else if (kEncoding == kEncQ6_K) {
    f16vec2 scales = unpackFloat2x16(u.scales.z);
    scale = (block & 1u) == 0u ? scales.x : scales.y;
    int s = int((chunk & 1u) * 2u + side) * 8;
    factors = f16vec2(bitfieldExtract(int(u.scales.x), s, 8), bitfieldExtract(int(u.scales.y), s, 8));
  } else {
    vec2 a = k_scale_min(u.scales, 2u * chunk), b = k_scale_min(u.scales, 2u * chunk + 1u);
    scale = unpackFloat2x16(u.scales.x).x;
    factors = f16vec2(a.x, b.x);
    vec2 exact = vec2(a.y, b.y) * unpackHalf2x16(u.scales.x).y;
    minimum = f16vec2(exact);
    minimum_rest = f16vec2(exact - vec2(minimum));
  }
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    uint q = u.quants[i];
    f16vec2 n[4];
    if (kEncoding == kEncQ4_0 || kEncoding == kEncQ4_1 || kEncoding == kEncQ4_K) {
      n[0] = pair(q, 0x000f000fu) - (float16_t(1024.0) + zero);
      n[1] = pair(q >> 8, 0x000f000fu) - (float16_t(1024.0) + zero);
      n[2] = pair(q, 0x00f000f0u) * float16_t(0.0625) - (float16_t(64.0) + zero);
      n[3] = pair(q >> 8, 0x00f000f0u) * float16_t(0.0625) - (float16_t(64.0) + zero);
    } else {
      uint low = q & 0x0f0f0f0fu, high = q >> 4 & 0x0f0f0f0fu;
      if (kIs5) {
        low |= fifth_bits(u.upper.x >> (4u * i));
        high |= fifth_bits(u.upper.x >> (16u + 4u * i));
      } else if (kEncoding == kEncQ5_K) {
        uint bits = u.upper[i] >> (2u * chunk);
        low |= (bits & 0x01010101u) << 4;
        high |= (bits >> 1 & 0x01010101u) << 4;
      } else {
        low |= (u.upper[i] >> (2u * (chunk & 1u)) & 0x03030303u) << 4;
        high |= (u.upper[i] >> (2u * (chunk & 1u) + 4u) & 0x03030303u) << 4;
      }
      n[0] = pair(low, 0x00ff00ffu) - (float16_t(1024.0) + zero);
      n[1] = pair(low >> 8, 0x00ff00ffu) - (float16_t(1024.0) + zero);
      n[2] = pair(high, 0x00ff00ffu) - (float16_t(1024.0) + zero);
      n[3] = pair(high >> 8, 0x00ff00ffu) - (float16_t(1024.0) + zero);
    }
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      if (kIsK) n[j] *= factors[j / 2];
      n[j] *= scale;
      if (kHasMin || kEncoding == kEncQ4_K || kEncoding == kEncQ5_K) n[j] -= minimum[j / 2];
      if (kEncoding == kEncQ4_K || kEncoding == kEncQ5_K) n[j] -= minimum_rest[j / 2];
      pairs[2 * i + j % 2 + j / 2 * 8] = n[j];
    }
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
