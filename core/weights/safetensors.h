// One safetensors file: 8 bytes with the length of a JSON header, the header, then the tensors' bytes. As strict as the
// format's own library: data is covered from its first byte to the last, no holes and no overlaps, no name twice.
// Source: the format's description in the safetensors project's README.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/weights/weight_source.h"

namespace llmrt {

inline constexpr uint64_t kSafetensorsHeaderMax = 16ull << 20;  // real ones take 2 MiB at most
inline constexpr size_t kSafetensorsTensorsMax = 1u << 17;
inline constexpr size_t kSafetensorsNameBytesMax = 512;

// True when the bytes begin like such a file; says nothing about the rest.
bool is_safetensors(std::span<const std::byte> bytes);

// Tensors in the order of their bytes, under the names that the file gives them; dims are turned around, so that
// dims[0] is the row length as everywhere here. A number without dimensions is [1].
struct SafetensorsFile {
  std::deque<std::string> names;  // what the tensors' names point into
  std::vector<SourceTensor> tensors;
};

// The tensors' bytes are views of `bytes`. Errors: corrupt_file; unsupported for types without a name here, more than
// four dimensions, and data that is not aligned to its numbers.
Result<SafetensorsFile> parse_safetensors(std::span<const std::byte> bytes);

}  // namespace llmrt
