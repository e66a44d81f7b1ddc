#include "core/weights/hf_rows.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/base/check.h"
#include "core/base/half.h"

namespace llmrt {
namespace {

// A maker of whole rows from one of a single row.
template <typename MakeRow>
MakeRows row_by_row(uint64_t bytes_row, MakeRow make) {
  return [bytes_row, make = std::move(make)](uint64_t byte_offset, std::span<std::byte> out) {
    LLMRT_CHECK(byte_offset % bytes_row == 0 && out.size() % bytes_row == 0, "whole rows are asked for");
    for (uint64_t done = 0; done < out.size(); done += bytes_row)
      make((byte_offset + done) / bytes_row, out.data() + done);
  };
}

}  // namespace

float number_of(const SourceTensor& tensor, uint64_t i) {
  if (*tensor.encoding == Encoding::kF32) {
    float value;
    std::memcpy(&value, tensor.bytes.data() + i * sizeof(value), sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, tensor.bytes.data() + i * sizeof(bits), sizeof(bits));
  return *tensor.encoding == Encoding::kBF16 ? bf16_value(bits) : f16_value(bits);
}

MakeRows widened_rows(const SourceTensor& tensor) {
  const uint64_t columns = tensor.dims[0];
  return row_by_row(columns * sizeof(float), [tensor, columns](uint64_t row, std::byte* out) {
    for (uint64_t c = 0; c < columns; ++c) {
      const float value = number_of(tensor, row * columns + c);
      std::memcpy(out + c * sizeof(value), &value, sizeof(value));
    }
  });
}

MakeRows widened_choice(const SourceTensor& tensor, const RowChoice& choice) {
  return row_by_row(choice.rows_part * sizeof(float), [tensor, choice](uint64_t part, std::byte* out) {
    for (uint64_t i = 0; i < choice.rows_part; ++i) {
      const float value = number_of(tensor, choice.source(part * choice.rows_part + i));
      std::memcpy(out + i * sizeof(value), &value, sizeof(value));
    }
  });
}

MakeRows stacked_rows(std::vector<SourceTensor> parts) {
  const uint64_t rows_part = parts.front().dims[1];
  const uint64_t bytes_row = row_bytes(*parts.front().encoding, parts.front().dims[0]);
  const auto shared = std::make_shared<const std::vector<SourceTensor>>(std::move(parts));
  return row_by_row(bytes_row, [shared, rows_part, bytes_row](uint64_t row, std::byte* out) {
    const SourceTensor& part = (*shared)[row / rows_part];
    const uint64_t offset = row % rows_part * bytes_row;
    if (part.generate)
      part.generate(offset, {out, bytes_row});
    else
      std::memcpy(out, part.bytes.data() + offset, bytes_row);
  });
}

MakeRows fp8_rows(const SourceTensor& weight, const Fp8Scales& scales) {
  constexpr uint64_t kBlock = geometry(Encoding::kFP8).elements_block, kBytes = geometry(Encoding::kFP8).bytes_block;
  static_assert(kBytes == kBlock + sizeof(float), "a block is its scale and its numbers");
  const uint64_t columns = weight.dims[0];
  const uint64_t rows = weight.dims[1], num_scales = scales.tensor.dims[0] * scales.tensor.dims[1];
  const auto scale_of = [scales, num_scales, rows](uint64_t row, uint64_t column) {
    if (scales.block_rows > 0)
      return number_of(scales.tensor, row / scales.block_rows * scales.tensor.dims[0] + column / scales.block_columns);
    return number_of(scales.tensor, num_scales == rows ? row : 0);
  };
  const std::byte* numbers = weight.bytes.data();
  return row_by_row(row_bytes(Encoding::kFP8, columns), [=](uint64_t row, std::byte* out) {
    for (uint64_t column = 0; column < columns; column += kBlock, out += kBytes) {
      const float scale = scale_of(row, column);
      std::memcpy(out, &scale, sizeof(scale));
      std::memcpy(out + sizeof(scale), numbers + row * columns + column, kBlock);
    }
  });
}

MakeRows mxfp4_rows(const SourceTensor& blocks, const SourceTensor& exponents, const RowChoice& choice) {
  constexpr uint64_t kNibbles = 16, kBytes = geometry(Encoding::kMXFP4).bytes_block;
  const uint64_t blocks_row = blocks.dims[1];
  const std::byte *numbers = blocks.bytes.data(), *powers = exponents.bytes.data();
  return row_by_row(blocks_row * kBytes, [=](uint64_t row, std::byte* out) {
    for (uint64_t b = 0; b < blocks_row; ++b, out += kBytes) {
      const uint64_t block = choice.source(row) * blocks_row + b;
      const std::byte* from = numbers + block * kNibbles;
      out[0] = powers[block];
      for (uint64_t i = 0; i < kNibbles; i += 2) {
        const std::byte low = from[i / 2], high = from[kNibbles / 2 + i / 2];
        out[1 + i] = (low & std::byte{0x0f}) | (high << 4);
        out[2 + i] = (low >> 4) | (high & std::byte{0xf0});
      }
    }
  });
}

MakeRows transposed_rows(const SourceTensor& tensor, const RowChoice& choice) {
  constexpr uint64_t kRowsTogether = 64;  // of one part, so that a line of the cache is read once
  const uint64_t width = tensor.dims[0], columns = tensor.dims[1];  // there
  const uint64_t bytes = row_bytes(*tensor.encoding, 1), bytes_row = columns * bytes;
  const std::byte* from = tensor.bytes.data();
  return [=](uint64_t byte_offset, std::span<std::byte> out) {
    LLMRT_CHECK(byte_offset % bytes_row == 0 && out.size() % bytes_row == 0, "whole rows are asked for");
    const uint64_t begin = byte_offset / bytes_row, end = begin + out.size() / bytes_row;
    for (uint64_t row = begin; row < end;) {
      const uint64_t part = row / choice.rows_part;
      const uint64_t stop = std::min({end, (part + 1) * choice.rows_part, row + kRowsTogether});
      for (uint64_t c = 0; c < columns; ++c)
        for (uint64_t r = row; r < stop; ++r)
          std::memcpy(out.data() + (r - begin) * bytes_row + c * bytes,
                      from + ((part * columns + c) * width + choice.source(r) - part * width) * bytes, bytes);
      row = stop;
    }
  };
}

}  // namespace llmrt
