// The tensors of a Hugging Face folder as GGUF has them: what lies otherwise (experts one by one or fused, numbers
// beside their scales) is made row by row while it is read (hf_rows.h); vectors become f32, with a family's offset
// added.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/platform/mapped_file.h"
#include "core/weights/hf_config.h"
#include "core/weights/hf_names.h"
#include "core/weights/weight_source.h"

namespace llmrt {

// What a source's views point into.
struct HfStorage {
  std::vector<std::shared_ptr<const MappedFile>> files;
  std::deque<std::string> texts;
  std::deque<std::vector<float>> vectors;
  uint64_t vector_bytes = 0;
};

class HfTensors {
 public:
  // Both must outlive it.
  HfTensors(const HfConfig& config, HfStorage* storage) : config_(config), storage_(*storage) {}

  // A tensor of a file, in any order. Errors: corrupt_file, unsupported.
  Status add(const SourceTensor& tensor);
  // After the last one: gives all to the source, checked to be complete.
  Status build(WeightSource* source);
  // Layers behind those of config.json that tensors are of.
  uint64_t num_draft_layers() const { return num_draft_layers_; }

 private:
  struct Part {
    std::unique_ptr<SourceTensor> weight, scale;  // under the folder's names; null: not there
  };
  // All parts of one tensor, by expert; a tensor of one part has number 0.
  struct Entry {
    std::map<uint64_t, Part> parts;
    bool is_stack = false;
  };

  Status build_one(const std::string& name, const Entry& entry, SourceTensor* out);
  Status build_stack(const std::string& name, const Entry& entry, SourceTensor* out);
  Status build_part(const Part& part, SourceTensor* out);
  Status build_fused(WeightSource* source);
  Status widen(const SourceTensor& tensor, double offset, SourceTensor* out);
  Status negate_exp(const SourceTensor& tensor, SourceTensor* out);
  Status give(std::string name, SourceTensor tensor, WeightSource* source);

  const HfConfig& config_;
  HfStorage& storage_;
  uint64_t num_draft_layers_ = 0;
  std::map<std::string, Entry> entries_;
  std::map<std::string, SourceTensor> fused_;
  std::vector<const std::string*> order_;  // of the entries, as they came
};

// Numbers in e4m3 with their scales as rows in fp8. `weight` and `scale` are under the folder's names. Errors:
// corrupt_file, unsupported (hf_fp8.cpp).
Status make_fp8(const SourceTensor& weight, const SourceTensor* scale, const HfQuantization& quantization,
                SourceTensor* out);

// The six tensors of a layer's fused experts, from the parts that `find` gives (null: none), by name without "blk.N."
// (hf_fused_experts.cpp). Errors: corrupt_file, unsupported.
using FindFused = std::function<const SourceTensor*(std::string_view name)>;
Result<std::vector<std::pair<std::string, SourceTensor>>> make_fused_experts(const HfConfig& config,
                                                                             const std::string& layer,
                                                                             const FindFused& find);

}  // namespace llmrt
