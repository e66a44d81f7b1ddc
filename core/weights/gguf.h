// The GGUF container, versions 2 and 3, little-endian. Every length is checked against the bytes that remain before
// anything is allocated for it; numbers are combined with checked_math.h alone. Messages name the key or tensor, what
// was expected and what was found.
//
// Stricter than the format's text, as strict as its best known reader: tensor data lies in table order, each tensor at
// the next aligned offset and nothing behind the last, so overlaps, holes and most damaged tables are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/status.h"
#include "core/weights/weight_source.h"

namespace llmrt {

inline constexpr uint32_t kGgufVersionMin = 2, kGgufVersionMax = 3;
inline constexpr uint64_t kGgufAlignment = 32;                   // unless general.alignment says otherwise
inline constexpr uint64_t kGgufValueBytesMax = 64ull << 20;      // one string, or one array
inline constexpr uint64_t kGgufMetadataBytesMax = 256ull << 20;  // all pairs; real ones take 20 MiB at most
inline constexpr uint64_t kGgufKeyBytesMax = 65535;
inline constexpr uint64_t kGgufTensorNameBytesMax = 64;

// True when the bytes begin like a GGUF file; says nothing about the rest.
bool is_gguf(std::span<const std::byte> bytes);

// The result's views point into `bytes`. Errors: corrupt_file; unsupported for other versions, big-endian files, nested
// arrays and tensor types that have no name here.
Result<WeightSource> parse_gguf(std::span<const std::byte> bytes);

// GGUF's number for an encoding; none for fp8.
std::optional<uint32_t> gguf_tensor_type(Encoding encoding);

}  // namespace llmrt
