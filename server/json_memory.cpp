#include "server/json_memory.h"

#include <boost/json/detail/digest.hpp>

#include <algorithm>
#include <memory>

#include "core/base/keyed_hash.h"

namespace llmrt::server {
namespace {

constexpr size_t kFirstBlockBytes = 4 << 10, kBlockBytesMax = 1 << 20;
constexpr size_t kAlignment = alignof(std::max_align_t);  // what Boost asks for
// Of one member in Boost's table: name, value, and its bucket. Rather too much.
constexpr size_t kMemberBytes = sizeof(boost::json::key_value_pair) + 2 * sizeof(uint32_t);
constexpr size_t kPlaces = 8;
constexpr size_t kSkipMax = 64;  // steps of the alignment from one place to the next

}  // namespace

void* JsonMemory::align(size_t alignment) {
  void* at = next_;
  return next_ == nullptr || std::align(alignment, 1, at, left_) == nullptr ? nullptr : at;
}

void JsonMemory::grow(size_t bytes) {
  const size_t usual = std::min(kBlockBytesMax, std::max(kFirstBlockBytes, bytes_));
  left_ = std::max(usual, bytes + kAlignment);
  // Not zeroed: a body of 8 MiB may need ten times that.
  blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(left_));
  next_ = blocks_.back().get();
  bytes_ += left_;
}

void* JsonMemory::do_allocate(size_t bytes, size_t alignment) {
  void* at = align(alignment);
  if (at == nullptr || left_ < bytes) {
    grow(bytes + alignment);
    at = align(alignment);
  }
  next_ = static_cast<std::byte*>(at) + bytes;
  left_ -= bytes;
  return at;
}

// Whether names find each other in few buckets of a table that begins where the next allocation will: as often as
// random ones would, times eight.
bool JsonMemory::spreads(std::span<const std::string_view> names) {
  const auto salt = reinterpret_cast<uintptr_t>(align(kAlignment));
  bucket_sizes_.assign(names.size(), 0);
  size_t meetings = 0;
  for (const std::string_view name : names) {
    const size_t hash = boost::json::detail::digest(name.begin(), name.end(), salt);
    meetings += bucket_sizes_[hash % names.size()]++;
    if (meetings > 4 * names.size()) return false;
  }
  return true;
}

bool JsonMemory::place_table(std::span<const std::string_view> names) {
  const size_t room = names.size() * kMemberBytes + 256 + kPlaces * kSkipMax * kAlignment;
  if (left_ < room) grow(room);
  for (size_t place = 0; place < kPlaces; ++place) {
    if (spreads(names)) return true;
    const size_t draw = siphash({reinterpret_cast<const char*>(&next_), sizeof next_}, process_hash_key());
    const size_t skip = (1 + draw % kSkipMax) * kAlignment;
    next_ += skip;
    left_ -= skip;
  }
  return false;
}

}  // namespace llmrt::server
