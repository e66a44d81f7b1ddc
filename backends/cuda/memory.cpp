#include "backends/cuda/memory.h"

#include <algorithm>

#include "backends/cuda/check.h"

namespace llmrt::cuda {

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  book_ = other.book_;
  kind_ = other.kind_;
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Result<DeviceBuffer> DeviceBuffer::create(MemoryBook* book, MemoryKind kind, uint64_t bytes, const char* what) {
  bytes = std::max<uint64_t>(bytes, 1);
  void* data = nullptr;
  if (const cudaError_t code = cudaMalloc(&data, bytes); code != cudaSuccess) {
    cudaGetLastError();  // not sticky: the device stays usable
    return cuda_error(code, fmt::format("{}: {} bytes", what, bytes));
  }
  DeviceBuffer buffer;
  buffer.book_ = book;
  buffer.kind_ = kind;
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.bytes_ = bytes;
  book->add(kind, static_cast<int64_t>(bytes));
  return buffer;
}

void DeviceBuffer::reset() {
  if (!data_) return;
  cudaFree(data_);  // waits for the device, so nothing still reads it
  book_->add(kind_, -static_cast<int64_t>(bytes_));
  data_ = nullptr;
  bytes_ = 0;
}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Result<PinnedBuffer> PinnedBuffer::create(uint64_t bytes, const char* what) {
  bytes = std::max<uint64_t>(bytes, 1);
  void* data = nullptr;
  if (const cudaError_t code = cudaHostAlloc(&data, bytes, cudaHostAllocDefault); code != cudaSuccess) {
    cudaGetLastError();
    return cuda_error(code, fmt::format("{}: {} bytes of pinned memory", what, bytes));
  }
  PinnedBuffer buffer;
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.bytes_ = bytes;
  return buffer;
}

void PinnedBuffer::reset() {
  if (data_) cudaFreeHost(data_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace llmrt::cuda
