#include "core/weights/metadata.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace llmrt {

static_assert(std::endian::native == std::endian::little, "model files are read in place, and they are little-endian");

namespace {

struct ValueTypeInfo {
  const char* name;
  uint32_t bytes;
};
constexpr ValueTypeInfo kValueTypes[kNumValueTypes] = {
    {"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
};

template <typename T>
T load(const MetadataValue& value, uint64_t i) {
  T out;
  std::memcpy(&out, value.bytes.data() + i * sizeof(T), sizeof(T));
  return out;
}

// Element i of an integer value; nullopt for other types and for a u64 beyond int64.
std::optional<int64_t> integer_at(const MetadataValue& value, uint64_t i) {
  switch (value.type) {
    case ValueType::kU8:
      return load<uint8_t>(value, i);
    case ValueType::kI8:
      return load<int8_t>(value, i);
    case ValueType::kU16:
      return load<uint16_t>(value, i);
    case ValueType::kI16:
      return load<int16_t>(value, i);
    case ValueType::kU32:
      return load<uint32_t>(value, i);
    case ValueType::kI32:
      return load<int32_t>(value, i);
    case ValueType::kI64:
      return load<int64_t>(value, i);
    case ValueType::kU64: {
      const auto number = load<uint64_t>(value, i);
      if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(number);
    }
    default:
      return std::nullopt;
  }
}

std::string describe_element(const MetadataValue& value, uint64_t i) {
  switch (value.type) {
    case ValueType::kF32:
      return fmt::format("{}", load<float>(value, i));
    case ValueType::kF64:
      return fmt::format("{}", load<double>(value, i));
    case ValueType::kBool:
      return load<uint8_t>(value, i) != 0 ? "true" : "false";
    case ValueType::kString:
      return "\"" + printable(value.strings[i]) + "\"";
    case ValueType::kU64:
      return fmt::format("{}", load<uint64_t>(value, i));
    default:
      return fmt::format("{}", *integer_at(value, i));
  }
}

Error missing(std::string_view key, std::string_view expected) {
  return make_error(ErrorCode::kCorruptFile, "missing metadata: {}: expected {}, found nothing", key, expected);
}

Error wrong(std::string_view key, std::string_view expected, const MetadataValue& value) {
  return make_error(ErrorCode::kCorruptFile, "bad metadata: {}: expected {}, found {} {}", key, expected,
                    value_type_name(value.type), describe(value));
}

}  // namespace

const char* value_type_name(ValueType type) {
  return kValueTypes[static_cast<int>(type)].name;
}
uint32_t value_type_bytes(ValueType type) {
  return kValueTypes[static_cast<int>(type)].bytes;
}

std::string printable(std::string_view text) {
  constexpr size_t kCharsMax = 96;
  std::string out;
  for (const char c : text) {
    if (out.size() >= kCharsMax) return out + "...";
    if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string describe(const MetadataValue& value) {
  constexpr uint64_t kElementsMax = 4;
  if (!value.is_array) return describe_element(value, 0);
  std::string out = "[";
  for (uint64_t i = 0; i < value.count && i < kElementsMax; ++i) {
    if (i > 0) out += ", ";
    out += describe_element(value, i);
  }
  if (value.count > kElementsMax) out += fmt::format(", ... {} in all", value.count);
  return out + "]";
}

bool Metadata::add(std::string_view key, MetadataValue value) {
  if (!index_.emplace(key, entries_.size()).second) return false;
  entries_.push_back({key, std::move(value)});
  return true;
}

const MetadataValue* Metadata::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].value;
}

Result<uint64_t> Metadata::integer(std::string_view key, uint64_t min, uint64_t max,
                                   std::optional<uint64_t> fallback) const {
  const auto expected = [&] { return fmt::format("an integer in [{}, {}]", min, max); };
  const MetadataValue* value = find(key);
  if (value == nullptr) return fallback ? Result<uint64_t>(*fallback) : missing(key, expected());
  const auto number = value->is_array ? std::nullopt : integer_at(*value, 0);
  if (!number || *number < 0 || static_cast<uint64_t>(*number) < min || static_cast<uint64_t>(*number) > max)
    return wrong(key, expected(), *value);
  return static_cast<uint64_t>(*number);
}

Result<double> Metadata::number(std::string_view key, double min, double max, std::optional<double> fallback) const {
  const auto expected = [&] { return fmt::format("a float in [{}, {}]", min, max); };
  const MetadataValue* value = find(key);
  if (value == nullptr) return fallback ? Result<double>(*fallback) : missing(key, expected());
  double number = NAN;
  if (!value->is_array && value->type == ValueType::kF32) number = load<float>(*value, 0);
  if (!value->is_array && value->type == ValueType::kF64) number = load<double>(*value, 0);
  if (!(number >= min && number <= max)) return wrong(key, expected(), *value);  // NaN fails too
  return number;
}

Result<bool> Metadata::boolean(std::string_view key, std::optional<bool> fallback) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return fallback ? Result<bool>(*fallback) : missing(key, "a bool");
  if (value->is_array || value->type != ValueType::kBool) return wrong(key, "a bool", *value);
  return load<uint8_t>(*value, 0) != 0;
}

Result<std::string_view> Metadata::string(std::string_view key, std::optional<std::string_view> fallback) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return fallback ? Result<std::string_view>(*fallback) : missing(key, "a string");
  if (value->is_array || value->type != ValueType::kString) return wrong(key, "a string", *value);
  return value->strings[0];
}

Result<std::span<const std::string_view>> Metadata::strings(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return missing(key, "an array of strings");
  if (!value->is_array || value->type != ValueType::kString) return wrong(key, "an array of strings", *value);
  return std::span<const std::string_view>(value->strings);
}

Result<std::vector<int64_t>> Metadata::integers(std::string_view key, int64_t min, int64_t max) const {
  const auto expected = fmt::format("an array of integers in [{}, {}]", min, max);
  const MetadataValue* value = find(key);
  if (value == nullptr) return missing(key, expected);
  if (!value->is_array) return wrong(key, expected, *value);
  std::vector<int64_t> out;
  out.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto number = integer_at(*value, i);
    if (!number || *number < min || *number > max)
      return make_error(ErrorCode::kCorruptFile, "bad metadata: {}: element {}: expected {}, found {} {}", key, i,
                        expected, value_type_name(value->type), describe_element(*value, i));
    out.push_back(*number);
  }
  return out;
}

Result<std::vector<float>> Metadata::floats(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return missing(key, "an array of f32");
  if (!value->is_array || value->type != ValueType::kF32) return wrong(key, "an array of f32", *value);
  std::vector<float> out(value->count);
  if (!out.empty()) std::memcpy(out.data(), value->bytes.data(), out.size() * sizeof(float));
  for (size_t i = 0; i < out.size(); ++i) {
    if (!std::isfinite(out[i]))
      return make_error(ErrorCode::kCorruptFile, "bad metadata: {}: element {}: expected a finite number, found {}",
                        key, i, out[i]);
  }
  return out;
}

Result<std::vector<bool>> Metadata::booleans(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return missing(key, "an array of bools");
  if (!value->is_array || value->type != ValueType::kBool) return wrong(key, "an array of bools", *value);
  std::vector<bool> out(value->count);
  for (uint64_t i = 0; i < value->count; ++i) out[i] = load<uint8_t>(*value, i) != 0;
  return out;
}

}  // namespace llmrt
