#include "core/weights/safetensors.h"

#include <algorithm>
#include <cstring>

#include "core/base/checked_math.h"
#include "core/weights/json_tree.h"

namespace llmrt {
namespace {

constexpr uint64_t kLengthBytes = 8;

// Those without an encoding are here so that a file which has them is refused by tensor.
struct SafetensorsType {
  std::string_view dtype;
  const char* name;
  uint32_t bytes;
  std::optional<Encoding> encoding;
};
constexpr SafetensorsType kSafetensorsTypes[] = {
    {"F32", "f32", 4, Encoding::kF32},
    {"F16", "f16", 2, Encoding::kF16},
    {"BF16", "bf16", 2, Encoding::kBF16},
    {"F64", "f64", 8, {}},
    {"I64", "i64", 8, {}},
    {"U64", "u64", 8, {}},
    {"I32", "i32", 4, {}},
    {"U32", "u32", 4, {}},
    {"I16", "i16", 2, {}},
    {"U16", "u16", 2, {}},
    {"I8", "i8", 1, {}},
    {"U8", "u8", 1, {}},
    {"BOOL", "bool", 1, {}},
    {"F8_E4M3", "f8_e4m3", 1, {}},
    {"F8_E5M2", "f8_e5m2", 1, {}},
    {"F8_E8M0", "f8_e8m0", 1, {}},
};

template <typename... Args>
Error corrupt_safetensors(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kCorruptFile, "corrupt safetensors: {}",
                    fmt::format(format, std::forward<Args>(args)...));
}

struct PlacedTensor {
  SourceTensor tensor;
  uint64_t begin = 0, end = 0;
};

Result<const SafetensorsType*> read_dtype(const std::string& shown, const JsonTree& entry) {
  const JsonTree* dtype = entry.find("dtype");
  if (dtype == nullptr || dtype->string() == nullptr)
    return corrupt_safetensors("{}: dtype: expected a string, found {}", shown,
                               dtype == nullptr ? "nothing" : dtype->describe());
  for (const SafetensorsType& type : kSafetensorsTypes)
    if (type.dtype == *dtype->string()) return &type;
  return make_error(ErrorCode::kUnsupported, "unsupported safetensors: {}: dtype: expected F32, F16, BF16, found {}",
                    shown, dtype->describe());
}

// Dimensions and the bytes that they imply.
Status read_shape(const std::string& shown, const JsonTree& entry, uint32_t bytes_number, SourceTensor* tensor,
                  uint64_t* bytes) {
  const JsonTree* shape = entry.find("shape");
  if (shape == nullptr || shape->items() == nullptr)
    return corrupt_safetensors("{}: shape: expected an array, found {}", shown,
                               shape == nullptr ? "nothing" : shape->describe());
  const JsonTree::Items& dims = *shape->items();
  if (dims.size() > tensor->dims.size())
    return make_error(ErrorCode::kUnsupported,
                      "unsupported safetensors: {}: shape: expected at most {} dimensions, found {}", shown,
                      tensor->dims.size(), dims.size());
  tensor->num_dims = std::max(static_cast<int>(dims.size()), 1);
  *bytes = bytes_number;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t* dim = dims[i].integer();
    if (dim == nullptr || *dim < 1)
      return corrupt_safetensors("{}: shape: expected positive integers, found {}", shown, dims[i].describe());
    tensor->dims[dims.size() - 1 - i] = static_cast<uint64_t>(*dim);
    if (!checked_mul(*bytes, static_cast<uint64_t>(*dim), bytes))
      return corrupt_safetensors("{}: shape: expected a size in 64 bits, found more", shown);
  }
  return {};
}

Status read_offsets(const std::string& shown, const JsonTree& entry, uint64_t data_bytes, PlacedTensor* placed) {
  const JsonTree* offsets = entry.find("data_offsets");
  const bool is_pair = offsets != nullptr && offsets->items() != nullptr && offsets->items()->size() == 2;
  const int64_t* begin = is_pair ? (*offsets->items())[0].integer() : nullptr;
  const int64_t* end = is_pair ? (*offsets->items())[1].integer() : nullptr;
  if (begin == nullptr || end == nullptr || *begin < 0 || *end < *begin || static_cast<uint64_t>(*end) > data_bytes)
    return corrupt_safetensors("{}: data_offsets: expected two integers in order, up to {}, found {}", shown,
                               data_bytes,
                               begin != nullptr && end != nullptr ? fmt::format("[{}, {}]", *begin, *end)
                               : offsets != nullptr               ? offsets->describe()
                                                                  : "nothing");
  placed->begin = static_cast<uint64_t>(*begin);
  placed->end = static_cast<uint64_t>(*end);
  return {};
}

Result<PlacedTensor> read_entry(const JsonMember& member, std::span<const std::byte> data, uint64_t data_begin) {
  const std::string shown = "tensor " + printable(member.name);
  const bool is_name = !member.name.empty() && member.name.size() <= kSafetensorsNameBytesMax &&
                       std::ranges::all_of(member.name, [](char c) { return c > 0x20 && c < 0x7f; });
  if (!is_name)
    return corrupt_safetensors("{}: expected a name of 1 to {} printable characters", shown, kSafetensorsNameBytesMax);
  if (member.value.members() == nullptr)
    return corrupt_safetensors("{}: expected an object, found {}", shown, member.value.describe());
  auto type = read_dtype(shown, member.value);
  if (!type) return type.error();
  PlacedTensor placed;
  uint64_t bytes = 0;
  if (auto s = read_shape(shown, member.value, (*type)->bytes, &placed.tensor, &bytes); !s) return s.error();
  if (auto s = read_offsets(shown, member.value, data.size(), &placed); !s) return s.error();
  if (placed.end - placed.begin != bytes)
    return corrupt_safetensors("{}: data_offsets: expected the {} bytes of its shape and type, found {}", shown, bytes,
                               placed.end - placed.begin);
  if ((data_begin + placed.begin) % (*type)->bytes != 0)
    return make_error(ErrorCode::kUnsupported,
                      "unsupported safetensors: {}: expected data at a multiple of {} bytes, found it at byte {}",
                      shown, (*type)->bytes, data_begin + placed.begin);
  placed.tensor.encoding_name = (*type)->name;
  placed.tensor.encoding = (*type)->encoding;
  placed.tensor.bytes = data.subspan(placed.begin, bytes);
  return placed;
}

// In order of the data: each begins where the one before ends, and the last ends where the file does.
Status expect_all_covered(const std::vector<PlacedTensor>& tensors, uint64_t data_bytes) {
  uint64_t at = 0;
  for (const PlacedTensor& placed : tensors) {
    if (placed.begin != at)
      return corrupt_safetensors(
          "tensor {}: data_offsets: expected to begin at {}, where the one before ends, found {}",
          printable(placed.tensor.name), at, placed.begin);
    at = placed.end;
  }
  if (at != data_bytes)
    return corrupt_safetensors("data: expected tensors up to byte {}, found the last one's end at {}", data_bytes, at);
  return {};
}

}  // namespace

bool is_safetensors(std::span<const std::byte> bytes) {
  uint64_t header = 0;
  if (bytes.size() <= kLengthBytes) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return bytes[kLengthBytes] == std::byte{'{'} && header >= 2 && header <= bytes.size() - kLengthBytes;
}

Result<SafetensorsFile> parse_safetensors(std::span<const std::byte> bytes) {
  uint64_t header_bytes = 0;
  if (bytes.size() < kLengthBytes)
    return corrupt_safetensors("expected 8 bytes with the header's length, found a file of {}", bytes.size());
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const uint64_t most = std::min<uint64_t>(kSafetensorsHeaderMax, bytes.size() - kLengthBytes);
  if (header_bytes < 2 || header_bytes > most)
    return corrupt_safetensors("header: expected a length in [2, {}], found {}", most, header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, header_bytes);
  auto header =
      parse_json_tree(text, "corrupt safetensors: header", {kSafetensorsHeaderMax, 16 * kSafetensorsTensorsMax, 8});
  if (!header) return header.error();
  if (header->members() == nullptr)
    return corrupt_safetensors("header: expected an object, found {}", header->describe());
  if (header->members()->size() > kSafetensorsTensorsMax)
    return corrupt_safetensors("header: expected at most {} tensors, found {}", kSafetensorsTensorsMax,
                               header->members()->size());
  const uint64_t data_begin = kLengthBytes + header_bytes;
  const auto data = bytes.subspan(data_begin);
  SafetensorsFile file;
  std::vector<PlacedTensor> placed;
  for (const JsonMember& member : *header->members()) {
    if (member.name == "__metadata__") continue;  // texts for people
    auto entry = read_entry(member, data, data_begin);
    if (!entry) return entry.error();
    entry->tensor.name = file.names.emplace_back(member.name);
    placed.push_back(*std::move(entry));
  }
  std::ranges::sort(placed, {}, &PlacedTensor::begin);
  if (auto status = expect_all_covered(placed, data.size()); !status) return status.error();
  for (PlacedTensor& one : placed) file.tensors.push_back(one.tensor);
  return file;
}

}  // namespace llmrt
