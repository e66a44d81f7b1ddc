// What every kernel starts with. Tensors are addresses; a kernel indexes 32-bit words (or 16 bytes of them), so no
// 8- or 16-bit storage feature is needed. Numbers of 16 bits are two to a word, the first in the low half.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kSubgroup = 1;  // size of a subgroup; 1 where kernels may not know one
// A kernel's own constants start at 10.

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint w[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Ints { int i[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float f[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Pairs { uvec2 p[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Quads { uvec4 q[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Vec4s { vec4 v[]; };

// Twin: core/ops/tensor.h DType.
const uint kF32 = 0, kF16 = 1, kBF16 = 2;

const float kInfinity = uintBitsToFloat(0x7f800000u);

// Rounded to nearest even whatever the device's conversion does; inf and NaN stay.
uint f16_bits(float x) {
  uint bits = floatBitsToUint(x), sign = bits >> 16 & 0x8000u, a = bits & 0x7fffffffu;
  if (a >= 0x47800000u) return sign | (a > 0x7f800000u ? 0x7e00u : 0x7c00u);  // 65536 and above
  if (a < 0x38800000u) return sign | (floatBitsToUint(uintBitsToFloat(a) + 0.5) - 0x3f000000u);  // subnormal
  return sign | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13);
}
uint bf16_bits(float x) {
  uint bits = floatBitsToUint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
uint bits16(float x, uint dtype) { return dtype == kF16 ? f16_bits(x) : bf16_bits(x); }
uint pack16(vec2 x, uint dtype) { return bits16(x.x, dtype) | bits16(x.y, dtype) << 16; }
vec2 unpack16(uint word, uint dtype) {
  if (dtype == kF16) return unpackHalf2x16(word);
  return vec2(uintBitsToFloat(word << 16), uintBitsToFloat(word & 0xffff0000u));
}

// Numbers 2i and 2i + 1 of a row of `columns` that starts at number `first`. Rows of an odd number of columns share
// words with their neighbours, so those halves are set one at a time.
void store_half(Words target, uint idx, uint bits) {
  uint shift = (idx & 1u) * 16u;
  atomicAnd(target.w[idx >> 1], ~(0xffffu << shift));
  atomicOr(target.w[idx >> 1], bits << shift);
}
void store_pair(Words target, uint first, uint columns, uint i, vec2 x, uint dtype) {
  uint idx = first + 2u * i;
  bool second = 2u * i + 1u < columns;
  if (dtype == kF32) {
    target.w[idx] = floatBitsToUint(x.x);
    if (second) target.w[idx + 1u] = floatBitsToUint(x.y);
  } else if ((columns & 1u) == 0u) {
    target.w[idx >> 1] = pack16(x, dtype);
  } else {
    store_half(target, idx, bits16(x.x, dtype));
    if (second) store_half(target, idx + 1u, bits16(x.y, dtype));
  }
}

// Four numbers from vec4 `i` of a tensor of 4-aligned rows.
vec4 load4(Words source, uint i, uint dtype) {
  if (dtype == kF32) return Vec4s(source).v[i];
  uvec2 pair = Pairs(source).p[i];
  return vec4(unpack16(pair.x, dtype), unpack16(pair.y, dtype));
}
// vec4s i and i + 1, i even.
void load8(Words source, uint i, uint dtype, out vec4 a, out vec4 b) {
  if (dtype == kF32) {
    a = Vec4s(source).v[i];
    b = Vec4s(source).v[i + 1u];
  } else {
    uvec4 quad = Quads(source).q[i >> 1];
    a = vec4(unpack16(quad.x, dtype), unpack16(quad.y, dtype));
    b = vec4(unpack16(quad.z, dtype), unpack16(quad.w, dtype));
  }
}
