// How pairs of a head's numbers are turned. Twin: core/ops/ops.h RopePairing, which is one less.
const uint kNoRope = 0, kInterleaved = 1, kHalves = 2;  // pairs (2i, 2i + 1) or (i, i + rope_dim / 2)

vec2 turned(vec2 x, vec2 t) { return vec2(x.x * t.x - x.y * t.y, x.x * t.y + x.y * t.x); }

// cos and sin of position * freq (0 <= freq < 2). The angle is taken in turns as a 64-bit fraction, whose whole part
// wraps away, so it is exact to 2^-32 of a turn at any position; the rest is a polynomial on [-pi/4, pi/4].
vec2 turn(uint position, float freq) {
  uint bits = floatBitsToUint(freq), exponent = bits >> 23;
  if (exponent == 0u) return vec2(1.0, 0.0);
  // turns = mantissa * 2^(exponent - 150) / (2 pi); 2^64 / (2 pi) = 0x28be60db_9391054a.
  uint mantissa = (bits & 0x7fffffu) | 0x800000u, high, low, mid_high, mid_low;
  umulExtended(mantissa, 0x28be60dbu, high, low);
  umulExtended(mantissa, 0x9391054au, mid_high, mid_low);
  uint carry;
  low = uaddCarry(low, mid_high, carry);
  high += carry;  // the product: high, low, mid_low
  uint shift = 150u - exponent;  // at least 23: freq < 2
  uvec2 turns;                   // fraction of a turn: .x high word
  if (shift < 32u)
    turns = uvec2(high << (32u - shift) | low >> shift, low << (32u - shift) | mid_low >> shift);
  else if (shift == 32u)
    turns = uvec2(high, low);
  else if (shift < 64u)
    turns = uvec2(high >> (shift - 32u), high << (64u - shift) | low >> (shift - 32u));
  else
    turns = uvec2(0u, shift < 96u ? high >> (shift - 64u) : 0u);
  umulExtended(position, turns.y, high, low);
  uint angle = position * turns.x + high;  // in 2^-32 turns
  uint quarter = (angle + 0x20000000u) >> 30;
  float r = float(int(angle - (quarter << 30))) * 1.46291807926715968e-9;  // 2 pi / 2^32
  float r2 = r * r;
  float s = r + r * r2 * (-1.66666667e-1 + r2 * (8.33333333e-3 + r2 * (-1.98412698e-4 + r2 * 2.75573192e-6)));
  float c = 1.0 + r2 * (-0.5 + r2 * (4.16666667e-2 + r2 * (-1.38888889e-3 + r2 * (2.48015873e-5 - r2 * 2.75573192e-7))));
  vec2 result = (quarter & 1u) == 0u ? vec2(c, s) : vec2(-s, c);
  return (quarter & 2u) == 0u ? result : -result;
}
