// Metadata that no file holds in this form: pairs under GGUF's keys, made while another container is read, with the
// bytes that Metadata's views point into.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/weights/metadata.h"

namespace llmrt {

class CanonicalMetadata {
 public:
  // `storage` must outlive `metadata`.
  CanonicalMetadata(Metadata* metadata, std::deque<std::string>* storage) : metadata_(*metadata), storage_(*storage) {}

  // A key that is there already stays as it is.
  void add_u64(std::string_view key, uint64_t value) { add_bytes(key, ValueType::kU64, &value, sizeof(value)); }
  void add_f64(std::string_view key, double value) { add_bytes(key, ValueType::kF64, &value, sizeof(value)); }
  void add_bool(std::string_view key, bool value) { add_bytes(key, ValueType::kBool, &value, sizeof(value)); }
  void add_string(std::string_view key, std::string_view value) {
    MetadataValue made;
    made.type = ValueType::kString;
    made.strings.push_back(storage_.emplace_back(value));
    add(key, std::move(made));
  }
  void add_strings(std::string_view key, std::vector<std::string> values) {
    MetadataValue made;
    made.type = ValueType::kString;
    made.is_array = true;
    made.count = values.size();
    made.strings.reserve(values.size());
    for (std::string& value : values) made.strings.push_back(storage_.emplace_back(std::move(value)));
    add(key, std::move(made));
  }
  void add_u8s(std::string_view key, const std::vector<uint8_t>& values) { add_array(key, ValueType::kU8, values); }
  void add_u32s(std::string_view key, const std::vector<uint32_t>& values) { add_array(key, ValueType::kU32, values); }
  void add_f32s(std::string_view key, const std::vector<float>& values) { add_array(key, ValueType::kF32, values); }
  void add_bools(std::string_view key, const std::vector<bool>& values) {
    add_array(key, ValueType::kBool, std::vector<uint8_t>(values.begin(), values.end()));
  }

 private:
  MetadataValue value_of(ValueType type, const void* data, size_t size) {
    const std::string& kept = storage_.emplace_back(static_cast<const char*>(data), size);
    MetadataValue made;
    made.type = type;
    made.bytes = std::as_bytes(std::span(kept));
    return made;
  }
  template <typename T>
  void add_array(std::string_view key, ValueType type, const std::vector<T>& values) {
    MetadataValue made = value_of(type, values.data(), values.size() * sizeof(T));
    made.is_array = true;
    made.count = values.size();
    add(key, std::move(made));
  }
  void add_bytes(std::string_view key, ValueType type, const void* data, size_t size) {
    add(key, value_of(type, data, size));
  }
  void add(std::string_view key, MetadataValue value) {
    (void)metadata_.add(storage_.emplace_back(key), std::move(value));
  }

  Metadata& metadata_;
  std::deque<std::string>& storage_;
};

}  // namespace llmrt
