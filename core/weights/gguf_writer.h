// Writes a GGUF v3 file: metadata in the order given, then the tensors, data streamed from where each tensor has it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/weights/weight_table.h"

namespace llmrt {

using WriteProgress = std::function<void(uint64_t bytes_done, uint64_t bytes_total)>;

class GgufWriter {
 public:
  // Keys are the caller's to keep unique.
  void add_u32(std::string_view key, uint32_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_string(std::string_view key, std::string_view value);
  void add_strings(std::string_view key, const std::vector<std::string>& values);
  void add_i32s(std::string_view key, const std::vector<int32_t>& values);
  // A tensor of one row is written with one dimension, a stack of `count` matrices with three. `tensor` must outlive
  // write().
  void add_tensor(const WeightTensor& tensor, uint64_t count = 1) { tensors_.push_back({&tensor, count}); }

  // Replaces `path`. On an error nothing is left there.
  Status write(const std::string& path, const WriteProgress& progress) const;

 private:
  std::string header(std::vector<uint64_t>* offsets) const;

  uint64_t num_pairs_ = 0;
  std::string pairs_;  // encoded
  struct Written {
    const WeightTensor* tensor;
    uint64_t count;
  };
  std::vector<Written> tensors_;
};

}  // namespace llmrt
