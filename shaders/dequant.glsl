// Weights as the device keeps them (backends/vulkan/weight_rows.cpp): a row is planes of fields, the quants first. A unit is
// 16 bytes of the first plane: dequant_unit gives its kUnitVecs * 4 numbers, and unit_x says which numbers of the other
// factor they meet. Woven rows are planes of eight rows together, a run of each in turn, so that what eight rows' lanes
// load at a time lies together. Twins: core/weights/encoding.h, tests/reference/dequant.h.
layout(constant_id = 10) const uint kLayout = 0;  // twin: backends/vulkan/weight_pieces.h layout_constant
const uint kEncoding = kLayout & 255u;
const bool kWoven = kLayout >= 256u;
const uint kEncF32 = 0, kEncF16 = 1, kEncBF16 = 2, kEncQ4_0 = 3, kEncQ4_1 = 4, kEncQ5_0 = 5, kEncQ5_1 = 6,
           kEncQ8_0 = 7, kEncQ4_K = 8, kEncQ5_K = 9, kEncQ6_K = 10, kEncMXFP4 = 11, kEncFP8 = 12;
const bool kIsFloat = kEncoding <= kEncBF16;
const bool kIsK = kEncoding >= kEncQ4_K && kEncoding <= kEncQ6_K;
const bool kIs5 = kEncoding == kEncQ5_0 || kEncoding == kEncQ5_1;
const bool kIs45 = kEncoding >= kEncQ4_0 && kEncoding <= kEncQ5_1;
const bool kHasUpper = kIs5 || kEncoding == kEncQ5_K || kEncoding == kEncQ6_K;
const bool kHasMin = kEncoding == kEncQ4_1 || kEncoding == kEncQ5_1;
const bool kIsSmallFloat = kEncoding == kEncMXFP4 || kEncoding == kEncFP8;
const bool kIsBytes = kEncoding == kEncQ8_0 || kEncoding == kEncFP8;
const uint kUnitVecs = kEncoding == kEncF32 ? 1 : kIsFloat ? 2 : kIsBytes ? 4 : 8;
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
// Floats of 4 and 8 bits, two of them 16 bits apart, where f16 has sign, exponent and mantissa: their numbers as f16, but
// for a factor. Those of 4 bits are the low nibbles of bytes; NaN of 8 bits becomes a number.
const float kSmallFactor = kEncoding == kEncMXFP4 ? 16384.0 : 256.0;
uint small_pair(uint bytes) {
  return kEncoding == kEncMXFP4 ? (bytes & 0x00070007u) << 9 | (bytes & 0x00080008u) << 12
                                : (bytes & 0x007f007fu) << 7 | (bytes & 0x00800080u) << 8;
}
// The numbers of four bytes, NaN among them.
vec4 small_floats(uint bytes) {
  uint nans = kEncoding == kEncFP8 ? (bytes & 0x7f7f7f7fu) + 0x01010101u : 0u;  // in the bytes' upper bits
  vec2 even = unpackHalf2x16(small_pair(bytes) | (nans & 0x00800080u) * 0xf8u);
  vec2 odd = unpackHalf2x16(small_pair(bytes >> 8) | (nans >> 8 & 0x00800080u) * 0xf8u);
  return vec4(even.x, odd.x, even.y, odd.y) * kSmallFactor;
}
// 2^(e - 127); NaN of 255.
float power_of_two(uint e) { return uintBitsToFloat(e << 23 | ((e + 1u & 255u) < 2u ? 0x400000u : 0u)); }
// The half of odd or even index.
float half_of(uint word, uint idx) {
  vec2 pair = unpackHalf2x16(word);
  return (idx & 1u) == 0u ? pair.x : pair.y;
}
float half_at(Words w, uint first_word, uint idx) { return half_of(w.w[first_word + (idx >> 1)], idx); }
// The 6-bit scales (.xy) and mins (.zw) of sub-blocks 2 * chunk and 2 * chunk + 1 of q4_k and q5_k.
vec4 k_scales_mins(uvec4 header, uint chunk) {
  uvec3 h = header.yzw >> (chunk & 1u) * 16u;
  uint s = chunk < 2u ? h.x & 0x3f3fu : h.z & 0x0f0fu | h.x >> 2 & 0x3030u;
  uint m = chunk < 2u ? h.y & 0x3f3fu : h.z >> 4 & 0x0f0fu | h.y >> 2 & 0x3030u;
  return vec4(s & 63u, s >> 8, m & 63u, m >> 8);
}

// What a unit is made from, as it lies in memory: loads can be under way long before their numbers are wanted.
struct Unit {
  uvec4 quants, upper, scales;  // upper: bits beyond the fourth
};

// Where a row is, as fetch_unit takes it: its first word; woven, the first word of its eight rows, which leaves three bits
// for which of them it is.
uint row_at(uint row, uint row_words) { return kWoven ? (row & ~7u) * row_words + (row & 7u) : row * row_words; }

// Word or quad `i` of the plane `plane` of a row, both in words or quads, where woven rows take turns of `run`.
uint woven_at(uint in_eight, uint plane, uint i, uint run) {
  return plane * 8u + (i / run * 8u + in_eight) * run + i % run;
}
// `row`: of row_at. With ROWS_BY_ADDRESS the address of the row, or woven of its eight rows: where rows are a known number
// of bytes apart, loads then differ by a constant alone.
#ifdef ROWS_BY_ADDRESS
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer RowWord { uint w; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer RowQuad { uvec4 q; };
#define ROW uint64_t row, uint in_eight
#define ROW_PARTS row, in_eight
#define ROW_WORD(plane, i, run) RowWord(row + uint64_t(kWoven ? woven_at(in_eight, plane, i, run) : (plane) + (i)) * 4).w
#define ROW_QUAD(plane, i, run) RowQuad(row + uint64_t(kWoven ? woven_at(in_eight, plane, i, run) : (plane) + (i)) * 16).q
#else
#define ROW Words w, uint row
#define ROW_PARTS w, row
#define ROW_WORD(plane, i, run) \
  w.w[kWoven ? (row & ~7u) + woven_at(row & 7u, plane, i, run) : row + (plane) + (i)]
#define ROW_QUAD(plane, i, run) \
  Quads(w).q[kWoven ? (row >> 3) * 2u + woven_at(row & 7u, plane, i, run) : (row >> 2) + (plane) + (i)]
#endif
uint num_blocks(uint columns) { return columns / (kIsK ? 256u : 32u); }
// Where the planes of upper bits and of scales begin, for each block: in what they are loaded by, quads or words.
const uint kUpperAt = kIsK ? 8 : 4;
const uint kScalesAt = kEncoding == kEncQ6_K                            ? 48
                       : kEncoding == kEncQ5_K                          ? 10
                       : kEncoding == kEncQ4_K || kIsBytes              ? 8
                       : kIs5                                           ? 5
                                                                        : 4;

// Bits beyond the fourth.
uvec4 fetch_upper(ROW, uint columns, uint unit) {
  uint plane = num_blocks(columns) * kUpperAt, block = unit >> 3, side = unit & 1u;
  uvec4 upper = uvec4(0u);
  if (kIs5)
    upper.x = ROW_WORD(plane, unit, 4u);
  else if (kEncoding == kEncQ6_K)
    upper = ROW_QUAD(plane, block * 4u + (unit >> 2 & 1u) * 2u + side, 4u);
  else if (kEncoding == kEncQ5_K)
    upper = ROW_QUAD(plane, block * 2u + side, 2u);
  return upper;
}
// What scales are made from, of q6_k without the block's own.
uvec4 fetch_scales(ROW, uint columns, uint unit) {
  uint plane = num_blocks(columns) * kScalesAt;
  uvec4 scales = uvec4(0u);
  if (kEncoding == kEncQ8_0 || kEncoding == kEncMXFP4) {
    scales.x = ROW_WORD(plane, unit >> 2, 1u);
  } else if (kEncoding == kEncFP8) {
    scales.x = ROW_WORD(plane, unit >> 3, 1u);
  } else if (kHasMin) {
    scales.x = ROW_WORD(plane, unit, 4u);
  } else if (kIs45) {
    scales.x = ROW_WORD(plane, unit >> 1, 2u);
  } else if (kEncoding == kEncQ6_K) {
    uint first = (unit >> 3) * 4u + (unit >> 2 & 1u) * 2u;
    scales.x = ROW_WORD(plane, first, 4u);
    scales.y = ROW_WORD(plane, first + 1u, 4u);
  } else if (kIsK) {
    scales = ROW_QUAD(plane, unit >> 3, 1u);
  }
  return scales;
}
uint fetch_block_scale(ROW, uint columns, uint unit) {
  return kEncoding == kEncQ6_K ? ROW_WORD(num_blocks(columns) * 52u, unit >> 4, 1u) : 0u;
}
Unit fetch_unit(ROW, uint columns, uint unit) {
  Unit u;
  u.quants = ROW_QUAD(0u, unit, 4u);
  u.upper = fetch_upper(ROW_PARTS, columns, unit);
  u.scales = fetch_scales(ROW_PARTS, columns, unit);
  if (kEncoding == kEncQ6_K) u.scales.z = fetch_block_scale(ROW_PARTS, columns, unit);
  return u;
}

const bool kHasOffset = !kIsFloat && kEncoding != kEncQ8_0 && !kIsSmallFloat;
const uint kScaleRun = kIsK ? 4 : kUnitVecs;  // vec4s of a unit that share a scale

// vec4 `i` of a unit of floats.
vec4 unit_floats(Unit u, uint i) {
  const uint dtype = kEncoding == kEncF16 ? kF16 : kBF16;
  return kEncoding == kEncF32 ? uintBitsToFloat(u.quants)
                              : vec4(unpack16(u.quants[2u * i & 3u], dtype), unpack16(u.quants[2u * i + 1u & 3u], dtype));
}
// vec4 `i` of a unit's quants (floats: of its numbers); a number is quant * scale + offset. `i` is known when compiled, so
// that no other vec4 is made: a unit has a fifth of the words of its numbers.
vec4 unit_quants(Unit u, uint unit, uint i) {
  if (kIsFloat) return unit_floats(u, i);
  if (kEncoding == kEncQ8_0) return signed_bytes_of(u.quants[i]);
  if (kEncoding == kEncFP8) return small_floats(u.quants[i]);
  uint w = i & 3u, part = i >> 2, chunk = unit >> 1 & 3u;
  uint bytes = u.quants[w] >> 4u * part & 0x0f0f0f0fu;
  if (kEncoding == kEncMXFP4) return small_floats(bytes);
  if (kIs5) bytes |= fifth_bits(u.upper.x >> 4u * i);
  if (kEncoding == kEncQ5_K) bytes |= (u.upper[w] >> (2u * chunk + part) & 0x01010101u) << 4;
  // chunk = 2 * half + run parity; bit pairs of runs (parity) and (parity + 2) of the half.
  if (kEncoding == kEncQ6_K) bytes |= (u.upper[w] >> (2u * (chunk & 1u) + 4u * part) & 0x03030303u) << 4;
  return bytes_of(bytes);
}

float small_scale(Unit u, uint unit) {
  return kEncoding == kEncMXFP4 ? power_of_two(u.scales.x >> (unit & 3u) * 8u & 255u) : uintBitsToFloat(u.scales.x);
}
// Scale and offset of vec4 `i`, of quantised weights.
vec2 unit_scale(Unit u, uint unit, uint i) {
  if (kEncoding == kEncQ8_0) return vec2(half_of(u.scales.x, unit >> 1), 0.0);
  if (kIsSmallFloat) return vec2(small_scale(u, unit), 0.0);
  if (kHasMin) return unpackHalf2x16(u.scales.x);
  if (kIs45) return half_of(u.scales.x, unit) * vec2(1.0, kIs5 ? -16.0 : -8.0);
  uint block = unit >> 3, chunk = unit >> 1 & 3u, side = unit & 1u, part = i >> 2;
  if (kEncoding == kEncQ6_K) {
    int scale = bitfieldExtract(int(u.scales[part]), int((chunk & 1u) * 2u + side) * 8, 8);
    return half_of(u.scales.z, block) * float(scale) * vec2(1.0, -32.0);
  }
  vec4 all = k_scales_mins(u.scales, chunk);
  return (part == 0u ? all.xz : all.yw) * unpackHalf2x16(u.scales.x) * vec2(1.0, -1.0);
}

// vec4 `i` of a unit's numbers.
vec4 unit_numbers(Unit u, uint unit, uint i) {
  vec4 quants = unit_quants(u, unit, i);
  if (kIsFloat) return quants;
  vec2 scale = unit_scale(u, unit, i);
  return scale.x * quants + scale.y;
}

// The numbers of unit `unit` of a row.
void expand_unit(Unit u, uint unit, out vec4 x[kUnitsMaxVecs]) {
  uvec4 q = u.quants;
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
  [[unroll]] for (uint i = 0; i < kUnitVecs; ++i) x[i] = unit_numbers(u, unit, i);
}

#ifndef ROWS_BY_ADDRESS
void dequant_unit(Words w, uint row, uint columns, uint unit, out vec4 x[kUnitsMaxVecs]) {
  expand_unit(fetch_unit(w, row, columns, unit), unit, x);
}
#endif
