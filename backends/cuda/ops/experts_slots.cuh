// What a warp multiplies at a time of experts' matrices for few rows: 16 rows of W in a step of 128 columns (a slot),
// brought to a ring of its own in shared memory by asynchronous copies, by up to 8 rows of x, which are in shared
// memory in f16.
//
// Numbers of W are not scaled: the small integers of a unit of 32 columns are multiplied as they are and the sums
// scaled in f32. Scaling would take each lane as long for every unit and row of W as taking the integers out does. Lane
// 4g + t makes the scales of unit t of rows g and g + 8, and gets those of the other units through shared memory.
#pragma once

#include "backends/cuda/ops/experts_rows.cuh"

namespace llmrt::cuda {

inline constexpr uint32_t kSlotRows = 16, kSlotUnits = kStep / kUnit;

// Numbers that are taken out by a mask, as subnormal f16 (Fragment::decode_stored): sums are by 2^-24. All of them have
// a base, or an offset, which is a base too: sums of x are needed.
template <Encoding E>
inline constexpr bool kIsStored = is_quantized(E) && !kIsBytes<E> && E != Encoding::kQ6_K && E != Encoding::kMXFP4;

template <Encoding E>
struct Slot {
  static constexpr uint32_t kWords = E == Encoding::kF16 ? 4 : kIsBytes<E> ? 2 : 1;  // of a lane, of a row
  static constexpr uint32_t kUpperRowBytes = step_bytes(E).plane[1];
  static constexpr uint32_t kScaleRowBytes = E == Encoding::kF16    ? 0
                                             : Fragment<E>::kHeader ? 16
                                                                    : step_bytes(E).plane[2];
  static constexpr bool kHasBlockScale = E == Encoding::kQ6_K;
  static constexpr uint32_t kUpper = kSlotRows * 64 * kWords, kScales = kUpper + kSlotRows * kUpperRowBytes,
                            kBlockScales = kScales + kSlotRows * kScaleRowBytes,
                            kBytes = kBlockScales + (kHasBlockScale ? kSlotRows * 4 : 0);
};
inline constexpr uint32_t kSlots = 4;  // of a warp's ring

// Where the rows of a slot lie that a lane copies: of rows g and g + 8 its share of the bits, of row lane % 16 the
// scales. In steps since the matrix's begin (of f16 in rows).
struct SlotPlace {
  uint32_t upper, lower, scaled;

  __device__ void move(uint32_t steps) { upper += steps, lower += steps, scaled += steps; }
};

// This lane's numbers, made once and not again wherever they are used.
struct SlotLane {
  uint32_t lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4, bits = lane * 16;  // bits: of row g in a slot

  __device__ SlotLane() { keep_in_register(lane), keep_in_register(g), keep_in_register(t), keep_in_register(bits); }
};

// Copies what this lane copies of a slot; to be committed by the caller. `lower`: the matrix of rows 8 to 15.
template <Encoding E>
__device__ inline void copy_slot(uint8_t* slot, const PackedMatrix& upper, const PackedMatrix& lower,
                                 const SlotPlace& place, uint32_t step, const SlotLane& lane_of) {
  using S = Slot<E>;
  const uint32_t lane = lane_of.lane, t = lane_of.t;
  const auto copy_row = [&](const PackedMatrix& m, uint32_t at, uint32_t eight) {
    uint8_t* to = slot + lane_of.bits + eight * 8 * 64;
    if constexpr (E == Encoding::kF16) {
      const uint32_t offset = 2 * (step * kStep + t * 8);
      const uint8_t* from = m.plane[0] + uint64_t{at} * m.row_stride + offset;
#pragma unroll
      for (uint32_t w = 0; w < 4; ++w)
        copy_async<16, true>(to + w * kSlotRows * 64, from + w * 64, offset + w * 64 < m.row_stride);
    } else {
      const uint64_t index = at + step;
#pragma unroll
      for (uint32_t w = 0; w < S::kWords; ++w)
        copy_async<16, true>(to + w * kSlotRows * 64, m.plane[0] + index * (S::kWords * 64) + w * 64 + t * 16, true);
      if constexpr (S::kUpperRowBytes > 0)
        copy_async<S::kUpperRowBytes / 4>(
            slot + S::kUpper + eight * 8 * S::kUpperRowBytes + lane * (S::kUpperRowBytes / 4),
            m.plane[1] + index * S::kUpperRowBytes + t * (S::kUpperRowBytes / 4), true);
    }
  };
  copy_row(upper, place.upper, 0);
  copy_row(lower, place.lower, 1);
  if constexpr (S::kScaleRowBytes > 0) {
    if (lane < kSlotRows) {
      const uint64_t index = place.scaled + step;
      const PackedMatrix& m = lane < 8 ? upper : lower;
      copy_async<S::kScaleRowBytes>(slot + S::kScales + lane * S::kScaleRowBytes,
                                    m.plane[2] + (Fragment<E>::kHeader ? index / 2 : index) * S::kScaleRowBytes, true);
      // The scale of a block is 2 bytes, of which the four around them are copied.
      if constexpr (S::kHasBlockScale)
        copy_async<4>(slot + S::kBlockScales + lane * 4, m.plane[3] + index / 4 * 4, true);
    }
  }
}

// This lane's share of a row of a slot: its numbers of all units, and the scale and base of unit t.
template <Encoding E>
struct SlotRow {
  Fragment<E> bits;  // its scales are filled where numbers are taken out with them
  float scale, base;

  // The eight: rows g, or g + 8. `index`: of the step among all of the matrix; what matters of it is whether it is odd,
  // and for q6_k its half.
  __device__ void load(const uint8_t* slot, uint32_t eight, uint32_t index, const SlotLane& lane) {
    using S = Slot<E>;
    const uint4* words = reinterpret_cast<const uint4*>(slot + lane.bits + eight * 8 * 64);
    const uint8_t* upper = slot + S::kUpper + eight * 8 * S::kUpperRowBytes + lane.lane * (S::kUpperRowBytes / 4);
    const uint8_t* scales = slot + S::kScales + eight * 8 * S::kScaleRowBytes + lane.g * S::kScaleRowBytes;
    if constexpr (E == Encoding::kF16) {
#pragma unroll
      for (uint32_t w = 0; w < 4; ++w) bits.numbers[w] = words[w * kSlotRows * 4];
    } else if constexpr (kIsBytes<E>) {
#pragma unroll
      for (uint32_t w = 0; w < 2; ++w) bits.bytes[w] = words[w * kSlotRows * 4];
    } else {
      bits.nibbles = *words;
      if constexpr (Fragment<E>::kFifth) bits.upper.x = *reinterpret_cast<const uint32_t*>(upper);
      if constexpr (Fragment<E>::kPairs) bits.upper = *reinterpret_cast<const uint2*>(upper);
    }
    load_scale(scales, lane.t, index);
    if constexpr (S::kHasBlockScale) {
      bits.scales.scales = *reinterpret_cast<const uint2*>(scales);
      scale = half_at(slot + S::kBlockScales + (eight * 8 + lane.g) * 4, index / 2 % 2);
    }
  }
  __device__ void load_scale(const uint8_t* scales, uint32_t t, uint32_t index) {
    constexpr int kOffset = E == Encoding::kQ4_0 ? 8 : 16;
    if constexpr (E == Encoding::kF16) {
      scale = 1;
    } else if constexpr (E == Encoding::kFP8) {
      scale = *reinterpret_cast<const float*>(scales);
    } else if constexpr (E == Encoding::kMXFP4) {  // numbers are by 2^-14
      scale = 0x1p14f * __uint_as_float(static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(scales)[t]) << 16);
    } else if constexpr (Fragment<E>::kHeader) {
      const uint4 header = *reinterpret_cast<const uint4*>(scales);
      const KUnit unit = k_unit(header, index % 2, t);
      const float2 d = two_floats(half2_of(header.x));
      scale = d.x * small_number(unit.scale);
      base = -d.y * small_number(unit.min);
    } else if constexpr (Fragment<E>::kBased) {
      const float2 both = two_floats(reinterpret_cast<const __half2*>(scales)[t]);
      scale = both.x, base = both.y;
    } else if constexpr (E != Encoding::kQ6_K) {
      scale = half_at(scales, t);
      if constexpr (kIsStored<E>) base = -kOffset * scale;
    }
  }
  // A number below 2^23 without a conversion.
  __device__ static float small_number(uint32_t n) {
    return __uint_as_float(0x4b000000u | n) - 0x1p23f;
  }

  // The numbers of unit i, not scaled, as four pairs; where kIsStored, odd pairs 16 times.
  __device__ void decode(int i, uint32_t t, uint32_t (&pairs)[4]) const {
    if constexpr (kIsStored<E>)
      bits.decode_stored(i, pairs);
    else if constexpr (E == Encoding::kMXFP4)
      bits.decode_small(i, pairs);
    else
      bits.decode(i, t, pairs);
  }
};

// Scales that differ by unit.
template <Encoding E>
inline constexpr bool kHasUnitScales = !(E == Encoding::kF16 || E == Encoding::kFP8 || E == Encoding::kQ6_K);

// A warp has them in shared memory: scale and base of rows g and g + 8, by unit.
struct SlotScales {
  float4* of_unit;  // [8][kSlotUnits]

  static constexpr uint32_t kBytes = 8 * kSlotUnits * sizeof(float4);
};

// sum[c] += a slot times rows 8c .. 8c + 7 of x: [0], [1] row g of W by rows 2t and 2t + 1, [2], [3] row g + 8. Sums
// are by 2^-24 where kIsStored (kSlotSumFactor takes that back). `x(c, u)`: numbers 8t .. 8t + 7 of unit u of row g;
// x_sums(c, u): the sums of unit u of rows 2t and 2t + 1.
template <Encoding E, uint32_t kGroups>
__device__ inline void multiply_slot(const uint8_t* slot, uint32_t upper_index, uint32_t lower_index,
                                     const SlotLane& lane, const SlotScales& scales, uint32_t num_groups, auto&& x,
                                     auto&& x_sums, float (&sum)[kGroups][4]) {
  const uint32_t t = lane.t;
  SlotRow<E> upper, lower;
  upper.load(slot, 0, upper_index, lane);
  lower.load(slot, 1, lower_index, lane);
  if constexpr (kHasUnitScales<E>) {
    scales.of_unit[lane.g * kSlotUnits + t] = {upper.scale, upper.base, lower.scale, lower.base};
    __syncwarp();
  }
  float all[kGroups][4] = {};  // without scales, where they are those of all units
#pragma unroll
  for (uint32_t u = 0; u < kSlotUnits; ++u) {
    uint32_t up[4], low[4];
    upper.decode(static_cast<int>(u), t, up);
    lower.decode(static_cast<int>(u), t, low);
    float4 scale;
    if constexpr (kHasUnitScales<E>) scale = scales.of_unit[lane.g * kSlotUnits + u];
#pragma unroll
    for (uint32_t c = 0; c < kGroups; ++c) {
      if (c > 0 && c >= num_groups) continue;
      const uint4 words = x(c, u);
      if constexpr (!kHasUnitScales<E>) {
        mma_16x8x16(all[c], {up[0], low[0], up[2], low[2]}, {words.x, words.y});
        mma_16x8x16(all[c], {up[1], low[1], up[3], low[3]}, {words.z, words.w});
      } else {
        float even[4], odd[4];
        mma_16x8x16_first(even, {up[0], low[0], up[2], low[2]}, {words.x, words.y});
        mma_16x8x16_first(odd, {up[1], low[1], up[3], low[3]}, {words.z, words.w});
        float2 of_x{};
        if constexpr (kIsStored<E>) of_x = x_sums(c, u);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
          const float both = kIsStored<E> ? fmaf(odd[i], 1.0f / 16, even[i]) : odd[i] + even[i];
          sum[c][i] = fmaf(i < 2 ? scale.x : scale.z, both, sum[c][i]);
          if constexpr (kIsStored<E>) sum[c][i] = fmaf(i < 2 ? scale.y : scale.w, i % 2 ? of_x.y : of_x.x, sum[c][i]);
        }
      }
    }
  }
  if constexpr (!kHasUnitScales<E>) {
#pragma unroll
    for (uint32_t c = 0; c < kGroups; ++c)
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) sum[c][i] = fmaf(i < 2 ? upper.scale : lower.scale, all[c][i], sum[c][i]);
  }
}
template <Encoding E>
inline constexpr float kSlotSumFactor = kIsStored<E> ? 0x1p24f : 1.0f;

// Rows of x in f16 in shared memory, `stride` bytes each, of a whole number of steps: of each 8 numbers the pairs 0 and
// 2, then 1 and 3, as products take them. And the sums of their units: [pair][unit] for both rows of a pair.
struct SharedX {
  uint8_t* rows;
  float2* sums;
  uint32_t stride, num_units;

  // Rows [0, num_rows), each from row_of(r), by all threads of the block. Several loads of a thread are under way at a
  // time.
  template <Encoding E>
  __device__ void fill(uint32_t num_rows, uint32_t columns, auto row_of) const {
    constexpr uint32_t kAtOnce = 4;
    const uint32_t chunks = num_units * 4, total = num_rows * chunks;  // the four lanes of a unit have one row
    for (uint32_t first = threadIdx.x; first / kWarp * kWarp < total; first += kAtOnce * blockDim.x) {
      uint4 words[kAtOnce];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t n = first + i * blockDim.x;
        words[i] = n < total ? load_x(row_of(n / chunks), n % chunks * 8, columns) : uint4{};
      }
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t n = first + i * blockDim.x, r = n / chunks, chunk = n % chunks;
        if (n / kWarp * kWarp < total) store<E>(words[i], r, chunk, n < total);
      }
    }
  }
  // A chunk of 8 numbers of row r; by whole warps.
  template <Encoding E>
  __device__ void store(const uint4& words, uint32_t r, uint32_t chunk, bool is_inside) const {
    if (is_inside) *reinterpret_cast<uint4*>(rows + r * stride + chunk * 16) = {words.x, words.z, words.y, words.w};
    if constexpr (kIsStored<E>) {
      const float2 a = two_floats(half2_of(words.x)), b = two_floats(half2_of(words.y)),
                   c = two_floats(half2_of(words.z)), d = two_floats(half2_of(words.w));
      float sum = ((a.x + a.y) + (b.x + b.y)) + ((c.x + c.y) + (d.x + d.y));
      sum += __shfl_xor_sync(kFullMask, sum, 1);
      sum += __shfl_xor_sync(kFullMask, sum, 2);
      if (chunk % 4 == 0 && is_inside)
        reinterpret_cast<float*>(sums + (r / 2) * num_units + chunk / 4)[r % 2] = sum / kSlotSumFactor<E>;
    }
  }
};

}  // namespace llmrt::cuda
