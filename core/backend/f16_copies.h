// Which weights a backend copies in f16 (Backend::add_f16_copies).
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace llmrt {

// Indices of the matrices, of so many bytes in f16, whose copies take at most bytes_max in all: the smallest, since
// kernels that expand weights lose most where a matrix makes few tiles. None where that is less than half of all:
// little would be gained.
inline std::vector<size_t> choose_f16_copies(std::span<const uint64_t> bytes, uint64_t bytes_max) {
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes[a] < bytes[b]; });
  uint64_t all = 0, total = 0;
  size_t count = 0;
  for (size_t i : order) {
    all += bytes[i];
    if (all > bytes_max) continue;
    total = all;
    ++count;
  }
  order.resize(total < all / 2 ? 0 : count);
  return order;
}

}  // namespace llmrt
