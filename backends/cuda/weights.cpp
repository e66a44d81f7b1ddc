#include "backends/cuda/weights.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "backends/cuda/check.h"
#include "backends/cuda/op_context.h"
#include "backends/cuda/ops/matmul.h"
#include "core/backend/f16_copies.h"
#include "core/base/checked_math.h"

namespace llmrt::cuda {
namespace {

constexpr uint64_t kAlignment = 256;
constexpr uint64_t kChunkBytes = 8 << 20;
constexpr unsigned kThreadsMax = 8;  // enough to draw from the page cache what the bus takes

struct Chunk {
  WeightId tensor;
  uint64_t row_begin;
  uint32_t num_rows;
};

// A plain tensor whose rows need no padding lies on the device exactly as in the file.
bool is_raw_copy(const WeightTensor& tensor) {
  return !is_quantized(tensor.encoding) && plane_row_bytes(tensor.encoding, 0, tensor.columns) == tensor.bytes_row();
}

std::vector<Chunk> cut(const WeightTable& table) {
  std::vector<Chunk> chunks;
  for (size_t id = 0; id < table.tensors.size(); ++id) {
    const WeightTensor& tensor = table.tensors[id];
    if (tensor.bytes() == 0) continue;
    const uint64_t rows = std::max<uint64_t>(1, kChunkBytes / tensor.bytes_row());
    for (uint64_t row = 0; row < tensor.rows; row += rows)
      chunks.push_back({static_cast<WeightId>(id), row, static_cast<uint32_t>(std::min(rows, tensor.rows - row))});
  }
  return chunks;
}

// Columns are a multiple of 32, so that every matrix in f16 begins at 64 bytes.
uint64_t f16_bytes(const PackedMatrix& quantized) {
  return uint64_t{quantized.rows} * quantized.columns * 2;
}

// One of the copying threads: fills one half of its staging memory while the device takes the other.
class Loader {
 public:
  ~Loader() {
    if (stream_) {
      cudaStreamSynchronize(stream_);  // after a failure copies may still read the staging memory
      cudaStreamDestroy(stream_);
    }
    for (Half& half : halves_)
      if (half.done) cudaEventDestroy(half.done);
  }

  Status create(MemoryBook* book, uint64_t staging_bytes) {
    CUDA_TRY(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "load_weights: stream");
    for (Half& half : halves_) {
      CUDA_TRY(cudaEventCreateWithFlags(&half.done, cudaEventDisableTiming), "load_weights: event");
      Result<PinnedBuffer> pinned = PinnedBuffer::create(staging_bytes, "load_weights: staging");
      if (!pinned) return pinned.error();
      half.pinned = *std::move(pinned);
      Result<DeviceBuffer> raw = DeviceBuffer::create(book, MemoryKind::kOther, staging_bytes, "load_weights: staging");
      if (!raw) return raw.error();
      half.raw = *std::move(raw);
    }
    return {};
  }

  Status load(const WeightTensor& tensor, const PackedMatrix& target, const Chunk& chunk) {
    Half& half = halves_[next_++ % 2];
    CUDA_TRY(cudaEventSynchronize(half.done), "load_weights: wait");
    const uint64_t offset = chunk.row_begin * tensor.bytes_row();
    const uint64_t bytes = chunk.num_rows * tensor.bytes_row();
    if (tensor.data)
      std::memcpy(half.pinned.data(), tensor.data + offset, bytes);
    else
      tensor.generate(offset, {half.pinned.data(), bytes});
    if (is_raw_copy(tensor)) {
      CUDA_TRY(cudaMemcpyAsync(const_cast<uint8_t*>(target.plane[0]) + offset, half.pinned.data(), bytes,
                               cudaMemcpyHostToDevice, stream_),
               "load_weights: copy");
    } else {
      CUDA_TRY(cudaMemcpyAsync(half.raw.data(), half.pinned.data(), bytes, cudaMemcpyHostToDevice, stream_),
               "load_weights: copy");
      if (Status status = repack(target, half.raw.as<uint8_t>(), chunk.row_begin, chunk.num_rows, stream_); !status)
        return status;
    }
    CUDA_TRY(cudaEventRecord(half.done, stream_), "load_weights: event");
    return {};
  }

  Status finish() {
    CUDA_TRY(cudaStreamSynchronize(stream_), "load_weights: finish");
    return {};
  }

 private:
  struct Half {
    PinnedBuffer pinned;
    DeviceBuffer raw;
    cudaEvent_t done = nullptr;
  };
  Half halves_[2];
  cudaStream_t stream_ = nullptr;
  uint32_t next_ = 0;
};

// What the copying threads share.
struct Work {
  const WeightTable& table;
  const std::vector<PackedMatrix>& targets;
  std::vector<Chunk> chunks;
  std::atomic<size_t> next{0};
  std::atomic<uint64_t> done_bytes{0};
  std::atomic<unsigned> running{0};
  std::atomic<bool> failed{false};
  std::mutex mutex = {};
  Status status = {};  // the first failure

  void fail(Status what) {
    const std::lock_guard lock(mutex);
    if (!failed.exchange(true)) status = std::move(what);
  }

  Status load_all(Loader* loader) {
    for (size_t i = next++; i < chunks.size() && !failed; i = next++) {
      const Chunk& chunk = chunks[i];
      const WeightTensor& tensor = table.tensors[static_cast<size_t>(chunk.tensor)];
      if (Status status_now = loader->load(tensor, targets[static_cast<size_t>(chunk.tensor)], chunk); !status_now)
        return status_now;
      done_bytes += chunk.num_rows * tensor.bytes_row();
    }
    return loader->finish();
  }

  void run(Loader* loader, int device) {
    if (const cudaError_t code = cudaSetDevice(device); code != cudaSuccess)
      fail(cuda_error(code, "load_weights: device"));
    else if (Status result = load_all(loader); !result)
      fail(std::move(result));
    --running;
  }
};

}  // namespace

const float* OpContext::weight_vector(WeightId id) const {
  return reinterpret_cast<const float*>(weights->tensor(id).plane[0]);
}

// Whole tensors that stand next to each other in a group, in one encoding, are laid plane by plane behind each other.
Status DeviceWeights::place(const WeightTable& table, MemoryBook* book) {
  std::vector<std::vector<WeightId>> units;
  std::vector<bool> placed(table.tensors.size());
  for (const WeightGroup& group : table.groups) {
    bool joined = false;
    for (const RowSegment& segment : group.segments) {
      const WeightTensor& tensor = table.tensors[static_cast<size_t>(segment.tensor)];
      const bool whole = segment.row_begin == 0 && segment.num_rows == tensor.rows;
      if (placed[static_cast<size_t>(segment.tensor)] || !whole) {
        joined = false;
        continue;
      }
      if (!joined || table.tensors[static_cast<size_t>(units.back().back())].encoding != tensor.encoding)
        units.emplace_back();
      units.back().push_back(segment.tensor);
      placed[static_cast<size_t>(segment.tensor)] = true;
      joined = true;
    }
  }
  for (size_t id = 0; id < table.tensors.size(); ++id)
    if (!placed[id]) units.push_back({static_cast<WeightId>(id)});

  uint64_t total = 0;
  bool padded = false;
  std::vector<uint64_t> offsets(table.tensors.size() * kNumPlanes);
  for (const std::vector<WeightId>& unit : units) {
    for (int plane = 0; plane < kNumPlanes; ++plane) {
      total = round_up(total, kAlignment);
      for (WeightId id : unit) {
        const WeightTensor& tensor = table.tensors[static_cast<size_t>(id)];
        offsets[static_cast<size_t>(id * kNumPlanes + plane)] = total;
        total += tensor.rows * plane_row_bytes(tensor.encoding, plane, tensor.columns);
        padded |= !is_quantized(tensor.encoding) && !is_raw_copy(tensor);
      }
    }
  }
  Result<DeviceBuffer> slab = DeviceBuffer::create(book, MemoryKind::kWeights, total, "load_weights");
  if (!slab) return slab.error();
  slab_ = *std::move(slab);
  if (padded) CUDA_TRY(cudaMemset(slab_.data(), 0, slab_.bytes()), "load_weights: clear");

  tensors_.assign(table.tensors.size(), {});
  for (size_t id = 0; id < table.tensors.size(); ++id) {
    const WeightTensor& tensor = table.tensors[id];
    PackedMatrix& target = tensors_[id];
    target.encoding = tensor.encoding;
    target.rows = static_cast<uint32_t>(tensor.rows);
    target.columns = static_cast<uint32_t>(tensor.columns);
    target.row_stride = static_cast<uint32_t>(plane_row_bytes(tensor.encoding, 0, tensor.columns));
    for (int plane = 0; plane < kNumPlanes; ++plane)
      if (step_bytes(tensor.encoding).plane[plane])
        target.plane[plane] = slab_.as<uint8_t>() + offsets[id * kNumPlanes + static_cast<size_t>(plane)];
  }
  return {};
}

// bf16 within f16's range becomes f16, which the matrix units take with f16 activations; what stays bf16 is multiplied
// without them.
Status DeviceWeights::narrow_bf16() {
  std::vector<uint32_t> beyond(tensors_.size());
  MemoryBook scratch_book;
  Result<DeviceBuffer> flags =
      DeviceBuffer::create(&scratch_book, MemoryKind::kOther, beyond.size() * 4, "load_weights: range flags");
  if (!flags) return flags.error();
  CUDA_TRY(cudaMemset(flags->data(), 0, flags->bytes()), "load_weights: range flags");
  bool any = false;
  for (size_t id = 0; id < tensors_.size(); ++id) {
    if (tensors_[id].encoding != Encoding::kBF16 || tensors_[id].rows == 0) continue;
    any = true;
    if (Status status = check_f16_range(tensors_[id], flags->as<uint32_t>() + id, nullptr); !status) return status;
  }
  if (!any) return {};
  CUDA_TRY(cudaMemcpy(beyond.data(), flags->data(), beyond.size() * 4, cudaMemcpyDeviceToHost),
           "load_weights: range flags");
  for (size_t id = 0; id < tensors_.size(); ++id) {
    PackedMatrix& tensor = tensors_[id];
    if (tensor.encoding != Encoding::kBF16 || tensor.rows == 0 || beyond[id]) continue;
    if (Status status = bf16_to_f16(tensor, nullptr); !status) return status;
    tensor.encoding = Encoding::kF16;
  }
  CUDA_TRY(cudaDeviceSynchronize(), "load_weights: bf16 to f16");
  return {};
}

void DeviceWeights::build_groups(const WeightTable& table) {
  groups_.clear();
  for (const WeightGroup& group : table.groups) {
    DeviceGroup out;
    out.rows = static_cast<uint32_t>(group.rows);
    out.columns = static_cast<uint32_t>(group.columns);
    if (group.bias >= 0) out.bias = reinterpret_cast<const float*>(tensor(group.bias).plane[0]);
    uint32_t column = 0;
    for (const RowSegment& segment : group.segments) {
      const uint32_t num_rows = static_cast<uint32_t>(segment.num_rows);
      const PackedMatrix part = tensor(segment.tensor).slice(segment.row_begin, num_rows);
      if (!out.runs.empty() && out.runs.back().matrix.continues_with(part))
        out.runs.back().matrix.rows += num_rows;
      else if (num_rows > 0)
        out.runs.push_back({part, {}, column});
      column += num_rows;
    }
    groups_.push_back(std::move(out));
  }
}

uint64_t DeviceWeights::f16_bytes_max() const {
  uint64_t bytes = 0;
  for (const DeviceGroup& group : groups_)
    for (const GroupRun& run : group.runs)
      if (is_quantized(run.matrix.encoding) && run.f16.rows == 0) bytes = std::max(bytes, f16_bytes(run.matrix));
  return bytes;
}

Status DeviceWeights::add_f16_copies(uint64_t bytes_max, MemoryBook* book, const OpContext& at) {
  std::vector<GroupRun*> runs;
  for (DeviceGroup& group : groups_) {
    for (GroupRun& run : group.runs) {
      run.f16 = {};
      if (is_quantized(run.matrix.encoding)) runs.push_back(&run);
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
    if (Status status = write_f16(matrix, to, at); !status) return status;
    runs[i]->f16 = {{to}, matrix.rows, matrix.columns, matrix.columns * 2, Encoding::kF16};
    to += bytes[i];
  }
  CUDA_TRY(cudaStreamSynchronize(at.stream), "f16 copies of weights");
  return {};
}

Status DeviceWeights::load(const WeightTable& table, int device, MemoryBook* book, const Progress& progress) {
  if (Status status = place(table, book); !status) return status;
  Work work{table, tensors_, cut(table)};
  uint64_t staging_bytes = 1;
  for (const Chunk& chunk : work.chunks)
    staging_bytes =
        std::max(staging_bytes, chunk.num_rows * table.tensors[static_cast<size_t>(chunk.tensor)].bytes_row());
  const unsigned num_threads = static_cast<unsigned>(std::min<size_t>(
      std::clamp(std::thread::hardware_concurrency() / 2, 1u, kThreadsMax), std::max<size_t>(work.chunks.size(), 1)));

  std::vector<Loader> loaders(num_threads);
  for (Loader& loader : loaders)
    if (Status status = loader.create(book, staging_bytes); !status) return status;
  CUDA_TRY(cudaDeviceSynchronize(), "load_weights: clear");  // the loaders' streams do not wait for the default one
  work.running = num_threads;
  std::vector<std::thread> threads;
  for (Loader& loader : loaders) threads.emplace_back([&work, &loader, device] { work.run(&loader, device); });
  while (work.running > 0) {
    if (progress) progress(work.done_bytes, table.bytes());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (std::thread& thread : threads) thread.join();
  if (!work.status) return work.status;
  if (Status status = narrow_bf16(); !status) return status;
  build_groups(table);
  if (progress) progress(table.bytes(), table.bytes());
  return {};
}

}  // namespace llmrt::cuda
