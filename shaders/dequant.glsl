// Weights as the device keeps them (backends/vulkan/weights.cpp): a row is planes of fields, the quants first. A unit is
// 16 bytes of the first plane: dequant_unit gives its kUnitVecs * 4 numbers, and unit_x says which numbers of the other
// factor they meet. Twins: core/weights/encoding.h, tests/reference/dequant.h.
layout(constant_id = 10) const uint kEncoding = 0;
const uint kEncF32 = 0, kEncF16 = 1, kEncBF16 = 2, kEncQ4_0 = 3, kEncQ4_1 = 4, kEncQ5_0 = 5, kEncQ5_1 = 6,
           kEncQ8_0 = 7, kEncQ4_K = 8, kEncQ5_K = 9, kEncQ6_K = 10;
const bool kIsFloat = kEncoding <= kEncBF16;
const bool kIsK = kEncoding >= kEncQ4_K;
const bool kIs5 = kEncoding == kEncQ5_0 || kEncoding == kEncQ5_1;
const bool kIs45 = kEncoding >= kEncQ4_0 && kEncoding <= kEncQ5_1;
const uint kUnitVecs = kEncoding == kEncF32 ? 1 : kIsFloat ? 2 : kEncoding == kEncQ8_0 ? 4 : 8;
const uint kUnitsMaxVecs = 8;

// Units of a row of `columns` numbers.
uint num_units(uint columns) { return columns / (kUnitVecs * 4u); }

// Index of the vec4 of x that meets vec4 `i` of `unit`.
uint unit_x(uint unit, uint i) {
  if (!kIsK) return unit * kUnitVecs + i;
  uint block = unit >> 3, chunk = unit >> 1 & 3u, side = unit & 1u;
  if (kEncoding != kEncQ6_K) return block * 64u + chunk * 16u + side * 4u + i + (i >= 4u ? 4u : 0u);
  return block * 64u + (chunk >> 1) * 32u + (chunk & 1u) * 8u + side * 4u + i + (i >= 4u ? 12u : 0u);
}

vec4 bytes_of(uint w) { return vec4(w & 255u, w >> 8 & 255u, w >> 16 & 255u, w >> 24); }
vec4 signed_bytes_of(uint w) {
  return vec4(bitfieldExtract(int(w), 0, 8), bitfieldExtract(int(w), 8, 8), bitfieldExtract(int(w), 16, 8), int(w) >> 24);
}
// Bits 0 to 3 of `bits` as bit 4 of four bytes.
uint fifth_bits(uint bits) {
  return (bits & 1u) << 4 | (bits & 2u) << 11 | (bits & 4u) << 18 | (bits & 8u) << 25;
}
float half_at(Words w, uint first_word, uint idx) {
  vec2 pair = unpackHalf2x16(w.w[first_word + (idx >> 1)]);
  return (idx & 1u) == 0u ? pair.x : pair.y;
}
// The 6-bit scale and min of sub-block j of q4_k and q5_k.
vec2 k_scale_min(uvec4 header, uint j) {
  uint s = (j & 3u) * 8u;
  if (j < 4u) return vec2(header.y >> s & 63u, header.z >> s & 63u);
  return vec2((header.w >> s & 15u) | (header.y >> (s + 6u) & 3u) << 4,
              (header.w >> (s + 4u) & 15u) | (header.z >> (s + 6u) & 3u) << 4);
}

// `row`: first word of the row from `w`; a multiple of 4.
void dequant_unit(Words w, uint row, uint columns, uint unit, out vec4 x[kUnitsMaxVecs]) {
  uvec4 q = Quads(w).q[(row >> 2) + unit];
  if (kEncoding == kEncF32) {
    x[0] = uintBitsToFloat(q);
    return;
  }
  if (kIsFloat) {
    uint dtype = kEncoding == kEncF16 ? kF16 : kBF16;
    x[0] = vec4(unpack16(q.x, dtype), unpack16(q.y, dtype));
    x[1] = vec4(unpack16(q.z, dtype), unpack16(q.w, dtype));
    return;
  }
  if (kEncoding == kEncQ8_0) {
    float d = half_at(w, row + columns / 4u, unit >> 1);
    [[unroll]] for (uint i = 0; i < 4; ++i) x[i] = d * signed_bytes_of(q[i]);
    return;
  }
  uvec4 low = q & 0x0f0f0f0fu, high = q >> 4 & 0x0f0f0f0fu;
  if (kIs45) {
    uint blocks = columns / 32u, plane = row + blocks * 4u;
    if (kIs5) {
      uint bits = w.w[plane + unit];
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        low[i] |= fifth_bits(bits >> (4u * i));
        high[i] |= fifth_bits(bits >> (16u + 4u * i));
      }
      plane += blocks;
    }
    float d, m;
    if (kEncoding == kEncQ4_1 || kEncoding == kEncQ5_1) {
      vec2 dm = unpackHalf2x16(w.w[plane + unit]);
      d = dm.x, m = dm.y;
    } else {
      d = half_at(w, plane, unit);
      m = kIs5 ? -16.0 * d : -8.0 * d;
    }
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      x[i] = d * bytes_of(low[i]) + m;
      x[i + 4] = d * bytes_of(high[i]) + m;
    }
    return;
  }
  uint blocks = columns / 256u, block = unit >> 3, chunk = unit >> 1 & 3u, side = unit & 1u;
  if (kEncoding == kEncQ6_K) {
    // chunk = 2 * half + run parity; bit pairs of runs (parity) and (parity + 2) of the half.
    uvec4 upper = Quads(w).q[(row >> 2) + blocks * 8u + block * 4u + (chunk >> 1) * 2u + side];
    low |= (upper >> (2u * (chunk & 1u)) & 0x03030303u) << 4;
    high |= (upper >> (2u * (chunk & 1u) + 4u) & 0x03030303u) << 4;
    uint scales = row + blocks * 48u + block * 4u, s = (chunk >> 1) * 8u + (chunk & 1u) * 2u + side;
    float d = half_at(w, row + blocks * 52u, block);
    float a = d * float(bitfieldExtract(int(w.w[scales + (s >> 2)]), int(s & 3u) * 8, 8));
    s += 4u;
    float b = d * float(bitfieldExtract(int(w.w[scales + (s >> 2)]), int(s & 3u) * 8, 8));
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      x[i] = a * (bytes_of(low[i]) - 32.0);
      x[i + 4] = b * (bytes_of(high[i]) - 32.0);
    }
    return;
  }
  uint plane = (row >> 2) + blocks * 8u;
  if (kEncoding == kEncQ5_K) {
    uvec4 bits = Quads(w).q[plane + block * 2u + side] >> (2u * chunk);
    low |= (bits & 0x01010101u) << 4;
    high |= (bits >> 1 & 0x01010101u) << 4;
    plane += blocks * 2u;
  }
  uvec4 header = Quads(w).q[plane + block];
  vec2 d = unpackHalf2x16(header.x);
  vec2 a = k_scale_min(header, 2u * chunk) * d, b = k_scale_min(header, 2u * chunk + 1u) * d;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    x[i] = a.x * bytes_of(low[i]) - a.y;
    x[i + 4] = b.x * bytes_of(high[i]) - b.y;
  }
}
