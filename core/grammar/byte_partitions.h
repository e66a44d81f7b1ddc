// Partitions of the 256 bytes into classes, each kept once. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/grammar/regex_pool.h"

namespace llmrt {

class BytePartitions {
 public:
  using PartitionId = uint32_t;
  static constexpr PartitionId kOne = 0;  // all bytes are alike

  BytePartitions() { intern({}); }

  PartitionId of_set(const ByteSet& set) {
    Classes classes{};
    for (size_t b = 0; b < 256; ++b) classes[b] = set[b];
    return intern(classes);
  }
  // Every digit for itself, and the rest.
  PartitionId of_digits() {
    Classes classes{};
    for (size_t digit = 0; digit < 10; ++digit) classes['0' + digit] = static_cast<uint8_t>(1 + digit);
    return intern(classes);
  }
  // Bytes are alike where they are in both.
  PartitionId meet(PartitionId a, PartitionId b) {
    if (a == b || b == kOne) return a;
    if (a == kOne) return b;
    if (a > b) std::swap(a, b);
    const auto [it, is_new] = met_.try_emplace({a, b}, 0);
    if (!is_new) return it->second;
    std::map<std::pair<uint8_t, uint8_t>, uint8_t> pairs;
    Classes classes{};
    for (size_t byte = 0; byte < 256; ++byte) {
      const std::pair both(partitions_[a].class_of[byte], partitions_[b].class_of[byte]);
      classes[byte] = pairs.try_emplace(both, static_cast<uint8_t>(pairs.size())).first->second;
    }
    return it->second = intern(classes);
  }

  const RegexPool::ByteClasses& operator[](PartitionId id) const { return partitions_[id]; }
  size_t held_bytes() const { return partitions_.size() * (sizeof(RegexPool::ByteClasses) + 512) + met_.size() * 64; }

 private:
  using Classes = std::array<uint8_t, 256>;

  // Classes are numbered by their first byte.
  PartitionId intern(const Classes& classes) {
    RegexPool::ByteClasses result;
    std::array<int, 256> number;
    number.fill(-1);
    Classes normal{};
    for (size_t byte = 0; byte < 256; ++byte) {
      int& n = number[classes[byte]];
      if (n < 0) {
        n = static_cast<int>(result.representatives.size());
        result.representatives.push_back(static_cast<uint8_t>(byte));
      }
      result.class_of[byte] = normal[byte] = static_cast<uint8_t>(n);
    }
    const auto [it, is_new] = known_.try_emplace(normal, static_cast<PartitionId>(partitions_.size()));
    if (is_new) partitions_.push_back(std::move(result));
    return it->second;
  }

  std::vector<RegexPool::ByteClasses> partitions_;
  std::map<Classes, PartitionId> known_;
  std::map<std::pair<PartitionId, PartitionId>, PartitionId> met_;
};

}  // namespace llmrt
