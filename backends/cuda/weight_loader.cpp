#include "backends/cuda/weight_loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "backends/cuda/check.h"
#include "backends/cuda/weight_layout.h"
#include "backends/cuda/weights.h"

namespace llmrt::cuda {
namespace {

constexpr uint64_t kChunkBytes = 8 << 20;
constexpr unsigned kThreadsMax = 8;  // enough to read the page cache as fast as the bus takes it

struct Chunk {
  WeightId tensor;
  uint64_t row_begin;
  uint32_t num_rows;
};

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

// One of the copying threads. It fills one half of its staging memory while the device takes the other half.
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

Status load_tensors(const WeightTable& table, const std::vector<PackedMatrix>& targets, int device, MemoryBook* book,
                    const Progress& progress) {
  Work work{table, targets, cut(table)};
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
  return work.status;
}

}  // namespace llmrt::cuda
