// Which ops touch each tensor of a list, and which of them may run as one: the structure alone, whatever the device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/ops/op_list.h"

namespace llmrt::vulkan {

class Flow {
 public:
  explicit Flow(const OpList& list);

  const OpList& list() const { return list_; }
  template <class T>
  const T* get(uint32_t op) const {
    return std::get_if<T>(&list_.ops[op]);
  }
  // The ops behind `op` that read or write the tensor, in order.
  std::span<const uint32_t> users_behind(TensorId id, uint32_t op) const;
  const OpAccess& access_of(uint32_t op) const { return accesses_[op]; }

 private:
  const OpList& list_;
  std::vector<OpAccess> accesses_;            // by op
  std::vector<std::vector<uint32_t>> users_;  // by tensor
};

// What a pattern finds at an op.
struct Match {
  std::vector<uint32_t> ops;  // empty: nothing
  uint32_t num_run = 0;       // the first num_run ops become one step; the others only read its result
  std::string lost;           // not empty: the ops are there, but the list does not let them all run as one
};

// matmul, gated_activation
Match find_gated_matmul(const Flow& flow, uint32_t op);
// matmul, rms_norm that adds its result, matmul of that norm
Match find_normed_matmul(const Flow& flow, uint32_t op);
// matmul (run alone), rms_norm that adds its result
Match find_parts_matmul(const Flow& flow, uint32_t op);
// matmul, any qk_norm, rope, kv_write, paged_attention
Match find_qkv_matmul(const Flow& flow, uint32_t op);
// any run of qk_norm, rope, kv_write; a lost match still holds the ops that run
Match find_qkv_heads(const Flow& flow, uint32_t op);

}  // namespace llmrt::vulkan
