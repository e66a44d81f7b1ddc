// An adapter as the bytes that go into the adapters' pool on a device: for each weight group that it changes one run,
// and the table entry that describes it. Made once for a dtype; read-only afterwards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/adapter/adapter.h"
#include "core/base/sha256.h"
#include "core/base/status.h"
#include "core/ops/adapter_ops.h"
#include "core/ops/tensor.h"

namespace llmrt {

inline constexpr uint64_t kAdapterUnitBytes = kAdapterAlignment;  // of offsets in an AdapterEntry

struct AdapterRun {
  WeightGroupId group = -1;
  uint64_t offset = 0, size = 0;  // in AdapterImage::bytes; multiples of kAdapterUnitBytes
  AdapterEntry entry;             // its offsets count from the run's start
};

struct AdapterImage {
  Digest digest = {};  // Adapter::digest
  DType dtype = DType::kF16;
  std::vector<int32_t> invocation_tokens;  // Adapter::invocation_tokens
  std::vector<std::byte> bytes;
  std::vector<AdapterRun> runs;  // in the order of their groups, without gaps in `bytes`

  bool changes_experts() const {
    return std::ranges::any_of(runs, [](const AdapterRun& run) { return run.entry.num_experts > 0; });
  }
  std::span<const std::byte> run_bytes(const AdapterRun& run) const {
    return std::span(bytes).subspan(run.offset, run.size);
  }
};

// Bytes of its image.
uint64_t image_bytes(const Adapter& adapter, DType dtype);

// A run holds A of all parts, rows of padded ranks one part after the other, then B of each part; of a stack those of
// each expert from the first to the last that the adapter changes, with ranks as the largest has, or one A or B where
// all of these have the same. `dtype`: f32, f16 or bf16, rounded to nearest, ties to even. Error: unsupported, for a
// number that has no finite form in `dtype`.
Result<AdapterImage> make_image(const Adapter& adapter, DType dtype);

}  // namespace llmrt
