#include "core/adapter/adapter_image.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/base/half.h"

namespace llmrt {
namespace {

uint32_t padded(uint32_t rank) {
  return round_up(rank, kAdapterRankStep);
}

uint16_t bf16_bits_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// Writes numbers behind each other; remembers one that has no finite form.
class NumberWriter {
 public:
  explicit NumberWriter(DType dtype) : dtype_(dtype) {}

  void write(std::span<const float> numbers, std::byte* out) {
    for (const float number : numbers) {
      if (dtype_ == DType::kF32) {
        std::memcpy(out, &number, sizeof number);
      } else {
        const bool is_half = dtype_ == DType::kF16;
        const uint16_t bits = is_half ? f16_bits(number) : bf16_bits_of(number);
        if (!std::isfinite(is_half ? f16_value(bits) : bf16_value(bits))) too_large_ = number;
        std::memcpy(out, &bits, sizeof bits);
      }
      out += dtype_bytes(dtype_);
    }
  }

  float too_large() const { return too_large_; }  // 0: none was

 private:
  DType dtype_;
  float too_large_ = 0;
};

// Where the parts of a run lie.
AdapterRun layout_of(const AdapterGroup& group, DType dtype) {
  LLMRT_CHECK(group.parts.size() <= kAdapterPartsMax, "a group has at most kAdapterPartsMax parts");
  AdapterRun run;
  run.group = group.group;
  AdapterEntry& entry = run.entry;
  entry.num_parts = static_cast<uint32_t>(group.parts.size());
  uint64_t rows = 0;
  for (size_t p = 0; p < group.parts.size(); ++p) {
    entry.rank += padded(group.parts[p].rank);
    entry.rank_end[p] = entry.rank;
    entry.row_end[p] = static_cast<uint32_t>(rows += group.parts[p].rows);
    entry.scale[p] = group.parts[p].scale;
  }
  run.size = round_up(entry.rank * group.columns * dtype_bytes(dtype), kAdapterUnitBytes);
  for (size_t p = 0; p < group.parts.size(); ++p) {
    if (group.parts[p].rank == 0) continue;
    entry.b_offset[p] = static_cast<uint32_t>(run.size / kAdapterUnitBytes);
    run.size += round_up(group.parts[p].rows * padded(group.parts[p].rank) * dtype_bytes(dtype), kAdapterUnitBytes);
  }
  LLMRT_CHECK(run.size / kAdapterUnitBytes <= UINT32_MAX, "a run's offsets fit into 32 bits");
  return run;
}

// Rows of A and columns of B beyond a part's rank stay zero.
void write_run(const AdapterGroup& group, const AdapterRun& run, NumberWriter* writer, DType dtype, std::byte* out) {
  const uint64_t number_bytes = dtype_bytes(dtype);
  std::vector<float> a_row(group.columns), b_row;
  for (size_t p = 0; p < group.parts.size(); ++p) {
    const AdapterPart& part = group.parts[p];
    if (part.rank == 0) continue;
    const uint64_t first = run.entry.rank_end[p] - padded(part.rank);
    for (uint32_t row = 0; row < part.rank; ++row) {
      read_a_row(part, row, a_row);
      writer->write(a_row, out + (first + row) * group.columns * number_bytes);
    }
    b_row.resize(part.rank);
    std::byte* b = out + run.entry.b_offset[p] * kAdapterUnitBytes;
    for (uint64_t row = 0; row < part.rows; ++row) {
      read_b_row(part, row, b_row);
      writer->write(b_row, b + row * padded(part.rank) * number_bytes);
    }
  }
}

}  // namespace

Result<AdapterImage> make_image(const Adapter& adapter, DType dtype) {
  LLMRT_CHECK(dtype != DType::kI32, "an adapter's numbers are floats");
  AdapterImage image;
  image.digest = adapter.digest;
  image.dtype = dtype;
  image.invocation_tokens = adapter.invocation_tokens;
  uint64_t size = 0;
  for (const AdapterGroup& group : adapter.groups) {
    AdapterRun run = layout_of(group, dtype);
    run.offset = size;
    size += run.size;
    image.runs.push_back(run);
  }
  image.bytes.resize(size);
  for (size_t i = 0; i < image.runs.size(); ++i) {
    NumberWriter writer(dtype);
    write_run(adapter.groups[i], image.runs[i], &writer, dtype, image.bytes.data() + image.runs[i].offset);
    if (writer.too_large() != 0)
      return make_error(ErrorCode::kUnsupported, "unsupported adapter: {}: expected numbers that {} can hold, found {}",
                        adapter.path, dtype_name(dtype), writer.too_large());
  }
  return image;
}

}  // namespace llmrt
