#include "core/weights/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/checked_math.h"

namespace llmrt {

namespace {

// Smallest possible records: a count larger than remaining bytes / record cannot be true.
constexpr uint64_t kPairBytesMin = 8 + 1 + 4 + 1;            // key length, one character, type, one byte
constexpr uint64_t kTensorBytesMin = 8 + 1 + 4 + 8 + 4 + 8;  // name length, one character, dims, one dim, type, offset
constexpr uint64_t kStringBytesMin = 8;                      // its length
constexpr uint64_t kRecordsReserved = 65536;                 // at most: a sparse file is as long as it likes

struct TensorType {
  uint32_t id;
  const char* name;
  uint32_t elements_block, bytes_block;
  std::optional<Encoding> encoding;
};

constexpr TensorType known(uint32_t id, Encoding encoding) {
  const auto& block = geometry(encoding);
  return {id, block.name, block.elements_block, block.bytes_block, encoding};
}

// Those without an encoding are here so that a file which has them is refused by name.
constexpr TensorType kTensorTypes[] = {
    known(0, Encoding::kF32),     known(1, Encoding::kF16),     known(2, Encoding::kQ4_0),
    known(3, Encoding::kQ4_1),    known(6, Encoding::kQ5_0),    known(7, Encoding::kQ5_1),
    known(8, Encoding::kQ8_0),    known(12, Encoding::kQ4_K),   known(13, Encoding::kQ5_K),
    known(14, Encoding::kQ6_K),   known(30, Encoding::kBF16),   known(39, Encoding::kMXFP4),
    {10, "q2_k", 256, 84, {}},    {11, "q3_k", 256, 110, {}},   {16, "iq2_xxs", 256, 66, {}},
    {17, "iq2_xs", 256, 74, {}},  {18, "iq3_xxs", 256, 98, {}}, {19, "iq1_s", 256, 50, {}},
    {20, "iq4_nl", 32, 18, {}},   {21, "iq3_s", 256, 110, {}},  {22, "iq2_s", 256, 82, {}},
    {23, "iq4_xs", 256, 136, {}}, {24, "i8", 1, 1, {}},         {25, "i16", 1, 2, {}},
    {26, "i32", 1, 4, {}},        {27, "i64", 1, 8, {}},        {28, "f64", 1, 8, {}},
    {29, "iq1_m", 256, 56, {}},   {34, "tq1_0", 256, 54, {}},   {35, "tq2_0", 256, 66, {}},
    {40, "nvfp4", 64, 36, {}},
};

const TensorType* find_tensor_type(uint32_t id) {
  const auto* found = std::find_if(std::begin(kTensorTypes), std::end(kTensorTypes),
                                   [id](const TensorType& type) { return type.id == id; });
  return found == std::end(kTensorTypes) ? nullptr : found;
}

template <typename... Args>
Error corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kCorruptFile, "corrupt GGUF: {}", fmt::format(format, std::forward<Args>(args)...));
}

// Takes bytes from the front; never past the end.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  [[nodiscard]] bool take(uint64_t size, std::span<const std::byte>* out) {
    if (size > remaining()) return false;
    *out = bytes_.subspan(position_, size);
    position_ += size;
    return true;
  }

  template <typename T>
  [[nodiscard]] bool read(T* out) {
    std::span<const std::byte> raw;
    if (!take(sizeof(T), &raw)) return false;
    std::memcpy(out, raw.data(), sizeof(T));
    return true;
  }

  // A length of 8 bytes, then that many. `what` is for the message alone.
  Result<std::string_view> read_string(std::string_view what, uint64_t bytes_max) {
    uint64_t size = 0;
    if (!read(&size)) return ends(what);
    if (size > bytes_max || size > remaining())
      return corrupt("{}: length at byte {}: expected at most {}, found {}", what, position_ - 8,
                     std::min(bytes_max, remaining()), size);
    std::span<const std::byte> raw;
    (void)take(size, &raw);
    return std::string_view(reinterpret_cast<const char*>(raw.data()), raw.size());
  }

  Error ends(std::string_view what) const { return corrupt("{}: the file ends at byte {}", what, bytes_.size()); }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

// Keys and names go into messages and lookups; anything but printable ASCII is damage.
bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

Status check_bools(std::string_view what, const MetadataValue& value) {
  for (const std::byte byte : value.bytes) {
    if (byte > std::byte{1}) return corrupt("{}: expected a bool of 0 or 1, found {}", what, static_cast<int>(byte));
  }
  return {};
}

Status read_elements(Reader& reader, std::string_view what, MetadataValue* value) {
  if (value->type == ValueType::kString) {
    if (value->count > reader.remaining() / kStringBytesMin)
      return corrupt("{}: expected at most {} strings in the bytes that remain, found {}", what,
                     reader.remaining() / kStringBytesMin, value->count);
    if (value->count > kGgufValueBytesMax / kStringBytesMin)
      return corrupt("{}: expected at most {} strings, found {}", what, kGgufValueBytesMax / kStringBytesMin,
                     value->count);
    value->strings.reserve(std::min(value->count, kRecordsReserved));
    const uint64_t begin = reader.position();
    for (uint64_t i = 0; i < value->count; ++i) {
      auto text = reader.read_string(what, kGgufValueBytesMax);
      if (!text) return text.error();
      value->strings.push_back(*text);
      if (reader.position() - begin > kGgufValueBytesMax + 8)
        return corrupt("{}: expected at most {} bytes of strings", what, kGgufValueBytesMax);
    }
    return {};
  }
  uint64_t size = 0;
  if (!checked_mul(value->count, value_type_bytes(value->type), &size) || size > kGgufValueBytesMax)
    return corrupt("{}: expected at most {} bytes, found {} elements of type {}", what, kGgufValueBytesMax,
                   value->count, value_type_name(value->type));
  if (!reader.take(size, &value->bytes)) return reader.ends(what);
  return value->type == ValueType::kBool ? check_bools(what, *value) : Status{};
}

Result<ValueType> read_value_type(Reader& reader, std::string_view what) {
  uint32_t type = 0;
  if (!reader.read(&type)) return reader.ends(what);
  if (type >= kNumValueTypes)
    return corrupt("{}: expected a value type below {}, found {}", what, kNumValueTypes, type);
  return static_cast<ValueType>(type);
}

Result<MetadataValue> read_value(Reader& reader, std::string_view what) {
  auto type = read_value_type(reader, what);
  if (!type) return type.error();
  MetadataValue value;
  value.type = *type;
  if (*type == ValueType::kArray) {
    auto element = read_value_type(reader, what);
    if (!element) return element.error();
    if (*element == ValueType::kArray)
      return make_error(ErrorCode::kUnsupported,
                        "unsupported GGUF: {}: expected an array of values, found an array of "
                        "arrays",
                        what);
    value.type = *element;
    value.is_array = true;
    if (!reader.read(&value.count)) return reader.ends(what);
  }
  if (auto status = read_elements(reader, what, &value); !status) return status.error();
  return value;
}

Status read_metadata(Reader& reader, uint64_t num_pairs, Metadata* metadata) {
  for (uint64_t i = 0; i < num_pairs; ++i) {
    const auto place = fmt::format("metadata key {} of {}", i + 1, num_pairs);
    auto key = reader.read_string(place, kGgufKeyBytesMax);
    if (!key) return key.error();
    if (!is_name(*key)) return corrupt("{}: expected printable characters, found \"{}\"", place, printable(*key));
    auto value = read_value(reader, fmt::format("metadata {}", printable(*key)));
    if (!value) return value.error();
    if (!metadata->add(*key, std::move(*value))) return corrupt("metadata {}: found twice", printable(*key));
    if (reader.position() > kGgufMetadataBytesMax)
      return corrupt("metadata: expected at most {} bytes, found {} up to the end of {}", kGgufMetadataBytesMax,
                     reader.position(), printable(*key));
  }
  return {};
}

Result<uint64_t> read_alignment(const Metadata& metadata) {
  const MetadataValue* value = metadata.find("general.alignment");
  if (value == nullptr) return kGgufAlignment;
  if (value->is_array || value->type != ValueType::kU32)
    return corrupt("metadata general.alignment: expected u32, found {} {}", value_type_name(value->type),
                   describe(*value));
  auto alignment = metadata.integer("general.alignment", 8, 1u << 31);
  if (!alignment) return alignment.error();
  if (!std::has_single_bit(*alignment))
    return corrupt("metadata general.alignment: expected a power of two, found {}", *alignment);
  return *alignment;
}

struct TensorRecord {
  SourceTensor tensor;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Dimensions and the size that they imply.
Status read_dims(Reader& reader, std::string_view what, TensorRecord* record) {
  uint32_t num_dims = 0;
  if (!reader.read(&num_dims)) return reader.ends(what);
  if (num_dims < 1 || num_dims > 4) return corrupt("{}: expected 1 to 4 dimensions, found {}", what, num_dims);
  record->tensor.num_dims = static_cast<int>(num_dims);
  for (uint32_t i = 0; i < num_dims; ++i) {
    uint64_t& dim = record->tensor.dims[i];
    if (!reader.read(&dim)) return reader.ends(what);
    if (dim < 1 || dim > static_cast<uint64_t>(INT64_MAX))
      return corrupt("{}: dimension {}: expected 1 or more, found {}", what, i, static_cast<int64_t>(dim));
  }
  return {};
}

Status set_bytes(std::string_view what, const TensorType& type, TensorRecord* record) {
  const auto& dims = record->tensor.dims;
  if (dims[0] % type.elements_block != 0)
    return corrupt("{}: expected rows of a multiple of {} for {}, found {}", what, type.elements_block, type.name,
                   describe(record->tensor));
  uint64_t bytes = 0;
  bool fits = checked_mul(dims[0] / type.elements_block, type.bytes_block, &bytes);
  for (int i = 1; i < 4; ++i) fits = fits && checked_mul(bytes, dims[i], &bytes);
  if (!fits) return corrupt("{}: its size passes 64 bits: found {}", what, describe(record->tensor));
  record->bytes = bytes;
  return {};
}

Result<TensorRecord> read_tensor(Reader& reader, uint64_t i, uint64_t num_tensors) {
  TensorRecord record;
  const auto place = fmt::format("tensor {} of {}", i + 1, num_tensors);
  auto name = reader.read_string(place, kGgufTensorNameBytesMax);
  if (!name) return name.error();
  if (!is_name(*name)) return corrupt("{}: name: expected printable characters, found \"{}\"", place, printable(*name));
  record.tensor.name = *name;
  const auto what = fmt::format("tensor {}", printable(*name));
  if (auto status = read_dims(reader, what, &record); !status) return status.error();
  uint32_t type_id = 0;
  if (!reader.read(&type_id) || !reader.read(&record.offset)) return reader.ends(what);
  const TensorType* type = find_tensor_type(type_id);
  if (type == nullptr)
    return make_error(ErrorCode::kUnsupported, "unsupported GGUF: {}: tensor type {} is not known", what, type_id);
  record.tensor.encoding_name = type->name;
  record.tensor.encoding = type->encoding;
  if (auto status = set_bytes(what, *type, &record); !status) return status.error();
  return record;
}

// Each tensor at the next aligned offset, all inside the file, and nothing behind them but padding.
Status place_tensors(std::span<const std::byte> data, uint64_t alignment, std::vector<TensorRecord>& records) {
  uint64_t expected = 0;
  for (TensorRecord& record : records) {
    if (record.offset != expected)
      return corrupt("tensor {}: expected its data at offset {}, found {}", printable(record.tensor.name), expected,
                     record.offset);
    if (record.offset > data.size() || record.bytes > data.size() - record.offset)
      return corrupt("tensor {}: expected {} bytes of data at offset {}, the file has {}",
                     printable(record.tensor.name), record.bytes, record.offset,
                     data.size() - std::min<uint64_t>(record.offset, data.size()));
    record.tensor.bytes = data.subspan(record.offset, record.bytes);
    expected = round_up(record.offset + record.bytes, alignment);  // both below the file size plus 2^31
  }
  if (data.size() > expected && data.size() - expected >= alignment)  // a table that lost a tensor, or shrank one
    return corrupt("tensor table: expected the last data to end at offset {}, the file has {} bytes more", expected,
                   data.size() - expected);
  return {};
}

struct Header {
  uint32_t version = 0;
  uint64_t num_tensors = 0, num_pairs = 0;
};

Result<Header> read_header(Reader& reader) {
  Header header;
  uint32_t magic = 0;
  if (!reader.read(&magic) || !reader.read(&header.version)) return reader.ends("header");
  if (header.version != 0 && (header.version & 0xffff) == 0)
    return make_error(ErrorCode::kUnsupported,
                      "unsupported GGUF: expected a little-endian file, found a big-endian one");
  if (header.version == 0) return corrupt("version: expected 2 or 3, found 0");
  if (header.version < kGgufVersionMin || header.version > kGgufVersionMax)
    return make_error(ErrorCode::kUnsupported, "unsupported GGUF: version: expected {} or {}, found {}",
                      kGgufVersionMin, kGgufVersionMax, header.version);
  if (!reader.read(&header.num_tensors) || !reader.read(&header.num_pairs)) return reader.ends("header");
  if (header.num_pairs > reader.remaining() / kPairBytesMin)
    return corrupt("metadata: expected at most {} keys in the bytes that remain, found {}",
                   reader.remaining() / kPairBytesMin, header.num_pairs);
  if (header.num_tensors > reader.remaining() / kTensorBytesMin)
    return corrupt("tensor table: expected at most {} tensors in the bytes that remain, found {}",
                   reader.remaining() / kTensorBytesMin, header.num_tensors);
  return header;
}

}  // namespace

bool is_gguf(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
}

Result<WeightSource> parse_gguf(std::span<const std::byte> bytes) {
  if (!is_gguf(bytes)) return corrupt("expected \"GGUF\" as the first bytes");
  Reader reader(bytes);
  auto header = read_header(reader);
  if (!header) return header.error();

  WeightSource source;
  source.container = fmt::format("GGUF v{}", header->version);
  if (auto status = read_metadata(reader, header->num_pairs, &source.metadata); !status) return status.error();
  auto alignment = read_alignment(source.metadata);
  if (!alignment) return alignment.error();

  if (header->num_tensors > reader.remaining() / kTensorBytesMin)  // again: metadata took its share
    return corrupt("tensor table: expected at most {} tensors in the bytes that remain, found {}",
                   reader.remaining() / kTensorBytesMin, header->num_tensors);
  std::vector<TensorRecord> records;
  records.reserve(std::min(header->num_tensors, kRecordsReserved));
  for (uint64_t i = 0; i < header->num_tensors; ++i) {
    auto record = read_tensor(reader, i, header->num_tensors);
    if (!record) return record.error();
    if (!source.tensor_index.emplace(record->tensor.name, i).second)
      return corrupt("tensor {}: found twice", printable(record->tensor.name));
    records.push_back(*std::move(record));
  }

  const uint64_t data_begin = std::min<uint64_t>(round_up(reader.position(), *alignment), bytes.size());
  if (auto status = place_tensors(bytes.subspan(data_begin), *alignment, records); !status) return status.error();
  source.tensors.reserve(records.size());
  for (const TensorRecord& record : records) source.tensors.push_back(record.tensor);
  return source;
}

std::optional<uint32_t> gguf_tensor_type(Encoding encoding) {
  for (const TensorType& type : kTensorTypes) {
    if (type.encoding == encoding) return type.id;
  }
  return std::nullopt;
}

}  // namespace llmrt
