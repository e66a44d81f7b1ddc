#include "core/model/draft_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "core/weights/gathered_rows.h"

namespace llmrt {
namespace {

using namespace tensor_names;

constexpr const char* kBoth = "nextn.eh_proj.weight";  // [D, 2D]: columns of the token, then of the hidden state
constexpr const char* kTokenNorm = "nextn.enorm.weight";
constexpr const char* kHiddenNorm = "nextn.hnorm.weight";

// The tensors of one layer as those of layer 0, and around it those that it has of its own before those of the model.
class HeadTensors final : public TensorSource {
 public:
  HeadTensors(TensorSource& source, const Architecture& architecture, uint32_t layer)
      : source_(source), final_norm_(architecture.final_norm), layer_(layer) {}

  bool has(const std::string& name) const override { return source_.has(place_of(name)); }
  Result<WeightTensor> take(const std::string& name, uint64_t rows, uint64_t columns, bool is_vector) override {
    return source_.take(place_of(name), rows, columns, is_vector);
  }
  Result<WeightTensor> take_stack(const std::string& name, uint64_t count, uint64_t rows, uint64_t columns) override {
    return source_.take_stack(place_of(name), count, rows, columns);
  }

 private:
  std::string place_of(const std::string& name) const {
    if (layer_of(name) == 0u) return of_layer(layer_, name.substr(of_layer(0, "").size()));
    const auto own = [&](const char* part) { return of_layer(layer_, part); };
    std::string found;
    if (name == kEmbedding) found = own("nextn.embed_tokens.weight");
    if (name == final_norm_) found = own("nextn.shared_head_norm.weight");
    if (name == fmt::format("{}.weight", kHead)) found = own("nextn.shared_head_head.weight");
    return found.empty() || !source_.has(found) ? name : found;
  }

  TensorSource& source_;
  const std::string final_norm_;
  const uint32_t layer_;
};

// The last layer of the trunk with keys and values of its own; one that sees all positions before others.
Result<LayerSpec> layer_that_drafts(const Architecture& architecture, const ModelConfig& config) {
  if (architecture.has_lone_parts)
    return make_error(ErrorCode::kUnsupported, "{}: expected layers of two parts, found parts that stand alone",
                      architecture.name);
  const LayerSpec* found = nullptr;
  for (const LayerSpec& layer : config.layers) {
    const bool sees_all = layer.attention == AttentionKind::kFull || layer.attention == AttentionKind::kLatent;
    if (layer.cache_of < 0 && (sees_all || (layer.attention == AttentionKind::kWindow && found == nullptr)))
      found = &layer;
  }
  if (found == nullptr) return make_error(ErrorCode::kUnsupported, "expected a layer with attention, found none");
  LayerSpec spec = *found;
  const LayerSpec& last = config.layers.back();
  spec.feed_forward = last.feed_forward;
  spec.ffn_width = last.ffn_width;
  spec.experts = last.experts;
  return spec;
}

// Each row of [rows, 2 columns] is two of [2 rows, columns]: the first ones are the left half.
WeightGroupId add_half(const WeightTensor& both, const char* what, uint64_t half, Model* model) {
  WeightTensor pairs = both;
  pairs.rows *= 2;
  pairs.columns /= 2;
  const uint64_t num_rows = pairs.rows;
  WeightTensor tensor = gathered_rows(fmt::format("{}.weight", what), pairs, ranges_of_each(num_rows, 2, half, 1));
  WeightGroup group;
  group.name = what;
  group.rows = tensor.rows;
  group.columns = tensor.columns;
  group.segments.push_back({static_cast<WeightId>(model->weights.tensors.size()), 0, tensor.rows});
  model->weights.tensors.push_back(std::move(tensor));
  model->weights.groups.push_back(std::move(group));
  return static_cast<WeightGroupId>(model->weights.groups.size() - 1);
}

Status add_input(TensorSource& source, Model* model) {
  const uint64_t width = model->config.width;
  DraftInputWeights input;
  const auto add_norm = [&](const char* name, WeightId* out) -> Status {
    auto tensor = source.take(of_layer(0, name), 1, width, true);
    if (!tensor) return tensor.error();
    *out = static_cast<WeightId>(model->weights.tensors.size());
    model->weights.tensors.push_back(*std::move(tensor));
    return {};
  };
  if (Status status = add_norm(kTokenNorm, &input.token_norm); !status) return status;
  if (Status status = add_norm(kHiddenNorm, &input.hidden_norm); !status) return status;
  auto both = source.take(of_layer(0, kBoth), width, 2 * width, false);
  if (!both) return both.error();
  if (const uint32_t block = geometry(both->encoding).elements_block; width % block != 0)
    return make_error(ErrorCode::kUnsupported,
                      "{}: expected blocks that end with the {} columns of each half, found {}", kBoth, width, block);
  input.token_in = add_half(*both, "draft_token", 0, model);
  input.hidden_in = add_half(*both, "draft_hidden", 1, model);
  model->draft_input = input;
  return {};
}

}  // namespace

Result<std::shared_ptr<const Model>> assemble_draft_head(const Architecture& architecture, TensorSource& source,
                                                         const std::shared_ptr<ModelStorage>& storage,
                                                         const Model& trunk) {
  Result<LayerSpec> spec = layer_that_drafts(architecture, trunk.config);
  if (!spec) return spec.error();
  auto head = std::make_shared<Model>();
  head->path = fmt::format("{} ({})", trunk.path, kOwnDraftHead);
  head->config = trunk.config;
  head->config.num_draft_layers = 0;
  head->config.layers = {*std::move(spec)};
  assign_cache_groups(head->config.layers);
  HeadTensors tensors(source, architecture, trunk.config.num_layers());
  if (Status status = assemble_weights(architecture, tensors, storage, head.get()); !status) return status.error();
  if (Status status = add_input(tensors, head.get()); !status) return status.error();
  head->encoding = main_encoding(head->weights);
  return std::shared_ptr<const Model>(std::move(head));
}

Result<std::shared_ptr<const Model>> load_draft_model(const std::string& name, const Model& target) {
  if (name != kOwnDraftHead) {
    auto model = load_model(name);
    if (!model) return make_error(model.error().code, "--draft-model: {}", model.error().message);
    return model;
  }
  if (target.draft_head) return target.draft_head;
  if (!target.draft_head_lack.empty())
    return make_error(ErrorCode::kUnsupported, "--draft-model {}: {}", name, target.draft_head_lack);
  return make_error(ErrorCode::kInvalidArgument,
                    "--draft-model {}: expected a model with a layer that drafts, found none in {}", name, target.path);
}

}  // namespace llmrt
