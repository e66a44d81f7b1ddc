#include "core/adapter/adapter_image.h"

#include <algorithm>
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

bool is_same_matrix(const SourceTensor& a, const SourceTensor& b) {
  return a.bytes.data() == b.bytes.data() && a.bytes.size() == b.bytes.size();
}

// The experts of a stack that the adapter changes, and those between them. A group of one matrix is a stack of one.
struct ExpertRun {
  const AdapterGroup& group;
  uint32_t first = 0, count = 1;

  explicit ExpertRun(const AdapterGroup& of) : group(of) {
    if (of.num_experts == 0) return;
    uint32_t end = 0;
    first = of.num_experts;
    for (uint32_t e = 0; e < of.num_experts; ++e)
      for (size_t p = 0; p < of.num_parts(); ++p)
        if (of.parts[e * of.num_parts() + p].rank > 0) {
          first = std::min(first, e);
          end = e + 1;
        }
    LLMRT_CHECK(first < end, "a group is one that the adapter changes");
    count = end - first;
  }
  const AdapterPart& part(uint32_t expert, size_t p) const {
    return group.parts[(first + expert) * group.num_parts() + p];
  }
  uint32_t rank(size_t p) const {
    uint32_t most = 0;
    for (uint32_t e = 0; e < count; ++e) most = std::max(most, part(e, p).rank);
    return padded(most);
  }
  // The largest: those of others are told by smaller numbers of B.
  float scale(size_t p) const {
    float most = 0;
    for (uint32_t e = 0; e < count; ++e)
      if (part(e, p).rank > 0 && std::abs(part(e, p).scale) >= std::abs(most)) most = part(e, p).scale;
    return most;
  }
  bool shares_a() const {
    for (size_t p = 0; p < group.num_parts(); ++p)
      for (uint32_t e = 1; e < count; ++e) {
        const AdapterPart &one = part(0, p), &other = part(e, p);
        if (one.rank != other.rank ||
            (one.rank > 0 && (!is_same_matrix(one.a, other.a) || one.a_first != other.a_first)))
          return false;
      }
    return count > 1;
  }
  bool shares_b(size_t p) const {
    for (uint32_t e = 1; e < count; ++e) {
      const AdapterPart &one = part(0, p), &other = part(e, p);
      if (one.rank != other.rank || one.scale != other.scale || one.b_first != other.b_first ||
          one.b_row_stride != other.b_row_stride || !is_same_matrix(one.b, other.b) || one.b_rows != other.b_rows)
        return false;
    }
    return count > 1;
  }
};

// Where the parts of a run lie.
AdapterRun layout_of(const AdapterGroup& group, DType dtype) {
  const size_t num_parts = group.num_parts();
  LLMRT_CHECK(num_parts <= kAdapterPartsMax, "a group has at most kAdapterPartsMax parts");
  const ExpertRun experts(group);
  AdapterRun run;
  run.group = group.group;
  AdapterEntry& entry = run.entry;
  entry.num_parts = static_cast<uint32_t>(num_parts);
  if (group.num_experts > 0) {
    entry.expert_first = experts.first;
    entry.num_experts = experts.count;
  }
  uint64_t rows = 0;
  for (size_t p = 0; p < num_parts; ++p) {
    entry.rank += experts.rank(p);
    entry.rank_end[p] = entry.rank;
    entry.row_end[p] = static_cast<uint32_t>(rows += experts.part(0, p).rows);
    entry.scale[p] = experts.scale(p);
  }
  // Room for one matrix, or one of each expert.
  const auto add = [&](uint64_t numbers, bool is_shared, uint32_t* stride) {
    const uint64_t bytes = round_up(numbers * dtype_bytes(dtype), kAdapterUnitBytes);
    const bool is_one = is_shared || experts.count == 1;
    *stride = is_one ? 0 : static_cast<uint32_t>(bytes / kAdapterUnitBytes);
    run.size += bytes * (is_one ? 1 : experts.count);
  };
  add(entry.rank * group.columns, experts.shares_a(), &entry.a_stride);
  for (size_t p = 0; p < num_parts; ++p) {
    if (experts.rank(p) == 0) continue;
    entry.b_offset[p] = static_cast<uint32_t>(run.size / kAdapterUnitBytes);
    add(experts.part(0, p).rows * experts.rank(p), experts.shares_b(p), &entry.b_stride[p]);
  }
  LLMRT_CHECK(run.size / kAdapterUnitBytes <= UINT32_MAX, "a run's offsets fit into 32 bits");
  return run;
}

// Rows of A and columns of B beyond a part's rank stay zero.
void write_run(const AdapterGroup& group, const AdapterRun& run, NumberWriter* writer, DType dtype, std::byte* out) {
  const uint64_t number_bytes = dtype_bytes(dtype);
  const ExpertRun experts(group);
  std::vector<float> a_row(group.columns), b_row;
  for (uint32_t e = 0; e < experts.count; ++e)
    for (size_t p = 0; p < group.num_parts(); ++p) {
      const AdapterPart& part = experts.part(e, p);
      if (part.rank == 0) continue;
      const uint32_t rank = experts.rank(p);
      std::byte* a = out + uint64_t{e} * run.entry.a_stride * kAdapterUnitBytes;
      const uint64_t first = run.entry.rank_end[p] - rank;
      for (uint32_t row = 0; row < part.rank && (e == 0 || run.entry.a_stride > 0); ++row) {
        read_a_row(part, row, a_row);
        writer->write(a_row, a + (first + row) * group.columns * number_bytes);
      }
      if (e > 0 && run.entry.b_stride[p] == 0) continue;
      b_row.resize(part.rank);
      std::byte* b = out + (run.entry.b_offset[p] + uint64_t{e} * run.entry.b_stride[p]) * kAdapterUnitBytes;
      for (uint64_t row = 0; row < part.rows; ++row) {
        read_b_row(part, row, b_row);
        if (part.scale != run.entry.scale[p])
          for (float& number : b_row) number *= part.scale / run.entry.scale[p];
        writer->write(b_row, b + row * rank * number_bytes);
      }
    }
}

}  // namespace

uint64_t image_bytes(const Adapter& adapter, DType dtype) {
  uint64_t size = 0;
  for (const AdapterGroup& group : adapter.groups) size += layout_of(group, dtype).size;
  return size;
}

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
