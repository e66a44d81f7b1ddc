// Numbers of the KV pool. Twin: core/kv/kv_format.h, whose KvDType is one less here; 0: no pool.
const uint kKvF16 = 1, kKvBF16 = 2, kKvI8 = 3, kKvF8 = 4, kKvI8Block = 5, kKvF8Block = 6, kKvF8Tensor = 7;
const uint kKvScaleBlock = 32;

vec4 i8_values(uint word) {
  return vec4(bitfieldExtract(int(word), 0, 8), bitfieldExtract(int(word), 8, 8), bitfieldExtract(int(word), 16, 8),
              int(word) >> 24);
}
uint i8_bits(float x) { return uint(int(clamp(roundEven(x), -127.0, 127.0))) & 255u; }

// e4m3. Through f32 with 120 more in the exponent; subnormals apart, which devices may flush.
vec4 f8_values(uint word) {
  uvec4 bytes = uvec4(word, word >> 8, word >> 16, word >> 24), magnitude = bytes & 0x7fu;
  vec4 normal = uintBitsToFloat((magnitude << 20) + 0x3c000000u);
  vec4 value = mix(normal, vec4(magnitude) * 0.001953125, lessThan(magnitude, uvec4(8u)));
  return uintBitsToFloat(floatBitsToUint(value) | (bytes & 0x80u) << 24);
}
// In units of 256: their bits read as those of f16, whose exponent is 8 greater. Fewer instructions; a device that flushes
// subnormal f16 loses what is below amax / 28,672.
uvec2 f8_halves(uint word) {
  uvec2 pairs = uvec2(word & 0xffu | (word & 0xff00u) << 8, word >> 16 & 0xffu | (word & 0xff000000u) >> 8);
  return (pairs & 0x00800080u) << 8 | (pairs & 0x007f007fu) << 7;
}
vec4 f8_units(uint word) {
  uint even = word << 8;  // each byte becomes the upper one of a half
  vec2 a = unpackHalf2x16(even & 0x80008000u | even >> 1 & 0x3f803f80u);
  vec2 b = unpackHalf2x16(word & 0x80008000u | word >> 1 & 0x3f803f80u);
  return vec4(a.x, b.x, a.y, b.y);
}
// Rounded to nearest even; beyond 448 stays there, NaN stays.
uint f8_bits(float x) {
  uint bits = floatBitsToUint(x), sign = bits >> 24 & 0x80u;
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fu;
  float a = min(abs(x), 448.0);
  if (a < 0.015625) return sign | uint(roundEven(a * 512.0));  // subnormal, or the first normal one
  bits = floatBitsToUint(a);
  return sign | (((bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20) - 0x3c0u);
}
