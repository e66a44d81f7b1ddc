// An opened model file: its metadata and its tensors with their bytes, checked against the file's size, whatever the
// container: a GGUF file, told by its first bytes, or a Hugging Face folder, whose keys and tensors get GGUF's names.
// Views point into what `owner` keeps (or into the span that was parsed).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/keyed_hash.h"
#include "core/base/status.h"
#include "core/weights/encoding.h"
#include "core/weights/metadata.h"

namespace llmrt {

// Fills `out` with the encoded bytes of whole rows that start at byte_offset of a tensor; any thread may call it.
using MakeRows = std::function<void(uint64_t byte_offset, std::span<std::byte> out)>;

struct SourceTensor {
  std::string_view name;
  const char* encoding_name = "";    // also of encodings that llmrt cannot compute with
  std::optional<Encoding> encoding;  // absent: unsupported
  int num_dims = 0;
  std::array<uint64_t, 4> dims = {1, 1, 1, 1};  // dims[0] is the row length; unused ones are 1
  std::span<const std::byte> bytes;
  MakeRows generate;  // where the rows are made from others while they are read: `bytes` is empty

  uint64_t num_bytes() const;
};

// "[576, 49152] q8_0".
std::string describe(const SourceTensor& tensor);

struct WeightSource {
  std::string container;  // "GGUF v3", "Hugging Face folder"
  Metadata metadata;
  std::vector<SourceTensor> tensors;  // in file order, names unique
  KeyedViewMap<size_t> tensor_index;
  std::shared_ptr<const void> owner;  // mapped files and made texts; null when parsed from a span

  const SourceTensor* find(std::string_view name) const;
};

// Errors: not_found, io_error, unsupported (no known container, a version that is not read), corrupt_file.
Result<WeightSource> open_weight_source(const std::string& path);
// The same over bytes that the caller keeps alive.
Result<WeightSource> parse_weight_source(std::span<const std::byte> bytes);

}  // namespace llmrt
