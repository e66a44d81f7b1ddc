// Safetensors files from the text of their header, for fuzzing: so the readers' checks of lengths do not end each run.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "core/base/checked_math.h"

namespace llmrt::test {

inline constexpr uint64_t kDataBytesMax = 64u << 10;

// The largest number of all data_offsets, as far as they are numbers.
inline uint64_t data_bytes(std::string_view header) {
  constexpr std::string_view kKey = "\"data_offsets\"";
  uint64_t most = 0;
  for (size_t at = header.find(kKey); at != std::string_view::npos; at = header.find(kKey, at + 1)) {
    const std::string_view list = header.substr(at, header.substr(at).find(']'));
    for (size_t i = kKey.size(); i < list.size();) {
      uint64_t number = 0;
      const auto [end, error] = std::from_chars(list.data() + i, list.data() + list.size(), number);
      if (error == std::errc() && number <= kDataBytesMax) most = std::max(most, number);
      i = std::max<size_t>(i + 1, static_cast<size_t>(end - list.data()));
    }
  }
  return most;
}

// Writers of such files align the data by spaces behind the header.
inline std::string safetensors_of(std::string_view text) {
  std::string header(text);
  header.resize(round_up(header.size(), sizeof(uint64_t)), ' ');
  const uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  file += header;
  file.append(data_bytes(header), '\x3c');
  return file;
}

}  // namespace llmrt::test
