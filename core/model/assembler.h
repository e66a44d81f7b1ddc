// The walk over a model's layers of assemble_weights, in four files: assemble.cpp,
// assemble_experts.cpp, assemble_latent.cpp, assemble_recurrent.cpp.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/model/assemble.h"

namespace llmrt {

// One tensor of a group, without ".weight".
struct Part {
  const char* name;
  uint64_t rows;
};

class Assembler {
 public:
  Assembler(const Architecture& architecture, TensorSource& source, ModelStorage& storage, Model* model)
      : architecture_(architecture), source_(source), storage_(storage), model_(model) {}

  Status run();

 private:
  Status add_layer(uint32_t layer);
  Status add_attention(const std::string& prefix, LayerSpec* layer, LayerWeights* weights);
  Status add_latent(const std::string& prefix, const LayerSpec& spec, LayerWeights* weights);
  Status add_latent_queries(const std::string& prefix, const LayerSpec& spec, LatentWeights* weights);
  Status add_head_matrices(const std::string& prefix, const LayerSpec& spec, LatentWeights* weights);
  WeightGroupId add_heads(std::string name, uint32_t num_heads, WeightTensor tensor);
  Status add_recurrent(const std::string& prefix, LayerSpec* layer, LayerWeights* weights);
  Status add_short_conv(const std::string& prefix, const RecurrentSpec& spec, RecurrentWeights* weights);
  // The same as one row.
  Status add_row(const std::string& name, uint64_t rows, uint64_t columns, WeightId* out,
                 float most = std::numeric_limits<float>::max());
  Status add_scan(const std::string& prefix, const RecurrentSpec& spec, RecurrentWeights* weights);
  Status add_gated_delta(const std::string& prefix, RecurrentSpec* spec, RecurrentWeights* weights);
  Status add_delta_rows(const std::string& prefix, RecurrentSpec* spec, WeightGroupId* out);
  Result<WeightTensor> add_shared(const std::string& prefix, const Part& part, uint64_t columns, WeightTensor stack);
  Status add_qkv(const std::string& prefix, const LayerSpec& spec, LayerWeights* weights);
  Status add_gated_queries(const std::string& prefix, const LayerSpec& spec, const WeightGroup& kv,
                           LayerWeights* weights);
  Status add_qk_norms(const std::string& prefix, const LayerSpec& spec, LayerWeights* weights);
  Status add_sinks(const std::string& name, uint32_t num_heads, WeightId* out);
  Status add_feed_forward(const std::string& prefix, LayerSpec* spec, LayerWeights* weights);
  Status add_dense(const std::string& prefix, const LayerSpec& spec, LayerWeights* weights);
  Status add_dense_shared(const std::string& prefix, const LayerSpec& spec, LayerWeights* weights);
  Status add_experts(const std::string& prefix, LayerSpec* spec, LayerWeights* weights);
  Status add_latents(const std::string& prefix, uint64_t columns, LayerWeights* weights);
  Status add_router(const std::string& prefix, const ExpertSpec& experts, LayerWeights* weights);
  Status add_stacks(const std::string& prefix, const char* name, std::vector<Part> parts, uint64_t columns,
                    const ExpertSpec& experts, WeightGroupId* out);
  Status add_stack_bias(const std::string& prefix, const std::vector<Part>& parts, uint64_t count, WeightGroup* group);
  Status add_vector(const std::string& name, uint64_t columns, WeightId* out);
  Status add_matrix(const std::string& name, uint64_t rows, uint64_t columns, WeightId* out);
  // A few numbers in f32, whatever float they have in the file. Corrupt_file unless each is finite, and at most `most`.
  Status add_numbers(const std::string& name, uint64_t rows, uint64_t columns, WeightId* out,
                     float most = std::numeric_limits<float>::max());
  Status add_group(const std::string& prefix, const char* name, std::vector<Part> parts, uint64_t columns,
                   Presence bias, WeightGroupId* out);
  Status add_bias(const std::string& prefix, const std::vector<Part>& parts, Presence presence, WeightGroup* group);
  Status add_kv_scales(const std::string& prefix, KvTensorScales* scales);
  Status add_kv_scale(const std::string& name, float* scale);
  Status add_head();
  WeightTensor widen(const WeightTensor& narrow);
  WeightId add(WeightTensor tensor);

  const Architecture& architecture_;
  TensorSource& source_;
  ModelStorage& storage_;
  Model* model_;
};

}  // namespace llmrt
