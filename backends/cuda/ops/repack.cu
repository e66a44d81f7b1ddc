// Loading: the file's blocks into planes (packed_matrix.h), what lies beyond f16's range, and bf16 matrices to f16. One
// thread a step of 128 columns; reads are byte by byte, as the file's blocks have any alignment. Bandwidth matters
// little: this runs once, behind the copies from the host.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/weights.h"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kBlocks = 1024;  // of kernels that go over all numbers of a matrix

struct Planes {
  uint8_t* plane[kNumPlanes];
};

// Where blocks of 32 keep their nibbles, fifth bits and scales.
struct Block32 {
  uint32_t nibbles, fifth, scale_bytes;
};
__device__ Block32 block32(Encoding encoding) {
  switch (encoding) {
    case Encoding::kQ4_1:
      return {4, 0, 4};
    case Encoding::kQ5_0:
      return {6, 2, 2};
    case Encoding::kQ5_1:
      return {8, 4, 4};
    default:
      return {2, 0, 2};  // q4_0
  }
}

// The bits of a step, filled number by number and then stored.
struct StepBits {
  uint32_t nibbles[16] = {}, fifth[4] = {}, pairs[8] = {};

  // `value`: nibble, then fifth bit or bit pair above it.
  __device__ void put(uint32_t unit, uint32_t column, uint32_t value) {
    const uint32_t t = column / 8, p = column % 8 / 2, s = column % 2;
    nibbles[4 * t + unit] |= (value & 15) << (p * 4 + s * 16);
    fifth[t] |= (value >> 4 & 1) << (unit * 4 + p + s * 16);
    pairs[2 * t + unit / 2] |= (value >> 4 & 3) << ((unit % 2 * 4 + p) * 2 + s * 16);
  }
  __device__ void store(const Planes& out, uint64_t step, bool has_fifth, bool has_pairs) const {
    for (uint32_t i = 0; i < 16; ++i) reinterpret_cast<uint32_t*>(out.plane[0])[step * 16 + i] = nibbles[i];
    for (uint32_t i = 0; has_fifth && i < 4; ++i) reinterpret_cast<uint32_t*>(out.plane[1])[step * 4 + i] = fifth[i];
    for (uint32_t i = 0; has_pairs && i < 8; ++i) reinterpret_cast<uint32_t*>(out.plane[1])[step * 8 + i] = pairs[i];
  }
};

// Elements j and j + 16 share the byte j. Units from num_units on are padding.
__device__ void repack_block32(Encoding encoding, uint32_t block_bytes, const uint8_t* raw, uint32_t num_units,
                               const Planes& out, uint64_t step) {
  const Block32 at = block32(encoding);
  StepBits bits;
  for (uint32_t u = 0; u < 4; ++u) {
    const uint8_t* block = raw + u * block_bytes;
    for (uint32_t e = 0; e < kUnit && u < num_units; ++e) {
      const uint32_t nibble = block[at.nibbles + e % 16] >> (e / 16 * 4) & 15;
      const uint32_t fifth = at.fifth ? block[at.fifth + e / 8] >> (e % 8) & 1 : 0;
      bits.put(u, e, nibble | fifth << 4);
    }
    for (uint32_t i = 0; i < at.scale_bytes; ++i)
      out.plane[2][(step * 4 + u) * at.scale_bytes + i] = u < num_units ? block[i] : 0;
  }
  bits.store(out, step, at.fifth != 0, false);
}

// The bf16 of 2^(e - 127): subnormal where e is 0.
__device__ uint16_t exponent_bf16(uint32_t e) {
  return static_cast<uint16_t>(e == 0 ? 0x0040 : e == 255 ? 0x7fc0 : e << 7);
}

// As q4_0, behind an exponent.
__device__ void repack_mxfp4(uint32_t block_bytes, const uint8_t* raw, uint32_t num_units, const Planes& out,
                             uint64_t step) {
  StepBits bits;
  for (uint32_t u = 0; u < 4; ++u) {
    const uint8_t* block = raw + u * block_bytes;
    for (uint32_t e = 0; e < kUnit && u < num_units; ++e) bits.put(u, e, block[1 + e % 16] >> (e / 16 * 4) & 15);
    reinterpret_cast<uint16_t*>(out.plane[2])[step * 4 + u] = u < num_units ? exponent_bf16(block[0]) : 0;
  }
  bits.store(out, step, false, false);
}

// A block is a step. The bits of e4m3 are read as those of f16, whose exponent is 8 greater.
__device__ void repack_fp8(const uint8_t* block, const Planes& out, uint64_t step) {
  bool has_nan = false;
  for (uint32_t i = 0; i < kStep; ++i) {
    const uint32_t u = i / kUnit, e = i % kUnit;
    out.plane[0][step * 128 + u / 2 * 64 + e / 8 * 16 + u % 2 * 8 + e % 8] = block[4 + i];
    has_nan |= (block[4 + i] & 127) == 127;
  }
  const uint32_t bits = block[0] | block[1] << 8 | block[2] << 16 | static_cast<uint32_t>(block[3]) << 24;
  const float scale = has_nan ? __uint_as_float(0x7fc00000u) : 256 * __uint_as_float(bits);
  const float near = __half2float(__float2half_rn(scale));
  const uint32_t both = half2_bits(__floats2half2_rn(near, scale - near));
  reinterpret_cast<uint2*>(out.plane[2])[step] = {__float_as_uint(scale), both};
}

__device__ void repack_q8_0(uint32_t block_bytes, const uint8_t* raw, uint32_t num_units, const Planes& out,
                            uint64_t step) {
  for (uint32_t u = 0; u < 4; ++u) {
    const uint8_t* block = raw + u * block_bytes;
    for (uint32_t e = 0; e < kUnit; ++e)
      out.plane[0][step * 128 + u / 2 * 64 + e / 8 * 16 + u % 2 * 8 + e % 8] = u < num_units ? block[2 + e] : 0;
    for (uint32_t i = 0; i < 2; ++i) out.plane[2][(step * 4 + u) * 2 + i] = u < num_units ? block[i] : 0;
  }
}

// q4_k: d, d_min, 12 bytes of scales, nibbles. q5_k: 32 bytes of fifth bits before the nibbles. Units j and j + 1 (j
// even) share 32 bytes of nibbles; bit j of fifth byte e is that of element e of unit j.
__device__ void repack_k45(bool has_fifth, const uint8_t* block, const Planes& out, uint64_t step) {
  StepBits bits;
  for (uint32_t u = 0; u < 4; ++u) {
    const uint32_t j = static_cast<uint32_t>(step % 2) * 4 + u;
    const uint8_t* nibbles = block + (has_fifth ? 48 : 16) + j / 2 * 32;
    for (uint32_t e = 0; e < kUnit; ++e)
      bits.put(u, e, (nibbles[e] >> (j % 2 * 4) & 15) | (has_fifth ? block[16 + e] >> j & 1 : 0) << 4);
  }
  bits.store(out, step, has_fifth, false);
  if (step % 2 != 0) return;
  const uint8_t* packed = block + 4;
  uint32_t scales = 0, mins = 0, upper = 0;
  for (uint32_t j = 0; j < 8; ++j) {
    const uint32_t scale = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    const uint32_t min = j < 4 ? packed[j + 4] & 63 : (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
    const uint32_t bit = j % 4 * 8 + j / 4 * 4;
    scales |= (scale & 15) << bit;
    mins |= (min & 15) << bit;
    upper |= (scale >> 4 | min >> 4 << 2) << bit;
  }
  const uint32_t d = block[0] | block[1] << 8 | block[2] << 16 | static_cast<uint32_t>(block[3]) << 24;
  reinterpret_cast<uint4*>(out.plane[2])[step / 2] = {d, scales, mins, upper};
}

// q6_k: 128 bytes of low nibbles, 64 of upper bit pairs, 16 scales, d. The units of a step are the runs of a half of
// 128 elements: nibbles of bytes 0..31 and 32..63 (low, then high), bit pairs 0..3 of the same 32 bytes.
__device__ void repack_q6_k(const uint8_t* block, const Planes& out, uint64_t step) {
  const uint32_t half = static_cast<uint32_t>(step % 2);
  StepBits bits;
  for (uint32_t u = 0; u < 4; ++u) {
    const uint8_t* low = block + half * 64 + u % 2 * 32;
    const uint8_t* high = block + 128 + half * 32;
    for (uint32_t e = 0; e < kUnit; ++e) bits.put(u, e, (low[e] >> (u / 2 * 4) & 15) | (high[e] >> (u * 2) & 3) << 4);
  }
  bits.store(out, step, false, true);
  for (uint32_t i = 0; i < 8; ++i) out.plane[2][step * 8 + i] = block[192 + half * 8 + i];
  if (half != 0) return;
  for (uint32_t i = 0; i < 2; ++i) out.plane[3][step + i] = block[208 + i];
}

__global__ void __launch_bounds__(kThreads) repack_kernel(Encoding encoding, uint32_t block_bytes, const uint8_t* raw,
                                                          Planes out, uint32_t units_row, uint64_t num_steps) {
  const uint64_t step = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (step >= num_steps) return;
  const uint32_t steps_row = (units_row + 3) / 4;
  const uint64_t row = step / steps_row;
  const uint32_t unit = static_cast<uint32_t>(step % steps_row) * 4, num_units = min(4u, units_row - unit);
  const uint64_t first = row * units_row + unit;
  switch (encoding) {
    case Encoding::kQ4_0:
    case Encoding::kQ4_1:
    case Encoding::kQ5_0:
    case Encoding::kQ5_1:
      return repack_block32(encoding, block_bytes, raw + first * block_bytes, num_units, out, step);
    case Encoding::kQ8_0:
      return repack_q8_0(block_bytes, raw + first * block_bytes, num_units, out, step);
    case Encoding::kQ4_K:
      return repack_k45(false, raw + first / 8 * block_bytes, out, step);
    case Encoding::kQ5_K:
      return repack_k45(true, raw + first / 8 * block_bytes, out, step);
    case Encoding::kQ6_K:
      return repack_q6_k(raw + first / 8 * block_bytes, out, step);
    case Encoding::kMXFP4:
      return repack_mxfp4(block_bytes, raw + first * block_bytes, num_units, out, step);
    case Encoding::kFP8:
      return repack_fp8(raw + first / 4 * block_bytes, out, step);
    default:
      return;
  }
}

// Rows of plain numbers to rows with padding.
__global__ void __launch_bounds__(kThreads)
    repad_kernel(const uint8_t* raw, uint32_t raw_row_bytes, uint8_t* out, uint32_t out_row_bytes, uint64_t num_bytes) {
  const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < num_bytes) out[i / raw_row_bytes * out_row_bytes + i % raw_row_bytes] = raw[i];
}

__global__ void __launch_bounds__(kThreads) f16_range_kernel(const uint16_t* numbers, uint64_t count, uint32_t* range) {
  constexpr uint16_t kFirstBeyond = 0x4780;  // bf16 bits of 65,536; the next lower bf16 is 65,280
  bool beyond = false;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += uint64_t{gridDim.x} * kThreads)
    beyond |= (numbers[i] & 0x7fff) >= kFirstBeyond;
  if (beyond) atomicOr(range, kRangePassed);
}

// `scales`: plane 2, 8 bytes a step. What is not a number passes the range too.
__global__ void __launch_bounds__(kThreads)
    scale_range_kernel(Encoding encoding, const uint2* scales, uint64_t num_steps, uint32_t* range) {
  uint32_t found = 0;
  const auto look_at = [&](float scale, float least, float greatest) {
    if (!(fabsf(scale) <= greatest)) found |= kRangePassed;
    if (fabsf(scale) >= least) found |= kRangeReached;
  };
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < num_steps; i += uint64_t{gridDim.x} * kThreads) {
    const uint2 words = scales[i];
    if (encoding == Encoding::kFP8) {
      look_at(__uint_as_float(words.x), 0x1p-14f, 146 * 256.0f);  // of 448 to some 2^-13; to 65,408
      continue;
    }
    for (const uint32_t word : {words.x, words.y})  // of 6 to 1.5 * 2^-13; 2 is what decode_scaled takes
      for (const uint32_t bits : {word << 16, word & 0xffff0000u}) look_at(__uint_as_float(bits), 0x1p-15f, 2);
  }
  if (found) atomicOr(range, found);
}

// bf16 to f16 in place, two numbers a word.
__global__ void __launch_bounds__(kThreads) bf16_to_f16_kernel(uint32_t* pairs, uint64_t count) {
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += uint64_t{gridDim.x} * kThreads) {
    const uint32_t pair = pairs[i];
    pairs[i] = half2_bits(__floats2half2_rn(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000)));
  }
}

uint32_t blocks_of(uint64_t num_threads) {
  return static_cast<uint32_t>(ceil_div<uint64_t>(num_threads, kThreads));
}

}  // namespace

Status repack(const PackedMatrix& target, const uint8_t* raw, uint64_t row_begin, uint32_t num_rows,
              cudaStream_t stream) {
  const PackedMatrix part = target.slice(row_begin, num_rows);
  Planes out;
  for (int p = 0; p < kNumPlanes; ++p) out.plane[p] = const_cast<uint8_t*>(part.plane[p]);
  const Encoding encoding = part.encoding;
  if (is_quantized(encoding)) {
    const uint32_t units_row = part.columns / kUnit;
    const uint64_t steps = uint64_t{num_rows} * ceil_div(part.columns, kStep);
    return launch_on(stream, false, "load_weights: repack", repack_kernel, {blocks_of(steps), kThreads}, encoding,
                     geometry(encoding).bytes_block, raw, out, units_row, steps);
  }
  const uint32_t raw_row = static_cast<uint32_t>(row_bytes(encoding, part.columns));
  const uint32_t out_row = static_cast<uint32_t>(plane_row_bytes(encoding, 0, part.columns));
  const uint64_t bytes = uint64_t{num_rows} * raw_row;
  return launch_on(stream, false, "load_weights: repad", repad_kernel, {blocks_of(bytes), kThreads}, raw, raw_row,
                   out.plane[0], out_row, bytes);
}

Status check_f16_range(const PackedMatrix& matrix, uint32_t* range, cudaStream_t stream) {
  if (is_quantized(matrix.encoding)) {
    const uint64_t num_steps = uint64_t{matrix.rows} * ceil_div(matrix.columns, kStep);
    return launch_on(stream, false, "load_weights: range check", scale_range_kernel, {kBlocks, kThreads},
                     matrix.encoding, reinterpret_cast<const uint2*>(matrix.plane[2]), num_steps, range);
  }
  const uint64_t count = matrix.rows * plane_row_bytes(matrix.encoding, 0, matrix.columns) / 2;
  return launch_on(stream, false, "load_weights: range check", f16_range_kernel, {kBlocks, kThreads},
                   reinterpret_cast<const uint16_t*>(matrix.plane[0]), count, range);
}

Status bf16_to_f16(const PackedMatrix& matrix, cudaStream_t stream) {
  uint32_t* pairs = reinterpret_cast<uint32_t*>(const_cast<uint8_t*>(matrix.plane[0]));
  const uint64_t count = matrix.rows * plane_row_bytes(matrix.encoding, 0, matrix.columns) / 4;  // rows are of 16 bytes
  return launch_on(stream, false, "load_weights: bf16 to f16", bf16_to_f16_kernel, {kBlocks, kThreads}, pairs, count);
}

}  // namespace llmrt::cuda
