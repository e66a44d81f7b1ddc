// Partitions of the 256 bytes into classes, each kept once. One thread at a time.
#pragma once

#include <algorithm>
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
    Classes classes{};
    std::copy_n(partitions_[a].class_of, 256, classes.begin());
    refine(&classes, partitions_[a].representatives.size(), partitions_[b]);
    return it->second = intern(classes);
  }

  using Classes = std::array<uint8_t, 256>;
  // Bytes stay alike where they are in the partition, too. Returns how many classes there are now.
  static size_t refine(Classes* classes, size_t num_classes, const RegexPool::ByteClasses& partition) {
    const size_t num_others = partition.representatives.size();
    std::vector<int16_t> number(num_classes * num_others, -1);
    int16_t num_now = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      int16_t& n = number[(*classes)[byte] * num_others + partition.class_of[byte]];
      if (n < 0) n = num_now++;
      (*classes)[byte] = static_cast<uint8_t>(n);
    }
    return static_cast<size_t>(num_now);
  }

  const RegexPool::ByteClasses& operator[](PartitionId id) const { return partitions_[id]; }
  size_t held_bytes() const { return partitions_.size() * (sizeof(RegexPool::ByteClasses) + 512) + met_.size() * 64; }

 private:
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
