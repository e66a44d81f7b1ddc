// What a file is that is no GGUF file, by its first bytes, and how to get from there to one: for the message that
// refuses it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace llmrt {

// One line, "a safetensors file: convert ..."; nothing where the bytes are not known.
std::optional<std::string> describe_foreign_file(std::span<const std::byte> bytes);
// The same for a folder.
std::string describe_folder(const std::string& path);

}  // namespace llmrt
