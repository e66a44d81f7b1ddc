// The values that flow through an op list. A tensor is a matrix [rows, columns], row-major and dense; `rows` is
// symbolic, so that one list serves a bucket: T tokens of the step, R sampled rows, or the rows that these become when
// each goes to several experts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace llmrt {

enum class DType : uint8_t { kF32, kF16, kBF16, kI32 };
constexpr uint32_t dtype_bytes(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kI32 ? 4 : 2;
}
constexpr const char* dtype_name(DType dtype) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "i32"};
  return kNames[static_cast<int>(dtype)];
}

using TensorId = int32_t;  // index into OpList::tensors
inline constexpr TensorId kNoTensor = -1;

// Most KV groups of a model: layers of one kind share a pool, and each row has one block table a group.
inline constexpr uint32_t kKvGroupsMax = 4;

// A tensor for each KV group; kNoTensor for a group that needs none.
struct GroupTensors {
  constexpr GroupTensors(std::initializer_list<TensorId> first = {}) {
    ids.fill(kNoTensor);
    std::copy_n(first.begin(), std::min<size_t>(first.size(), kKvGroupsMax), ids.begin());
  }
  constexpr TensorId operator[](size_t group) const { return ids[group]; }
  constexpr TensorId& operator[](size_t group) { return ids[group]; }

  std::array<TensorId, kKvGroupsMax> ids;
};

// T, R, and OpList::routed_per_row times the one of them that the list has: the rows of routed token 0 first, then
// those of token 1, and so on.
enum class Rows : uint8_t { kTokens, kSampled, kRouted };
constexpr const char* rows_name(Rows rows) {
  constexpr const char* kNames[] = {"T", "R", "K"};
  return kNames[static_cast<int>(rows)];
}

enum class Storage : uint8_t {
  kArena,   // lives from its first writer to its last reader; memory is shared with others
  kPinned,  // lives through the whole list (read or written from outside: tests, debug)
  kHidden,  // the one tensor that the forward list hands to the sample list: [step_tokens_max, width] f32
};

struct TensorDesc {
  std::string name;  // unique in the list; shows in prints
  Rows rows = Rows::kTokens;
  uint32_t columns = 0;
  DType dtype = DType::kF32;
  Storage storage = Storage::kArena;
};

}  // namespace llmrt
