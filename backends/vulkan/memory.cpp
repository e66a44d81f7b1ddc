#include "backends/vulkan/memory.h"

#include <algorithm>
#include <utility>

#include "backends/vulkan/check.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
void MemoryBook::add(MemoryKind kind, int64_t bytes) {
  bytes_[static_cast<int>(kind)] += bytes;
  total_ += bytes;
  peak_ = std::max(peak_, total_);
}

// ---- Buffer --------------------------------------------------------------------------------------------------------

Result<Buffer> Buffer::create(const Device& device, MemoryBook* book, MemoryKind kind, Where where, uint64_t bytes) {
  const DeviceApi& api = device.api();
  Buffer buffer;
  buffer.device_ = &device;
  buffer.bytes_ = round_up<uint64_t>(std::max<uint64_t>(bytes, 1), 256);
  VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
  info.size = buffer.bytes_;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
               VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  const std::string what = fmt::format("allocate {} bytes", buffer.bytes_);
  VK_TRY(api.CreateBuffer(device.handle(), &info, nullptr, &buffer.handle_), what);
  VkMemoryRequirements needs{};
  api.GetBufferMemoryRequirements(device.handle(), buffer.handle_, &needs);

  constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  constexpr VkMemoryPropertyFlags kHost = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  std::vector<VkMemoryPropertyFlags> wishes;
  bool map = true;
  switch (where) {
    case Where::kDevice:
      map = device.traits().unified_memory && device.memory_type(needs.memoryTypeBits, kLocal | kHost) >= 0;
      wishes = map ? std::vector{kLocal | kHost} : std::vector{kLocal};
      break;
    case Where::kHostWrite:
      wishes = {kHost};
      break;
    case Where::kHostRead:
      wishes = {kHost | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, kHost};
      break;
  }
  int type = -1;
  for (size_t i = 0; i < wishes.size() && type < 0; ++i) type = device.memory_type(needs.memoryTypeBits, wishes[i]);
  if (type < 0) return make_error(ErrorCode::kMissingFeature, "vulkan: {}: no memory type for it", what);
  // NVIDIA's driver takes 1 ms a GB for memory of one buffer alone, 20 for other memory, and as long again to free it.
  VkMemoryDedicatedAllocateInfo dedicated{VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO};
  dedicated.buffer = buffer.handle_;
  VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, &dedicated};
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
  allocate.pNext = &flags;
  allocate.allocationSize = needs.size;
  allocate.memoryTypeIndex = static_cast<uint32_t>(type);
  VK_TRY(api.AllocateMemory(device.handle(), &allocate, nullptr, &buffer.memory_), what);
  VK_TRY(api.BindBufferMemory(device.handle(), buffer.handle_, buffer.memory_, 0), what);
  VkBufferDeviceAddressInfo address{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO};
  address.buffer = buffer.handle_;
  buffer.address_ = api.GetBufferDeviceAddress(device.handle(), &address);
  if (map) {
    void* pointer = nullptr;
    VK_TRY(api.MapMemory(device.handle(), buffer.memory_, 0, VK_WHOLE_SIZE, 0, &pointer), what);
    buffer.mapped_ = static_cast<std::byte*>(pointer);
  }
  buffer.book_ = book;
  buffer.kind_ = kind;
  book->add(kind, static_cast<int64_t>(buffer.bytes_));
  return buffer;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = other.device_;
  book_ = std::exchange(other.book_, nullptr);
  kind_ = other.kind_;
  handle_ = std::exchange(other.handle_, VK_NULL_HANDLE);
  memory_ = std::exchange(other.memory_, VK_NULL_HANDLE);
  bytes_ = std::exchange(other.bytes_, 0);
  address_ = other.address_;
  mapped_ = std::exchange(other.mapped_, nullptr);
  return *this;
}

void Buffer::reset() {
  if (!handle_ && !memory_) return;
  device_->api().DestroyBuffer(device_->handle(), handle_, nullptr);
  device_->api().FreeMemory(device_->handle(), memory_, nullptr);
  if (book_) book_->add(kind_, -static_cast<int64_t>(bytes_));
  handle_ = VK_NULL_HANDLE;
  memory_ = VK_NULL_HANDLE;
}

// ---- RangeSet ------------------------------------------------------------------------------------------------------

Result<RangeSet> RangeSet::create(const Device& device, MemoryBook* book, MemoryKind kind,
                                  std::span<const uint64_t> item_bytes, uint64_t alignment, Buffer::Where where) {
  const uint64_t range_max = device.traits().range_bytes;
  std::vector<uint64_t> range_bytes;
  struct Position {
    size_t range;
    uint64_t offset;
  };
  std::vector<Position> positions;
  for (const uint64_t bytes : item_bytes) {
    const uint64_t rounded = round_up<uint64_t>(std::max<uint64_t>(bytes, 1), alignment);
    if (rounded > range_max)
      return make_error(ErrorCode::kMissingFeature, "vulkan: one buffer: the device takes {} bytes, {} are needed",
                        range_max, rounded);
    if (range_bytes.empty() || range_bytes.back() + rounded > range_max) range_bytes.push_back(0);
    positions.push_back({range_bytes.size() - 1, range_bytes.back()});
    range_bytes.back() += rounded;
  }
  RangeSet set;
  for (const uint64_t bytes : range_bytes) {
    auto buffer = Buffer::create(device, book, kind, where, bytes);
    if (!buffer) return buffer.error();
    set.buffers_.push_back(std::make_unique<Buffer>(std::move(*buffer)));
  }
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto [range, offset] = positions[i];
    const Buffer* buffer = set.buffers_[range].get();
    set.views_.push_back({buffer->address() + offset, buffer, offset, item_bytes[i]});
  }
  return set;
}

}  // namespace llmrt::vulkan
