#include "core/model/decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/model/decoder_parts.h"
#include "core/ops/step_inputs.h"

namespace llmrt {

TensorId ListBuilder::tensor(const char* what, uint32_t layer, uint32_t columns, DType dtype) {
  return tensor(fmt::format("{}.{}", what, layer), columns, dtype);
}

TensorId ListBuilder::routed(const char* what, uint32_t layer, uint32_t columns, DType dtype) {
  return list.add_tensor({fmt::format("{}.{}", what, layer), Rows::kRouted, columns, dtype, Storage::kArena});
}

bool takes_adapters(const WeightGroup& group) {
  return !group.by_head && group.num_experts == 0 && group.segments.size() <= kAdapterPartsMax &&
         group.columns % kAdapterRankStep == 0;
}

bool takes_expert_adapters(const WeightGroup& group) {
  return !group.by_head && group.num_experts > 0 && group.columns % kAdapterRankStep == 0;
}

void ListBuilder::add_matmul(TensorId x, WeightGroupId group, TensorId out) {
  add(Matmul{x, group, out});
  if (adapter_rank == 0) return;
  const WeightGroup& matrix = model.weights.groups[static_cast<size_t>(group)];
  if (!takes_adapters(matrix)) return;
  const uint32_t ranks = static_cast<uint32_t>(matrix.segments.size()) * adapter_rank;
  const TensorId y = tensor(list.tensors[static_cast<size_t>(out)].name + "_adapter", ranks, DType::kF32);
  add(AdapterShrink{x, group, y});
  add(AdapterExpand{y, group, out});
}

TensorId ListBuilder::add_norm(const char* what, uint32_t layer, TensorId x, TensorId delta, WeightId weight) {
  const TensorId normed = tensor(what, layer, model.config.width, caps.activation_dtype);
  add(RmsNorm{x, delta, weight, model.config.rms_eps, normed});
  return normed;
}

TensorId ListBuilder::add_post_norm(const char* what, uint32_t layer, TensorId out, WeightId weight) {
  if (weight >= 0) {
    const TensorId normed = tensor(what, layer, model.config.width, DType::kF32);
    add(RmsNorm{out, kNoTensor, weight, model.config.rms_eps, normed});
    out = normed;
  }
  if (model.config.residual_scale == 1) return out;
  const TensorId scaled = tensor(fmt::format("{}_scaled.{}", what, layer), model.config.width, DType::kF32);
  add(Scale{out, model.config.residual_scale, scaled});
  return scaled;
}

TensorId add_feed_forward(uint32_t layer, TensorId x, TensorId delta, ListBuilder* b) {
  const FeedForwardKind kind = b->model.config.layers[layer].feed_forward;
  if (kind == FeedForwardKind::kNone) return delta;
  return kind == FeedForwardKind::kExperts ? add_experts(layer, x, delta, b) : add_dense_ffn(layer, x, delta, b);
}

TensorId add_first_part(uint32_t layer, const StepTensors& step, TensorId x, TensorId delta, ListBuilder* b) {
  const AttentionKind kind = b->model.config.layers[layer].attention;
  if (kind == AttentionKind::kNone) return delta;
  if (kind == AttentionKind::kLatent) return add_latent_attention(layer, step, x, delta, b);
  return is_recurrent(kind) ? add_recurrent(layer, x, delta, b) : add_attention(layer, step, x, delta, b);
}

namespace {

constexpr const char* kFinal = "final";
constexpr const char* kDraftHidden = "draft_hidden";

TensorId tensor_named(const OpList& list, std::string_view name) {
  const auto found = std::ranges::find(list.tensors, name, &TensorDesc::name);
  LLMRT_CHECK(found != list.tensors.end(), "a list with that tensor");
  return static_cast<TensorId>(found - list.tensors.begin());
}

// x = what the layer that drafts begins with.
void add_draft_input(const DraftInputWeights& weights, TensorId embedded, TensorId x, ListBuilder* b) {
  const uint32_t width = b->model.config.width;
  const auto add_half = [&](const char* what, TensorId in, WeightId norm, WeightGroupId group) {
    const TensorId normed = b->tensor(fmt::format("{}_normed", what), width, b->caps.activation_dtype);
    b->add(RmsNorm{in, kNoTensor, norm, b->model.config.rms_eps, normed});
    const TensorId out = b->tensor(fmt::format("{}_in", what), width, DType::kF32);
    b->add(Matmul{normed, group, out});
    return out;
  };
  const TensorId hidden = b->tensor(kDraftHidden, width, DType::kF32, Storage::kPinned);
  const TensorId token_in = add_half("draft_token", embedded, weights.token_norm, weights.token_in);
  const TensorId hidden_in = add_half(kDraftHidden, hidden, weights.hidden_norm, weights.hidden_in);
  b->add(Add{token_in, hidden_in, x});
}

}  // namespace

TensorId final_hidden(const OpList& list) {
  return tensor_named(list, kFinal);
}
TensorId draft_hidden(const OpList& list) {
  return tensor_named(list, kDraftHidden);
}

OpList build_forward(const Model& model, const Caps& caps, uint32_t num_tokens, uint32_t adapter_rank,
                     Expansion expansion, bool adapts_experts) {
  const ModelConfig& c = model.config;
  ListBuilder b{model,        caps,      Rows::kTokens, {"forward", num_tokens, 0, {}, {}},
                adapter_rank, expansion, adapts_experts};
  StepTensors step{b.tensor("tokens", 1, DType::kI32),
                   b.tensor("positions", 1, DType::kI32),
                   b.tensor("row_slots", 1, DType::kI32),
                   {}};
  const std::vector<CacheGroup> groups = cache_groups(c.layers);
  LLMRT_CHECK(groups.size() <= kKvGroupsMax, "check_layers");
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].state_columns > 0) continue;
    step.kv_slots[g] = b.tensor(g == 0 ? "kv_slots" : fmt::format("kv_slots.{}", g), 1, DType::kI32);
  }
  b.add(UpdateRows{});
  b.add(PrepareRows{step.tokens, step.positions, step.row_slots, {step.kv_slots}});
  const TensorId x = b.tensor("x", c.width, DType::kF32);
  // What the stream, or the part that makes it, begins with.
  const TensorId token = model.draft_input ? b.tensor("draft_token", c.width, DType::kF32) : x;
  const TensorId embedded = c.embedding_scale == 1 ? token : b.tensor("embedded", c.width, DType::kF32);
  b.add(Embed{step.tokens, model.embedding, embedded});
  if (c.embedding_scale != 1) b.add(Scale{embedded, c.embedding_scale, token});
  if (model.draft_input) add_draft_input(*model.draft_input, token, x, &b);
  TensorId delta = kNoTensor;
  for (uint32_t layer = 0; layer < c.num_layers(); ++layer) {
    if (layer > 0) delta = add_feed_forward(layer - 1, x, delta, &b);
    delta = add_first_part(layer, step, x, delta, &b);
  }
  const TensorId hidden = b.tensor("hidden", c.width, DType::kF32, Storage::kHidden);
  b.add(Add{x, delta, hidden});
  return std::move(b.list);
}

OpList build_memory(uint32_t num_kv_groups) {
  OpList list{"memory", 0, 0, {}, {}};
  for (uint32_t g = 0; g < num_kv_groups; ++g)
    list.ops.insert(list.ops.end(), {StoreBlocks{g}, LoadBlocks{g}, CopyBlocks{g}});
  return list;
}

namespace {

// The head's products, scaled and capped as the model wants it.
TensorId add_logits(TensorId normed, ListBuilder* b) {
  const ModelConfig& c = b->model.config;
  const bool is_scaled = c.logit_scale != 1, is_capped = c.logit_soft_cap > 0;
  const auto logits = [&](const char* name) { return b->tensor(name, c.vocab_size, DType::kF32); };
  TensorId made = logits(is_scaled || is_capped ? "head" : "logits");
  b->add_matmul(normed, b->model.head, made);
  if (is_scaled) {
    const TensorId scaled = logits(is_capped ? "head_scaled" : "logits");
    b->add(Scale{made, c.logit_scale, scaled});
    made = scaled;
  }
  if (!is_capped) return made;
  const TensorId capped = logits("logits");
  b->add(SoftCap{made, c.logit_soft_cap, capped});
  return capped;
}

}  // namespace

OpList build_sample(const Model& model, const Caps& caps, uint32_t num_sampled, uint32_t adapter_rank, bool keeps_final,
                    bool adapts_experts) {
  const ModelConfig& c = model.config;
  ListBuilder b{model, caps, Rows::kSampled, {"sample", 0, num_sampled, {}, {}}, adapter_rank, {}, adapts_experts};
  const TensorId hidden = b.list.add_tensor({"hidden", Rows::kTokens, c.width, DType::kF32, Storage::kHidden});
  const TensorId gathered = b.tensor("gathered", c.width, DType::kF32);
  b.add(GatherRows{hidden, gathered});
  const TensorId delta = add_feed_forward(c.num_layers() - 1, gathered, kNoTensor, &b);
  const TensorId normed =
      b.tensor(kFinal, c.width, caps.activation_dtype, keeps_final ? Storage::kPinned : Storage::kArena);
  b.add(RmsNorm{gathered, delta, model.final_norm, c.rms_eps, normed});
  const TensorId logits = add_logits(normed, &b);
  const TensorId processed = b.tensor("processed", c.vocab_size, DType::kF32);
  b.add(ApplyPenalties{logits, processed});
  b.add(ApplyBias{processed});
  const TensorId kept = b.tensor("kept", sizeof(FilterResult) / 4, DType::kI32);
  b.add(Filter{logits, processed, kept});
  b.add(Sample{logits, processed, kept});
  b.add(Logprobs{logits, processed, kept});
  return std::move(b.list);
}

}  // namespace llmrt
