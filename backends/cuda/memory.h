// Device and pinned host memory that frees itself. Every device byte is on a MemoryBook, so that reports add up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/base/status.h"

namespace llmrt::cuda {

enum class MemoryKind : uint8_t { kWeights, kF16Copies, kKv, kState, kArena, kAdapters, kOther };
inline constexpr int kNumMemoryKinds = 7;

class MemoryBook {
 public:
  void add(MemoryKind kind, int64_t bytes) {
    bytes_[static_cast<int>(kind)] += bytes;
    total_ += bytes;
    if (total_ > peak_) peak_ = total_;
  }
  uint64_t bytes(MemoryKind kind) const { return static_cast<uint64_t>(bytes_[static_cast<int>(kind)]); }
  uint64_t peak() const { return static_cast<uint64_t>(peak_); }

 private:
  int64_t bytes_[kNumMemoryKinds] = {};
  int64_t total_ = 0, peak_ = 0;
};

// One cudaMalloc of the current device. Movable.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer() { reset(); }
  // At least one byte is allocated, so that a pointer is there. Errors: out_of_memory, with `what` and the size.
  static Result<DeviceBuffer> create(MemoryBook* book, MemoryKind kind, uint64_t bytes, const char* what);
  void reset();

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  MemoryBook* book_ = nullptr;
  MemoryKind kind_ = MemoryKind::kOther;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Page-locked host memory, for copies that overlap.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer() { reset(); }
  static Result<PinnedBuffer> create(uint64_t bytes, const char* what);
  void reset();

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace llmrt::cuda
