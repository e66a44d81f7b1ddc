// A range of device memory: its address for kernels, buffer and byte range for copies and for the hazard check of a
// program.
#pragma once

#include <cstdint>

namespace llmrt::vulkan {

class Buffer;

struct View {
  uint64_t address = 0;
  const Buffer* buffer = nullptr;
  uint64_t offset = 0, bytes = 0;  // in the buffer

  View part(uint64_t begin_bytes, uint64_t num_bytes) const {
    return {address + begin_bytes, buffer, offset + begin_bytes, num_bytes};
  }
};

inline bool overlap(const View& a, const View& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

}  // namespace llmrt::vulkan
