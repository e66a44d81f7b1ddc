#include "backends/vulkan/weight_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/weights/small_floats.h"

namespace llmrt::vulkan {
namespace {

// Fields of a block, in the order of their planes, and how many bytes of a plane a woven row has before the next row's
// turn: what the lanes of a row load at a time. Twin: shaders/dequant.glsl.
struct Field {
  uint32_t offset, bytes;  // in the file's block
  uint32_t run = 0;        // a power of two; 0: never woven
};
std::span<const Field> fields_of(Encoding encoding) {
  static constexpr Field kF32[] = {{0, 4}}, k16[] = {{0, 2, 64}}, kQ4_0[] = {{2, 16, 64}, {0, 2, 8}},
                         kQ4_1[] = {{4, 16, 64}, {0, 4, 16}}, kQ5_0[] = {{6, 16, 64}, {2, 4, 16}, {0, 2, 8}},
                         kQ5_1[] = {{8, 16, 64}, {4, 4, 16}, {0, 4, 16}}, kQ8_0[] = {{2, 32, 64}, {0, 2, 4}},
                         kQ4_K[] = {{16, 128, 64}, {0, 16, 16}}, kQ5_K[] = {{48, 128, 64}, {16, 32, 32}, {0, 16, 16}},
                         kQ6_K[] = {{0, 128, 64}, {128, 64, 64}, {192, 16, 16}, {208, 2, 4}},
                         kMXFP4[] = {{1, 16, 64}, {0, 1, 4}}, kFP8[] = {{4, 128, 64}, {0, 4, 4}};
  switch (encoding) {
    case Encoding::kF32:
      return kF32;
    case Encoding::kF16:
    case Encoding::kBF16:
      return k16;
    case Encoding::kQ4_0:
      return kQ4_0;
    case Encoding::kQ4_1:
      return kQ4_1;
    case Encoding::kQ5_0:
      return kQ5_0;
    case Encoding::kQ5_1:
      return kQ5_1;
    case Encoding::kQ8_0:
      return kQ8_0;
    case Encoding::kQ4_K:
      return kQ4_K;
    case Encoding::kQ5_K:
      return kQ5_K;
    case Encoding::kQ6_K:
      return kQ6_K;
    case Encoding::kMXFP4:
      return kMXFP4;
    case Encoding::kFP8:
      return kFP8;
  }
  return {};
}

// A field of constant size: the compiler turns the copy into one move. `run` of 0: the row has all turns.
template <uint32_t kBytes>
void gather(const std::byte* source, uint64_t num_blocks, uint32_t block_bytes, uint32_t run, std::byte* target) {
  if (run == 0) {
    for (uint64_t b = 0; b < num_blocks; ++b) std::memcpy(target + b * kBytes, source + b * block_bytes, kBytes);
    return;
  }
  constexpr uint32_t kPiece = std::min(kBytes, 64u);  // runs are no longer
  for (uint64_t b = 0; b < num_blocks; ++b)
    for (uint32_t piece = 0; piece < kBytes; piece += kPiece) {
      const uint64_t at = b * kBytes + piece, in_run = at & (run - 1);
      std::memcpy(target + (at - in_run) * kWovenRows + in_run, source + b * block_bytes + piece, kPiece);
    }
}

void gather(const std::byte* source, uint64_t num_blocks, uint32_t block_bytes, uint32_t bytes, uint32_t run,
            std::byte* target) {
  if (bytes == block_bytes && run > 0) {  // 16-bit floats: runs lie in one piece in the file too
    for (uint64_t at = 0; at < num_blocks * bytes; at += run) std::memcpy(target + at * kWovenRows, source + at, run);
    return;
  }
  switch (bytes) {
    case 1:
      return gather<1>(source, num_blocks, block_bytes, run, target);
    case 2:
      return gather<2>(source, num_blocks, block_bytes, run, target);
    case 4:
      return gather<4>(source, num_blocks, block_bytes, run, target);
    case 16:
      return gather<16>(source, num_blocks, block_bytes, run, target);
    case 32:
      return gather<32>(source, num_blocks, block_bytes, run, target);
    case 64:
      return gather<64>(source, num_blocks, block_bytes, run, target);
    case 128:
      return gather<128>(source, num_blocks, block_bytes, run, target);
    default:
      LLMRT_CHECK(false, "a field of no known size");
  }
}

// What f16 kernels ask of a row. Below 2^-14 f16 has fewer bits, at last none, so its largest number must be above
// that, and numbers below are then rounded by no more than that one is.
constexpr int kLeastExponent = -13;
// Powers of two that the factors of small floats (shaders/dequant.glsl kSmallFactor) bring to f16's greatest.
constexpr int kGreatestMxfp4 = 128, kLeastExactMxfp4 = 104;
constexpr float kGreatestFp8 = 128;

bool mxfp4_fits_f16(const uint8_t* block, uint64_t num_blocks) {
  constexpr int kExponents[8] = {0, -1, 0, 0, 1, 1, 2, 2};  // of e2m1's numbers
  int greatest = INT32_MIN, least = INT32_MAX;
  for (const uint8_t* const end = block + num_blocks * 17; block < end; block += 17) {
    const int e = block[0];
    if (e > kGreatestMxfp4) return false;  // of zeros too: their product with infinity is none
    uint8_t most = 0;
    for (int i = 1; i < 17; ++i) most = std::max<uint8_t>(most, std::max(block[i] & 7, block[i] >> 4 & 7));
    if (most == 0) continue;
    greatest = std::max(greatest, e - 127 + kExponents[most]);
    least = std::min(least, e);
  }
  return least >= kLeastExactMxfp4 || greatest >= kLeastExponent;
}

bool fp8_fits_f16(const uint8_t* block, uint64_t num_blocks) {
  float greatest = 0;
  for (const uint8_t* const end = block + num_blocks * 132; block < end; block += 132) {
    float scale = 0;
    std::memcpy(&scale, block, 4);
    uint8_t most = 0;
    for (int i = 4; i < 132; ++i) most = std::max<uint8_t>(most, block[i] & 127);
    if (most == 127 || !(std::fabs(scale) <= kGreatestFp8)) return false;
    greatest = std::max(greatest, std::fabs(scale) * e4m3_value(most));
  }
  return greatest == 0 || greatest >= std::ldexp(1.0f, kLeastExponent);
}

}  // namespace

uint32_t row_words(Encoding encoding, uint64_t columns) {
  const uint64_t num_blocks = columns / geometry(encoding).elements_block;
  uint64_t bytes = 0;
  for (const Field& field : fields_of(encoding)) bytes += round_up<uint64_t>(num_blocks * field.bytes, 4);
  return static_cast<uint32_t>(round_up<uint64_t>(bytes, 16) / 4);
}

void arrange_row(Encoding encoding, uint64_t columns, const std::byte* row, std::byte* target) {
  const EncodingGeometry& block = geometry(encoding);
  const uint64_t num_blocks = columns / block.elements_block;
  std::byte* const end = target + row_words(encoding, columns) * 4ull;
  if (!is_quantized(encoding)) {
    std::memcpy(target, row, num_blocks * block.bytes_block);
    target += num_blocks * block.bytes_block;
  } else {
    for (const Field& field : fields_of(encoding)) {
      gather(row + field.offset, num_blocks, block.bytes_block, field.bytes, 0, target);
      const uint64_t bytes = num_blocks * field.bytes, padded = round_up<uint64_t>(bytes, 4);
      std::memset(target + bytes, 0, padded - bytes);
      target += padded;
    }
  }
  std::memset(target, 0, static_cast<size_t>(end - target));
}

void weave_rows(Encoding encoding, uint64_t columns, const std::byte* rows, uint64_t bytes_row, std::byte* target) {
  const EncodingGeometry& block = geometry(encoding);
  const uint64_t num_blocks = columns / block.elements_block;
  std::byte* const end = target + row_words(encoding, columns) * 4ull * kWovenRows;
  for (const Field& field : fields_of(encoding)) {
    for (uint32_t r = 0; r < kWovenRows; ++r)
      gather(rows + r * bytes_row + field.offset, num_blocks, block.bytes_block, field.bytes, field.run,
             target + r * field.run);
    target += num_blocks * field.bytes * kWovenRows;
  }
  std::memset(target, 0, static_cast<size_t>(end - target));
}

bool fits_f16(Encoding encoding, uint64_t columns, const std::byte* row) {
  const auto* block = reinterpret_cast<const uint8_t*>(row);
  const uint64_t num_blocks = columns / geometry(encoding).elements_block;
  if (encoding == Encoding::kMXFP4) return mxfp4_fits_f16(block, num_blocks);
  return encoding != Encoding::kFP8 || fp8_fits_f16(block, num_blocks);
}

bool can_weave(const WeightTable& table, WeightId id, uint64_t rows_bytes_max) {
  const WeightTensor& tensor = table.tensors[id];
  const uint64_t num_blocks = tensor.columns / geometry(tensor.encoding).elements_block;
  for (const Field& field : fields_of(tensor.encoding))
    if (field.run == 0 || num_blocks * field.bytes % field.run != 0) return false;
  for (const WeightGroup& group : table.groups)
    for (const RowSegment& segment : group.segments)
      if (segment.tensor == id && (segment.row_begin % kWovenRows != 0 || segment.num_rows % kWovenRows != 0))
        return false;
  return tensor.rows % kWovenRows == 0 &&
         row_words(tensor.encoding, tensor.columns) * 4ull * kWovenRows <= rows_bytes_max;
}

uint64_t rows_of_bytes(uint64_t bytes, uint64_t bytes_row, uint64_t step) {
  return std::max<uint64_t>(bytes / bytes_row / step, 1) * step;
}

}  // namespace llmrt::vulkan
