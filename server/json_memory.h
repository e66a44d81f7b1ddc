// Where the values of one JSON text from outside live: blocks that are freed all at once. Boost hashes the names of an
// object with FNV-1a, salted by nothing but the address of the object's table; so that no client can choose names that
// collide, the address of each larger table is chosen here after its names are known. Used by one thread at a time.
#pragma once

#include <boost/json.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace llmrt::server {

class JsonMemory final : public boost::json::memory_resource {
 public:
  // `*self` becomes this: Boost's shared pointer to a resource does not give it away.
  explicit JsonMemory(JsonMemory** self) { *self = this; }

  // Up to this many members Boost compares names one by one and needs no table.
  static constexpr size_t kSmallObject = 18;

  // Makes the next allocation, the table of an object with these names, lie where few of them share a bucket. False
  // where no place does: the names were chosen to collide.
  bool place_table(std::span<const std::string_view> names);
  size_t bytes() const { return bytes_; }  // taken from the system

 private:
  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void*, size_t, size_t) override {}
  bool do_is_equal(const boost::json::memory_resource& other) const noexcept override { return this == &other; }

  void* align(size_t alignment);
  void grow(size_t bytes);
  bool spreads(std::span<const std::string_view> names);

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* next_ = nullptr;
  size_t left_ = 0, bytes_ = 0;
  std::vector<uint32_t> bucket_sizes_;
};

}  // namespace llmrt::server
