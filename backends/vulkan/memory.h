// Device memory as kernels see it: a few large buffers, each with an address. A tensor is a View (view.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backends/vulkan/device.h"
#include "backends/vulkan/view.h"
#include "core/base/status.h"

namespace llmrt::vulkan {

enum class MemoryKind : uint8_t { kWeights, kF16Copies, kKv, kState, kArena, kAdapters, kOther };
inline constexpr int kNumMemoryKinds = 7;

class MemoryBook {
 public:
  void add(MemoryKind kind, int64_t bytes);
  uint64_t bytes(MemoryKind kind) const { return bytes_[static_cast<int>(kind)]; }
  uint64_t total() const { return total_; }
  uint64_t peak() const { return peak_; }

 private:
  uint64_t bytes_[kNumMemoryKinds] = {};
  uint64_t total_ = 0, peak_ = 0;
};

// One VkBuffer with memory and an address of its own. Movable; freed when it goes.
class Buffer {
 public:
  enum class Where : uint8_t { kDevice, kHostWrite, kHostRead };
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { reset(); }
  // Errors: out_of_memory, with the size. Device buffers of unified memory are mapped too.
  static Result<Buffer> create(const Device& device, MemoryBook* book, MemoryKind kind, Where where, uint64_t bytes);

  VkBuffer handle() const { return handle_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t address() const { return address_; }
  std::byte* mapped() const { return mapped_; }  // null when the host can't reach it
  explicit operator bool() const { return handle_ != VK_NULL_HANDLE; }
  void reset();

 private:
  const Device* device_ = nullptr;
  MemoryBook* book_ = nullptr;
  MemoryKind kind_ = MemoryKind::kOther;
  VkBuffer handle_ = VK_NULL_HANDLE;
  VkDeviceMemory memory_ = VK_NULL_HANDLE;
  uint64_t bytes_ = 0, address_ = 0;
  std::byte* mapped_ = nullptr;
};

// Items packed into as few buffers as the device allows.
class RangeSet {
 public:
  // `item_bytes` in order; every item starts on `alignment` bytes. Errors: out_of_memory; missing_feature when an item
  // is larger than any buffer may be, with both numbers.
  static Result<RangeSet> create(const Device& device, MemoryBook* book, MemoryKind kind,
                                 std::span<const uint64_t> item_bytes, uint64_t alignment = 256,
                                 Buffer::Where where = Buffer::Where::kDevice);
  const View& operator[](size_t item) const { return views_[item]; }
  const std::vector<View>& views() const { return views_; }
  const std::vector<std::unique_ptr<Buffer>>& buffers() const { return buffers_; }

 private:
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<View> views_;
};

}  // namespace llmrt::vulkan
