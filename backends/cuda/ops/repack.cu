// Loading: the file's blocks into planes (packed_matrix.h), and the range check of bf16 matrices. One thread a unit of
// 32 numbers; reads are byte by byte, as the file's blocks have any alignment. Bandwidth matters little: this runs once,
// behind the copies from the host.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/weights.h"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 256;

// Where the file's block of 32 keeps its nibbles, fifth bits and scales.
struct Block32 {
  uint32_t nibbles, fifth, scales, scale_bytes;
};
__device__ Block32 block32(Encoding encoding) {
  switch (encoding) {
    case Encoding::kQ4_1: return {4, 0, 0, 4};
    case Encoding::kQ5_0: return {6, 2, 0, 2};
    case Encoding::kQ5_1: return {8, 4, 0, 4};
    default: return {2, 0, 0, 2};  // q4_0
  }
}

__device__ void put_nibble(uint32_t (&words)[4], uint32_t e, uint32_t value) {
  words[e / 8] |= (value & 15) << ((e % 8) / 2 * 4 + e % 2 * 16);
}
__device__ void put_fifth(uint32_t* word, uint32_t e, uint32_t bit) {
  *word |= (bit & 1) << (e / 2 + e % 2 * 16);
}
__device__ void put_pair(uint32_t (&words)[2], uint32_t e, uint32_t bits) {
  words[e / 16] |= (bits & 3) << ((e % 16) / 2 * 2 + e % 2 * 16);
}

struct Planes {
  uint8_t* plane[kNumPlanes];
};

// Elements j and j + 16 share the byte j.
__device__ void repack_block32(Encoding encoding, const uint8_t* raw, const Planes& out, uint64_t unit) {
  const Block32 at = block32(encoding);
  uint32_t nibbles[4] = {}, fifth = 0;
  for (uint32_t e = 0; e < kUnit; ++e) {
    put_nibble(nibbles, e, raw[at.nibbles + e % 16] >> (e / 16 * 4));
    if (at.fifth) put_fifth(&fifth, e, raw[at.fifth + e / 8] >> (e % 8));
  }
  reinterpret_cast<uint4*>(out.plane[0])[unit] = {nibbles[0], nibbles[1], nibbles[2], nibbles[3]};
  if (at.fifth) reinterpret_cast<uint32_t*>(out.plane[1])[unit] = fifth;
  for (uint32_t i = 0; i < at.scale_bytes; ++i) out.plane[2][unit * at.scale_bytes + i] = raw[at.scales + i];
}

__device__ void repack_q8_0(const uint8_t* raw, const Planes& out, uint64_t unit) {
  for (uint32_t e = 0; e < kUnit; ++e) out.plane[0][unit * kUnit + e] = raw[2 + e];
  for (uint32_t i = 0; i < 2; ++i) out.plane[2][unit * 2 + i] = raw[i];
}

// q4_k: d, d_min, 12 bytes of scales, nibbles. q5_k: 32 bytes of fifth bits before the nibbles. Sub-blocks j and j + 1
// (j even) share 32 bytes of nibbles; bit j of fifth byte i is that of element i of sub-block j.
__device__ void repack_k45(bool has_fifth, const uint8_t* block, const Planes& out, uint64_t unit) {
  const uint32_t j = static_cast<uint32_t>(unit % 8);
  const uint8_t* fifth_bytes = block + 16;
  const uint8_t* nibble_bytes = block + (has_fifth ? 48 : 16) + j / 2 * 32;
  uint32_t nibbles[4] = {}, fifth = 0;
  for (uint32_t e = 0; e < kUnit; ++e) {
    put_nibble(nibbles, e, nibble_bytes[e] >> (j % 2 * 4));
    if (has_fifth) put_fifth(&fifth, e, fifth_bytes[e] >> j);
  }
  reinterpret_cast<uint4*>(out.plane[0])[unit] = {nibbles[0], nibbles[1], nibbles[2], nibbles[3]};
  if (has_fifth) reinterpret_cast<uint32_t*>(out.plane[1])[unit] = fifth;
  if (j != 0) return;
  const uint8_t* packed = block + 4;
  uint32_t scales_low = 0, mins_low = 0, upper = 0;
  for (uint32_t s = 0; s < 8; ++s) {
    const uint32_t scale = s < 4 ? packed[s] & 63 : (packed[s + 4] & 15) | (packed[s - 4] >> 6) << 4;
    const uint32_t min = s < 4 ? packed[s + 4] & 63 : (packed[s + 4] >> 4) | (packed[s] >> 6) << 4;
    scales_low |= (scale & 15) << (4 * s);
    mins_low |= (min & 15) << (4 * s);
    upper |= (scale >> 4 | min >> 4 << 2) << (4 * s);
  }
  const uint32_t d = block[0] | block[1] << 8 | block[2] << 16 | static_cast<uint32_t>(block[3]) << 24;
  reinterpret_cast<uint4*>(out.plane[2])[unit / 8] = {d, scales_low, mins_low, upper};
}

// q6_k: 128 bytes of low nibbles, 64 of upper bit pairs, 16 scales, d. Units 0..3 are the runs of the first half of 128
// elements: nibbles of bytes 0..31 and 32..63 (low, then high), bit pairs 0..3 of the same 32 bytes.
__device__ void repack_q6_k(const uint8_t* block, const Planes& out, uint64_t unit) {
  const uint32_t j = static_cast<uint32_t>(unit % 8), half = j / 4, run = j % 4;
  const uint8_t* low = block + half * 64 + run % 2 * 32;
  const uint8_t* high = block + 128 + half * 32;
  uint32_t nibbles[4] = {}, pairs[2] = {};
  for (uint32_t e = 0; e < kUnit; ++e) {
    put_nibble(nibbles, e, low[e] >> (run / 2 * 4));
    put_pair(pairs, e, high[e] >> (run * 2));
  }
  reinterpret_cast<uint4*>(out.plane[0])[unit] = {nibbles[0], nibbles[1], nibbles[2], nibbles[3]};
  reinterpret_cast<uint2*>(out.plane[1])[unit] = {pairs[0], pairs[1]};
  for (uint32_t i = 0; i < 2; ++i) out.plane[2][unit * 2 + i] = block[192 + j * 2 + i];
  if (j != 0) return;
  for (uint32_t i = 0; i < 2; ++i) out.plane[3][unit / 8 * 2 + i] = block[208 + i];
}

__global__ void __launch_bounds__(kThreads)
    repack_kernel(Encoding encoding, uint32_t block_bytes, const uint8_t* raw, Planes out, uint64_t num_units) {
  const uint64_t unit = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (unit >= num_units) return;
  switch (encoding) {
    case Encoding::kQ4_0:
    case Encoding::kQ4_1:
    case Encoding::kQ5_0:
    case Encoding::kQ5_1: return repack_block32(encoding, raw + unit * block_bytes, out, unit);
    case Encoding::kQ8_0: return repack_q8_0(raw + unit * block_bytes, out, unit);
    case Encoding::kQ4_K: return repack_k45(false, raw + unit / 8 * block_bytes, out, unit);
    case Encoding::kQ5_K: return repack_k45(true, raw + unit / 8 * block_bytes, out, unit);
    case Encoding::kQ6_K: return repack_q6_k(raw + unit / 8 * block_bytes, out, unit);
    default: return;
  }
}

// Rows of plain numbers to rows with padding.
__global__ void __launch_bounds__(kThreads)
    repad_kernel(const uint8_t* raw, uint32_t raw_row_bytes, uint8_t* out, uint32_t out_row_bytes, uint64_t num_bytes) {
  const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < num_bytes) out[i / raw_row_bytes * out_row_bytes + i % raw_row_bytes] = raw[i];
}

__global__ void __launch_bounds__(kThreads) f16_range_kernel(const uint16_t* numbers, uint64_t count, uint32_t* unsafe) {
  constexpr uint16_t kFirstBeyond = 0x4780;  // bf16 bits of 65,536; the next lower bf16 is 65,280
  bool beyond = false;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += uint64_t{gridDim.x} * kThreads)
    beyond |= (numbers[i] & 0x7fff) >= kFirstBeyond;
  if (beyond) atomicOr(unsafe, 1u);
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
    const uint64_t units = uint64_t{num_rows} * part.columns / kUnit;
    return launch_on(stream, false, "load_weights: repack", repack_kernel, {blocks_of(units), kThreads}, encoding,
                     geometry(encoding).bytes_block, raw, out, units);
  }
  const uint32_t raw_row = static_cast<uint32_t>(row_bytes(encoding, part.columns));
  const uint32_t out_row = static_cast<uint32_t>(plane_row_bytes(encoding, 0, part.columns));
  const uint64_t bytes = uint64_t{num_rows} * raw_row;
  return launch_on(stream, false, "load_weights: repad", repad_kernel, {blocks_of(bytes), kThreads}, raw, raw_row,
                   out.plane[0], out_row, bytes);
}

Status check_f16_range(const PackedMatrix& matrix, uint32_t* unsafe, cudaStream_t stream) {
  constexpr uint32_t kBlocks = 1024;
  const uint64_t count = matrix.rows * plane_row_bytes(matrix.encoding, 0, matrix.columns) / 2;
  return launch_on(stream, false, "load_weights: range check", f16_range_kernel, {kBlocks, kThreads},
                   reinterpret_cast<const uint16_t*>(matrix.plane[0]), count, unsafe);
}

}  // namespace llmrt::cuda
