#include "backends/cuda/weights.h"

#include <algorithm>

#include "backends/cuda/check.h"
#include "backends/cuda/op_context.h"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/weight_loader.h"
#include "core/backend/f16_copies.h"
#include "core/base/checked_math.h"

namespace llmrt::cuda {
namespace {

// Weights that f16 may not hold.
bool has_wide_range(const PackedMatrix& matrix) {
  const Encoding encoding = matrix.encoding;
  return matrix.rows > 0 && (encoding == Encoding::kBF16 || encoding == Encoding::kMXFP4 || encoding == Encoding::kFP8);
}

// Which matmul may write out in f16.
bool has_f16_copy(const PackedMatrix& matrix) {
  return is_quantized(matrix.encoding) && !matrix.is_beyond_f16;
}

// Columns are a multiple of 32, so every matrix in f16 begins at a multiple of 64 bytes.
uint64_t f16_bytes(const PackedMatrix& quantized) {
  return uint64_t{quantized.rows} * quantized.columns * 2;
}

}  // namespace

const float* OpContext::weight_vector(WeightId id) const {
  return reinterpret_cast<const float*>(weights->tensor(id).plane[0]);
}

Status DeviceWeights::allocate(const WeightTable& table, MemoryBook* book) {
  const WeightLayout layout = lay_out(table);
  Result<DeviceBuffer> slab = DeviceBuffer::create(book, MemoryKind::kWeights, layout.bytes, "load_weights");
  if (!slab) return slab.error();
  slab_ = *std::move(slab);
  if (layout.is_padded) CUDA_TRY(cudaMemset(slab_.data(), 0, slab_.bytes()), "load_weights: clear");
  tensors_ = place(table, layout, slab_.as<uint8_t>());
  return {};
}

// bf16 within f16's range becomes f16, which the matrix units take with f16 activations; what stays bf16 is multiplied
// without them. Of mxfp4 and fp8 it is noted what f16 cannot hold.
Status DeviceWeights::check_ranges() {
  std::vector<uint32_t> ranges(tensors_.size());
  MemoryBook scratch_book;
  Result<DeviceBuffer> flags =
      DeviceBuffer::create(&scratch_book, MemoryKind::kOther, ranges.size() * 4, "load_weights: range flags");
  if (!flags) return flags.error();
  CUDA_TRY(cudaMemset(flags->data(), 0, flags->bytes()), "load_weights: range flags");
  bool any = false;
  for (size_t id = 0; id < tensors_.size(); ++id) {
    if (!has_wide_range(tensors_[id])) continue;
    any = true;
    if (Status status = check_f16_range(tensors_[id], flags->as<uint32_t>() + id, nullptr); !status) return status;
  }
  if (!any) return {};
  CUDA_TRY(cudaMemcpy(ranges.data(), flags->data(), ranges.size() * 4, cudaMemcpyDeviceToHost),
           "load_weights: range flags");
  for (size_t id = 0; id < tensors_.size(); ++id) {
    PackedMatrix& tensor = tensors_[id];
    if (!has_wide_range(tensor)) continue;
    if (is_quantized(tensor.encoding)) {
      tensor.is_beyond_f16 = ranges[id] != kRangeReached;
      continue;
    }
    if (ranges[id] & kRangePassed) continue;
    if (Status status = bf16_to_f16(tensor, nullptr); !status) return status;
    tensor.encoding = Encoding::kF16;
  }
  CUDA_TRY(cudaDeviceSynchronize(), "load_weights: bf16 to f16");
  return {};
}

uint64_t DeviceWeights::f16_bytes_max() const {
  uint64_t bytes = 0;
  for (const DeviceGroup& group : groups_)
    for (const GroupRun& run : group.runs)
      if (group.num_experts == 0 && has_f16_copy(run.matrix) && run.f16.rows == 0)
        bytes = std::max(bytes, f16_bytes(run.matrix));
  return bytes;
}

Status DeviceWeights::add_f16_copies(uint64_t bytes_max, MemoryBook* book, const OpContext& at) {
  std::vector<GroupRun*> runs;
  for (DeviceGroup& group : groups_) {
    for (GroupRun& run : group.runs) {
      run.f16 = {};
      // Experts' kernels decode: a step of few rows an expert reads what the file has.
      if (group.num_experts == 0 && has_f16_copy(run.matrix)) runs.push_back(&run);
    }
  }
  f16_slab_.reset();
  std::vector<uint64_t> bytes;
  for (const GroupRun* run : runs) bytes.push_back(f16_bytes(run->matrix));
  const std::vector<size_t> chosen = choose_f16_copies(bytes, bytes_max);
  if (chosen.empty()) return {};
  uint64_t total = 0;
  for (size_t i : chosen) total += bytes[i];
  Result<DeviceBuffer> slab = DeviceBuffer::create(book, MemoryKind::kF16Copies, total, "f16 copies of weights");
  if (!slab) return slab.error();
  f16_slab_ = *std::move(slab);
  uint8_t* to = f16_slab_.as<uint8_t>();
  for (size_t i : chosen) {
    const PackedMatrix& matrix = runs[i]->matrix;
    if (Status status = dequantize(choose_dequantize(matrix), matrix, to, at); !status) return status;
    runs[i]->f16 = {{to}, matrix.rows, matrix.columns, matrix.columns * 2, Encoding::kF16};
    to += bytes[i];
  }
  CUDA_TRY(cudaStreamSynchronize(at.stream), "f16 copies of weights");
  return {};
}

Status DeviceWeights::load(const WeightTable& table, int device, MemoryBook* book, const Progress& progress) {
  if (Status status = allocate(table, book); !status) return status;
  if (Status status = load_tensors(table, tensors_, device, book, progress); !status) return status;
  if (Status status = check_ranges(); !status) return status;
  groups_ = make_groups(table, tensors_);
  if (progress) progress(table.bytes(), table.bytes());
  return {};
}

}  // namespace llmrt::cuda
