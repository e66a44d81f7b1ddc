// The key-value pairs of a model file as a typed table, whatever the container. Values are views: the table is valid
// while the bytes that it was parsed from are. Keys are unique. Not changed after parsing; any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/keyed_hash.h"
#include "core/base/status.h"

namespace llmrt {

// GGUF's numbering of value types.
enum class ValueType : uint8_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
inline constexpr int kNumValueTypes = 13;
const char* value_type_name(ValueType type);  // "u32", "string", ...
// Bytes of one packed value; 0 for strings and arrays.
uint32_t value_type_bytes(ValueType type);

struct MetadataValue {
  ValueType type = ValueType::kU8;  // of the elements when is_array; never kArray
  bool is_array = false;
  uint64_t count = 1;                     // elements of an array
  std::span<const std::byte> bytes;       // numbers and bools, packed, little-endian
  std::vector<std::string_view> strings;  // kString only
};

// The value as a person reads it; long strings and arrays are cut, control characters escaped.
std::string describe(const MetadataValue& value);

// At most 96 characters of `text`, everything but printable ASCII escaped: names from hostile files in messages.
std::string printable(std::string_view text);

class Metadata {
 public:
  struct Entry {
    std::string_view key;
    MetadataValue value;
  };

  // False when the key is already there.
  [[nodiscard]] bool add(std::string_view key, MetadataValue value);

  const MetadataValue* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  std::span<const Entry> entries() const { return entries_; }  // in file order

  // Each returns the value, the fallback when the key is absent, or an Error that names the key, what was expected and
  // what the file has. Without a fallback an absent key is an Error. Integers may be stored in any integer type.
  Result<uint64_t> integer(std::string_view key, uint64_t min, uint64_t max,
                           std::optional<uint64_t> fallback = {}) const;
  Result<double> number(std::string_view key, double min, double max, std::optional<double> fallback = {}) const;
  Result<bool> boolean(std::string_view key, std::optional<bool> fallback = {}) const;
  Result<std::string_view> string(std::string_view key, std::optional<std::string_view> fallback = {}) const;
  // Arrays; an absent key is an Error.
  Result<std::span<const std::string_view>> strings(std::string_view key) const;
  Result<std::vector<int64_t>> integers(std::string_view key, int64_t min, int64_t max) const;
  Result<std::vector<float>> floats(std::string_view key) const;  // f32, all finite
  Result<std::vector<bool>> booleans(std::string_view key) const;

 private:
  std::vector<Entry> entries_;
  KeyedViewMap<size_t> index_;  // by key
};

}  // namespace llmrt
