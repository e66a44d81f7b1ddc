// Whole lists, as a model's decoder builds them, with arena tensors and everything a backend may fuse: five steps of a
// tiny random model with chunked prompts, decode rows that continue from the token sampled last, and a forked row whose
// half-full block is copied. One of the models has layers that differ in all that layers may, in two cache groups. The
// same with low-rank adapters for some of the rows.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <optional>

#include "core/model/assemble.h"
#include "core/model/decoder.h"
#include "core/model/model.h"
#include "tests/ops/op_harness.h"
#include "tests/reference/backend.h"

namespace llmrt::optest {
namespace {

constexpr uint32_t kWidth = 256, kHeads = 4, kKvHeads = 2, kDim = 64, kFfn = 512, kVocab = 300, kLayers = 2;
constexpr float kMarginMin = 0.3f;  // of every draw: more than any rounding may turn

enum class Like : uint8_t { kLlama, kQwen2, kQwen3, kMixed, kLatent };
constexpr const char* kLikeNames[] = {"llama", "qwen2", "qwen3", "mixed", "latent"};

Model tiny_model(Suite* suite, Like like, std::mt19937_64& rng) {
  const bool qwen = like != Like::kLlama;
  Model model;
  ModelConfig& c = model.config;
  c.width = kWidth;
  c.vocab_size = kVocab;
  LayerSpec spec;
  spec.ffn_width = kFfn;
  spec.num_heads = kHeads;
  spec.num_kv_heads = kKvHeads;
  spec.head_dim = spec.rope.dim = kDim;
  spec.rope.pairing = qwen ? RopePairing::kHalves : RopePairing::kInterleaved;
  spec.qk_norm = like == Like::kQwen3;
  spec.activation = qwen ? Activation::kGelu : Activation::kSilu;
  spec.attention_scale = 1 / std::sqrt(static_cast<float>(kDim));
  c.layers.assign(kLayers, spec);
  assign_cache_groups(c.layers);
  const auto matrix = [&](Encoding encoding, uint64_t rows, uint64_t columns) {
    return suite->add_weight(encoding, rows, columns, rng, 1 / std::sqrt(static_cast<double>(columns)));
  };
  const auto vector = [&](uint64_t columns) { return suite->add_weight(Encoding::kF32, 1, columns, rng); };
  model.embedding = suite->add_weight(Encoding::kQ8_0, kVocab, kWidth, rng, 0.5);
  model.head = suite->add_group({model.embedding}, false, rng);
  model.final_norm = vector(kWidth);
  model.rope_freqs = {suite->add_f32(rope_frequencies(kDim))};
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    LayerWeights w;
    w.attention_norm = vector(kWidth);
    w.ffn_norm = vector(kWidth);
    w.qkv = suite->add_group(
        {matrix(Encoding::kQ4_0, kHeads * kDim, kWidth), matrix(Encoding::kQ4_0, kKvHeads * kDim, kWidth),
         matrix(Encoding::kQ8_0, kKvHeads * kDim, kWidth)},
        qwen, rng);
    w.output = suite->add_group({matrix(Encoding::kF16, kWidth, kHeads * kDim)}, false, rng);
    // One encoding or two: a backend may make a piece of one encoding together with the activation.
    const Encoding up = layer == 0 ? Encoding::kQ5_K : Encoding::kF16;
    const Encoding gate = layer == 0 && qwen ? Encoding::kQ4_K : up;
    w.gate_up = suite->add_group({matrix(gate, kFfn, kWidth), matrix(up, kFfn, kWidth)}, false, rng);
    w.down = suite->add_group({matrix(layer == 0 ? Encoding::kQ6_K : Encoding::kF16, kWidth, kFfn)}, false, rng);
    if (spec.qk_norm) {
      w.q_norm = vector(kDim);
      w.k_norm = vector(kDim);
    }
    model.layers.push_back(w);
  }
  model.weights = suite->weights;
  return model;
}

// Random tensors by the names of files, in encodings that differ by part and layer.
class RandomTensors final : public TensorSource {
 public:
  explicit RandomTensors(std::mt19937_64& rng) : rng_(rng) {}

  bool has(const std::string&) const override { return false; }  // what is optional: biases, an own head

  Result<WeightTensor> take(const std::string& name, uint64_t rows, uint64_t columns, bool is_vector) override {
    const double deviation = is_vector                          ? 1
                             : name == tensor_names::kEmbedding ? 0.5
                                                                : 1 / std::sqrt(static_cast<double>(columns));
    const WeightId id = drawn_.add_weight(encoding(name, columns, is_vector), rows, columns, rng_, deviation);
    WeightTensor tensor = drawn_.weights.tensors[static_cast<size_t>(id)];
    tensor.name = name;
    return tensor;
  }
  Result<WeightTensor> take_stack(const std::string& name, uint64_t count, uint64_t rows, uint64_t columns) override {
    return take(name, count * rows, columns, false);
  }
  std::shared_ptr<const void> storage() const { return drawn_.weights.storage; }

 private:
  static Encoding encoding(const std::string& name, uint64_t columns, bool is_vector) {
    const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (is_vector || is(tensor_names::kRouter)) return Encoding::kF32;
    if (is(tensor_names::kEmbedding) || is(tensor_names::kV)) return Encoding::kQ8_0;
    if (is(tensor_names::kDown)) return columns % 256 == 0 ? Encoding::kQ6_K : Encoding::kF16;
    if (is(tensor_names::kGate) || is(tensor_names::kUp)) return is("blk.1.") ? Encoding::kF16 : Encoding::kQ5_K;
    return is(tensor_names::kOutput) ? Encoding::kF16 : Encoding::kQ4_0;
  }

  std::mt19937_64& rng_;
  Suite drawn_;
};

// Seven layers in two cache groups: a window and heads of 64, and all positions and heads of 128. They differ in query
// and KV heads, feed-forward parts, post norms, norms of q, k and v, soft caps, sinks, output gates, RoPE bases,
// dimensions and pairing; experts have a dense part beside them. Layer 1 has no rows for v, layer 2 no RoPE, layer 3 no
// keys: it reads those of layer 2. Layer 4 is a feed-forward part alone, layer 5 has none.
std::vector<LayerSpec> mixed_layers() {
  LayerSpec local;
  local.attention = AttentionKind::kWindow;
  local.window = 24;
  local.num_heads = 4;
  local.num_kv_heads = 2;
  local.head_dim = local.rope.dim = 64;
  local.attention_scale = 0.125f;
  local.ffn_width = 512;
  local.attention_post_norm = local.ffn_post_norm = local.qk_norm = local.v_norm = true;
  LayerSpec global;
  global.num_heads = 4;
  global.num_kv_heads = 1;
  global.head_dim = global.rope.dim = 128;
  global.rope.freqs_idx = 1;
  global.rope.pairing = RopePairing::kHalves;
  global.attention_scale = 0.1f;
  global.soft_cap = 20;
  global.ffn_width = 256;
  global.activation = Activation::kGelu;
  global.sinks = global.values_are_keys = true;
  LayerSpec lone;
  lone.attention = AttentionKind::kNone;
  lone.activation = Activation::kSquaredRelu;
  lone.ffn_width = 448;
  LayerSpec without = local;
  without.feed_forward = FeedForwardKind::kNone;
  std::vector<LayerSpec> layers = {local, global, local, local, lone, without, global};
  layers[2].num_heads = 8;
  layers[2].attention_post_norm = layers[2].qk_norm = layers[2].v_norm = false;
  layers[2].rope.dim = 0;
  layers[2].sinks = true;
  layers[2].ffn_width = 384;
  layers[3].cache_of = 2;
  layers[3].v_norm = false;
  layers[3].joined_qk_norm = true;
  layers[6].num_heads = 2;
  layers[6].rope.dim = 64;  // of 128
  layers[6].rope.freqs_idx = 0;
  layers[6].soft_cap = 0;
  layers[6].sinks = layers[6].values_are_keys = false;
  layers[6].output_gate = layers[6].qk_norm = layers[6].joined_qk_norm = true;
  layers[6].ffn_width = 768;
  layers[6].ffn_post_norm = true;
  // Experts, of the last layer in the sample list. A token goes to all: rounded numbers may choose others.
  for (const size_t i : {1, 6}) {
    layers[i].feed_forward = FeedForwardKind::kExperts;
    layers[i].experts = {.count = 3, .used = 3, .rule = {.renormalise = i == 1}};
    layers[i].experts.rule.scoring = i == 1 ? ExpertScoring::kSoftmax : ExpertScoring::kSoftmaxOfChosen;
    layers[i].experts.shared_width = i == 1 ? 384 : 256;
  }
  layers[6].activation = Activation::kSquaredRelu;
  layers[6].experts.latent_width = 256;
  assign_cache_groups(layers);
  REQUIRE(check_layers(layers).ok());
  return layers;
}

Model mixed_model(Suite* suite, std::mt19937_64& rng) {
  Model model;
  model.config.width = kWidth;
  model.config.vocab_size = kVocab;
  model.config.rope_freqs = {rope_frequencies(64), rope_frequencies(128)};
  model.config.embedding_scale = 1.5f;
  model.config.residual_scale = 0.8f;
  model.config.logit_scale = 1.25f;
  model.config.logit_soft_cap = 40;
  model.config.layers = mixed_layers();
  RandomTensors tensors(rng);
  const auto made = std::make_shared<ModelStorage>();
  const Architecture architecture{.name = "mixed", .rope_pairing = RopePairing::kInterleaved};
  REQUIRE(assemble_weights(architecture, tensors, made, &model).ok());
  suite->weights = model.weights;
  suite->weights.storage =
      std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(made, tensors.storage());
  return model;
}

// Layers of latent attention: queries of a latent of their own or of x, a dense part or experts beside shared ones.
std::vector<LayerSpec> latent_layers() {
  LayerSpec spec;
  spec.attention = AttentionKind::kLatent;
  spec.latent = {.rank = 96, .rope_dim = 32, .nope_dim = 64, .value_dim = 64, .query_rank = 96};
  spec.num_heads = 5;
  spec.num_kv_heads = 1;
  spec.head_dim = spec.latent.row_dim();
  spec.rope.dim = spec.latent.rope_dim;
  spec.attention_scale = 0.1f;
  spec.ffn_width = 512;
  std::vector<LayerSpec> layers(3, spec);
  layers[1].latent.query_rank = 0;
  for (const size_t i : {1, 2}) {
    layers[i].feed_forward = FeedForwardKind::kExperts;
    layers[i].ffn_width = 256;
    layers[i].experts = {.count = 3, .used = 3, .rule = {.renormalise = true}, .shared_width = 512};
  }
  assign_cache_groups(layers);
  REQUIRE(check_layers(layers).ok());
  return layers;
}

Model latent_model(Suite* suite, std::mt19937_64& rng) {
  Model model;
  model.config.width = kWidth;
  model.config.vocab_size = kVocab;
  model.config.rope_freqs = {rope_frequencies(32)};
  model.config.layers = latent_layers();
  RandomTensors tensors(rng);
  const auto made = std::make_shared<ModelStorage>();
  const Architecture architecture{.name = "latent", .rope_pairing = RopePairing::kInterleaved, .is_latent = true};
  REQUIRE(assemble_weights(architecture, tensors, made, &model).ok());
  suite->weights = model.weights;
  suite->weights.storage =
      std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(made, tensors.storage());
  return model;
}

struct RowPlan {
  uint32_t slot, start;
  std::vector<int32_t> tokens;
  bool sampled;
};

// A computed number that lies between two narrow ones may be rounded either way, and the layers after carry it on.
double activation_slack(DType dtype) {
  return dtype == DType::kF32 ? 1e-4 : dtype == DType::kF16 ? 1e-2 : 8e-2;
}
double kv_slack(KvDType dtype) {
  return dtype == KvDType::kF16 ? 1e-3 : kv_is_f8(dtype) ? 2e-2 : 5e-3;
}

// ---- adapters: of the rows in slots 0, 2 and 3

constexpr uint32_t kAdapterRank = 24;  // in a part, at most

// The adapter of a row, or none.
std::optional<uint32_t> adapter_of(uint32_t slot) {
  if (slot == 1) return std::nullopt;
  return slot == 2 ? 1u : 0u;
}

// Adapter 0 changes all experts of a stack, each by matrices of its own. Adapter 1 changes all but the first.
AdapterOf random_expert_adapter(const Model& model, uint32_t slot, WeightGroupId id, std::mt19937_64& rng) {
  const WeightGroup& group = model.weights.groups[static_cast<size_t>(id)];
  uint32_t num_parts = 1;
  for (size_t i = 0; i < model.layers.size(); ++i)
    if (model.layers[i].gate_up == id) num_parts = has_other_half(model.config.layers[i].activation) ? 2 : 1;
  AdapterOf adapter{slot, id, {}, slot, group.num_experts - slot};
  for (uint32_t p = 0; p < num_parts; ++p) {
    AdapterPart part;
    part.num_rows = static_cast<uint32_t>(group.rows / group.num_experts / num_parts);
    part.scale = 0.5f;
    part.rank = 1 + static_cast<uint32_t>(rng() % kAdapterRank);
    part.a =
        random_normal(rng, adapter.num_experts * part.rank * group.columns, 1 / std::sqrt(group.columns), DType::kBF16);
    part.b = random_normal(rng, size_t{adapter.num_experts} * part.rank * part.num_rows, 1 / std::sqrt(part.rank),
                           DType::kBF16);
    adapter.parts.push_back(std::move(part));
  }
  return adapter;
}

// Adapter 0 changes every group that takes one, all parts by ranks of their own. Adapter 1 leaves every third group as
// it is and the first part of the others.
std::vector<AdapterOf> random_adapters(const Model& model, std::mt19937_64& rng) {
  std::vector<AdapterOf> adapters;
  for (uint32_t slot = 0; slot < 2; ++slot)
    for (size_t g = 0; g < model.weights.groups.size(); ++g) {
      const WeightGroup& group = model.weights.groups[g];
      if (takes_expert_adapters(group)) {
        adapters.push_back(random_expert_adapter(model, slot, static_cast<WeightGroupId>(g), rng));
        continue;
      }
      if (!takes_adapters(group) || (slot == 1 && g % 3 == 0)) continue;
      AdapterOf& adapter = adapters.emplace_back(AdapterOf{slot, static_cast<WeightGroupId>(g), {}});
      for (size_t p = 0; p < group.segments.size(); ++p) {
        AdapterPart part;
        part.num_rows = static_cast<uint32_t>(group.segments[p].num_rows);
        part.scale = 0.5f;
        part.rank =
            slot == 1 && p == 0 && group.segments.size() > 1 ? 0 : 1 + static_cast<uint32_t>(rng() % kAdapterRank);
        part.a = random_normal(rng, part.rank * group.columns, 1 / std::sqrt(group.columns), DType::kBF16);
        part.b =
            random_normal(rng, size_t{part.rank} * part.num_rows, 1 / std::sqrt(std::max(part.rank, 1u)), DType::kBF16);
        adapter.parts.push_back(std::move(part));
      }
    }
  return adapters;
}

// slots: of rows, tokens or records.
template <class Inputs>
void add_adapter_items(const std::vector<uint32_t>& slots, Inputs* inputs) {
  for (uint32_t adapter = 0; adapter < 2; ++adapter) {
    AdapterItem item{adapter, static_cast<uint32_t>(inputs->adapter_rows.size()), 0};
    for (uint32_t row = 0; row < slots.size(); ++row) {
      if (adapter_of(slots[row]) != adapter) continue;
      if (item.num_rows == kAdapterItemRows) {
        inputs->adapter_items.push_back(item);
        item = {adapter, static_cast<uint32_t>(inputs->adapter_rows.size()), 0};
      }
      inputs->adapter_rows.push_back({row, slots[row] == 3 ? 0.5f : 1.0f});
      ++item.num_rows;
    }
    if (item.num_rows > 0) inputs->adapter_items.push_back(item);
  }
}

void add_adapters(const std::vector<RowPlan>& rows, Step* step) {
  std::vector<uint32_t> token_slots, record_slots;
  for (size_t r = 0; r < rows.size(); ++r) {
    token_slots.insert(token_slots.end(), rows[r].tokens.size(), rows[r].slot);
    if (rows[r].sampled) record_slots.push_back(rows[r].slot);
    if (const auto adapter = adapter_of(rows[r].slot)) step->forward_inputs.rows[r].adapter_id = *adapter + 1;
  }
  add_adapter_items(token_slots, &step->forward_inputs);
  add_adapter_items(record_slots, &step->sample_inputs);
}

constexpr DType kActivations[] = {DType::kF32, DType::kF16, DType::kBF16};

struct Numbers {
  DType activation;
  KvDType kv;
  bool with_adapters = false;
  uint32_t expanded_heads = 0;  // at a time, of rows of more than two tokens
};

// Rows of more than two tokens have expanded latents in a group behind those of the model.
void add_expanded_row(const RowRecord& row, uint32_t row_idx, uint32_t group, Step* step) {
  std::vector<ExpandItem>& items = step->forward_inputs.attention[group].expand_items;
  const uint32_t num_keys = row.start + row.num_tokens;
  std::vector<uint32_t> table;
  for (uint32_t key = 0; key < num_keys; key += kExpandItemKeys) {
    table.push_back(static_cast<uint32_t>(items.size()));
    items.push_back({row.slot, key, std::min(kExpandItemKeys, num_keys - key), table.back()});
  }
  step->patch_table(row.slot, 0, table, group);
  step->add_prompt_items(row_idx, 0, 1, group);
}

Step decoder_step(const Model& model, const Numbers& numbers, uint32_t bucket, const std::vector<RowPlan>& rows,
                  uint32_t output_position) {
  Caps caps;
  const DType activation = caps.activation_dtype = numbers.activation;
  const uint32_t adapter_rank = numbers.with_adapters ? kAdapterRank : 0;
  Step step;
  const auto expanded_group = static_cast<uint32_t>(cache_groups(model.config.layers).size());
  step.forward =
      build_forward(model, caps, bucket, adapter_rank, {expanded_group, numbers.expanded_heads}, numbers.with_adapters);
  if (numbers.expanded_heads > 0) step.forward_inputs.num_absorbed = 0;
  for (const RowPlan& row : rows) {
    const uint32_t row_idx = step.add_row(row.slot, row.start, static_cast<uint32_t>(row.tokens.size()), row.tokens);
    const std::vector<CacheGroup> groups = cache_groups(model.config.layers);
    if (numbers.expanded_heads > 0 && row.tokens.size() <= 2)
      step.forward_inputs.num_absorbed = static_cast<uint32_t>(step.forward_inputs.tokens.size());
    for (uint32_t g = 0; g < groups.size(); ++g) {
      if (row.tokens.size() > 2 && numbers.expanded_heads > 0)
        add_expanded_row(step.forward_inputs.rows[row_idx], row_idx, expanded_group, &step);
      else if (row.tokens.size() > 2)
        step.add_prompt_items(row_idx, groups[g].window, 1, g);
      else
        step.add_decode_items(row_idx, 64, groups[g].window, g);
    }
    if (row.sampled)
      step.sample_inputs.records.push_back(
          {row.slot, static_cast<uint32_t>(step.forward_inputs.tokens.size()) - 1, output_position});
  }
  step.sample = build_sample(model, caps, 4, adapter_rank, /*keeps_final=*/false, numbers.with_adapters);
  if (numbers.with_adapters) add_adapters(rows, &step);
  // A post norm makes what a part computes, and its error, as large as the stream.
  const bool has_post_norms = std::ranges::any_of(model.config.layers, &LayerSpec::attention_post_norm);
  const double slack = std::max(activation_slack(activation), kv_slack(numbers.kv)) * (has_post_norms ? 2 : 1);
  for (TensorId id = 0; id < static_cast<TensorId>(step.forward.tensors.size()); ++id)
    if (step.forward.tensors[static_cast<size_t>(id)].storage == Storage::kHidden)
      step.outputs.push_back({id, Tolerance::kAttention, activation, 0, false, slack});
  return step;
}

// Each group has its own ids for the blocks of a row.
constexpr uint32_t kBlocks = 24;
uint32_t block_of(uint32_t group, uint32_t block) {
  return group == 0 ? block : (block * 5 + 7 * group) % kBlocks;
}

void patch_tables(const Model& model, uint32_t slot, uint32_t first, const std::vector<uint32_t>& blocks, Step* step) {
  for (uint32_t g = 0; g < cache_groups(model.config.layers).size(); ++g) {
    std::vector<uint32_t> own;
    for (const uint32_t block : blocks) own.push_back(block_of(g, block));
    step->patch_table(slot, first, own, g);
  }
}

std::vector<int32_t> random_tokens(uint32_t count, std::mt19937_64& rng) {
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(rng() % kVocab);
  return tokens;
}

Case decoder_case(const Model& model, const Numbers& numbers, Like like, std::mt19937_64& rng) {
  Case test_case;
  test_case.variant = dtype_name(numbers.activation);
  test_case.name =
      fmt::format("decoder {}-like activations {} KV {}{}{}", kLikeNames[static_cast<int>(like)],
                  dtype_name(numbers.activation), kv_dtype_name(numbers.kv), numbers.with_adapters ? " adapters" : "",
                  numbers.expanded_heads > 0 ? fmt::format(" {} heads expanded", numbers.expanded_heads) : "");
  if (numbers.with_adapters) test_case.adapters = random_adapters(model, rng);
  for (const CacheGroup& group : cache_groups(model.config.layers))
    test_case.groups.push_back({.num_layers = group.num_layers,
                                .num_kv_heads = group.num_kv_heads,
                                .head_dim = group.head_dim,
                                .block_tokens = 16,
                                .num_blocks = kBlocks,
                                .dtype = numbers.kv,
                                .keys_only = group.keys_only()});
  const uint32_t num_groups = static_cast<uint32_t>(test_case.groups.size());
  if (numbers.expanded_heads > 0)
    test_case.groups.push_back({.num_layers = 1,
                                .num_kv_heads = 1,
                                .head_dim = model.config.layers[0].latent.key_dim(),
                                .block_tokens = kExpandItemKeys,
                                .num_blocks = 4 * numbers.expanded_heads,
                                .is_expanded = true});
  const std::vector<int32_t> last = {kLastSampled};

  Step first = decoder_step(model, numbers, 128,
                            {{0, 0, random_tokens(20, rng), true}, {1, 0, random_tokens(70, rng), true}}, 0);
  RowSampling sampling;
  sampling.temperature = 0;
  first.set_sampling(0, sampling);
  sampling.temperature = 0.8f;
  sampling.seed_lo = 99;
  sampling.top_k = 40;
  first.set_sampling(1, sampling);
  patch_tables(model, 0, 0, {5, 17}, &first);
  patch_tables(model, 1, 0, {3, 9, 1, 12, 20}, &first);

  Step second = decoder_step(model, numbers, 8,
                             {{0, 20, last, true}, {2, 0, random_tokens(5, rng), false}, {1, 70, last, true}}, 1);
  sampling.temperature = 0;
  second.set_sampling(2, sampling);
  patch_tables(model, 2, 0, {6}, &second);

  // Slot 3 forks slot 0: it shares the full block and owns a copy of the five tokens in the next one.
  Step third = decoder_step(
      model, numbers, 16,
      {{0, 21, last, true}, {3, 21, last, true}, {2, 5, random_tokens(6, rng), true}, {1, 71, last, true}}, 2);
  third.add_update(RowUpdateKind::kCopySlot, 3, 0, 0);
  patch_tables(model, 3, 1, {23}, &third);
  third.memory = build_memory(num_groups);
  for (uint32_t g = 0; g < num_groups; ++g)
    third.forward_inputs.block_copies.push_back({block_of(g, 17), block_of(g, 23), 5, g});

  // So few rows that a backend may make a norm in the dispatch of the matmul before it.
  Step fourth = decoder_step(model, numbers, 2, {{0, 22, last, true}, {1, 72, last, true}}, 3);

  // And one, for which it may have kernels of their own.
  Step fifth = decoder_step(model, numbers, 1, {{0, 23, last, true}}, 4);

  test_case.steps = {std::move(first), std::move(second), std::move(third), std::move(fourth), std::move(fifth)};
  test_case.check_results = [](const std::vector<StepOutput>& want, const std::vector<StepOutput>& got) {
    std::vector<std::string> failures;
    for (size_t s = 0; s < want.size(); ++s)
      for (size_t r = 0; r < want[s].results.size(); ++r)
        if (want[s].results[r].token != got[s].results[r].token)
          failures.push_back(fmt::format("step {} record {}: expected token {}, found {} (margin {})", s, r,
                                         want[s].results[r].token, got[s].results[r].token, want[s].results[r].margin));
    return failures;
  };
  return test_case;
}

bool margins_hold(const Suite& suite, const Case& test_case) {
  auto reference = make_reference_backend();
  if (!reference->load_weights(suite.weights, {}) || !reference->create_state(state_config(suite, *reference)))
    return false;
  const auto outcome = execute(*reference, test_case, suite.weights.groups.size());
  REQUIRE(outcome.ok());
  for (const StepOutput& output : outcome->outputs)
    for (const SampleResult& result : output.results)
      if (!(result.margin > kMarginMin)) return false;
  return true;
}

// A case whose draws have margins.
Case drawn_case(const Suite& suite, const Model& model, const Numbers& numbers, Like like, std::mt19937_64& rng) {
  Suite alone = suite;
  for (int tries = 0; tries < 50; ++tries) {
    alone.cases = {decoder_case(model, numbers, like, rng)};
    if (margins_hold(alone, alone.cases[0])) return alone.cases[0];
  }
  FAIL("no draws with margins");
  return {};
}

}  // namespace

TEST_CASE("a decoder's lists give the same hidden states and tokens", "[decoder]") {
  const Like like = GENERATE(Like::kLlama, Like::kQwen2, Like::kQwen3, Like::kMixed, Like::kLatent);
  std::mt19937_64 rng(like == Like::kLlama ? 3 : 7);  // fixed: the draws below must have margins
  Suite suite;
  suite.vocab_size = kVocab;
  const Model model = like == Like::kMixed    ? mixed_model(&suite, rng)
                      : like == Like::kLatent ? latent_model(&suite, rng)
                                              : tiny_model(&suite, like, rng);
  // Each model has each KV dtype, and the models together each pair.
  size_t pair = static_cast<size_t>(like);
  for (KvDType kv_dtype : {KvDType::kF16, KvDType::kBF16, KvDType::kI8, KvDType::kF8, KvDType::kF8Block})
    suite.cases.push_back(drawn_case(suite, model, {kActivations[pair++ % 3], kv_dtype}, like, rng));
  run(suite);
}

TEST_CASE("a decoder's lists give the same where latents are expanded", "[decoder][latent_attention]") {
  std::mt19937_64 rng(7);
  Suite suite;
  suite.vocab_size = kVocab;
  const Model model = latent_model(&suite, rng);
  for (const Numbers& numbers : {Numbers{DType::kF32, KvDType::kF8Block, false, 5},
                                 {DType::kF16, KvDType::kF16, false, 2},
                                 {DType::kBF16, KvDType::kI8, false, 1}})
    suite.cases.push_back(drawn_case(suite, model, numbers, Like::kLatent, rng));
  run(suite);
}

TEST_CASE("rows whose latents are expanded give what those that are absorbed do", "[decoder][latent_attention]") {
  Suite suite;
  suite.vocab_size = kVocab;
  std::mt19937_64 rng(7);
  const Model model = latent_model(&suite, rng);
  const auto outcome_of = [&](uint32_t heads, std::optional<Case>* made) {
    std::mt19937_64 same(12);
    *made = decoder_case(model, {DType::kF32, KvDType::kF16, false, heads}, Like::kLatent, same);
    suite.cases = {**made};
    return reference_outcome(suite, **made);
  };
  std::optional<Case> absorbed, expanded;
  const Outcome right = outcome_of(0, &absorbed), found = outcome_of(2, &expanded);
  CHECK(compare(*absorbed, right, found, Caps{}).empty());
  // That the comparison tells a head's keys from another's.
  for (Step& step : expanded->steps)
    for (Op& op : step.forward.ops)
      if (auto* expand = std::get_if<ExpandLatent>(&op); expand != nullptr && expand->head_first == 2)
        expand->head_first = 0;
  CHECK_FALSE(compare(*absorbed, right, reference_outcome(suite, *expanded), Caps{}).empty());
}

TEST_CASE("a decoder's lists give the same with adapters for some rows", "[decoder][adapters]") {
  const Like like = GENERATE(Like::kLlama, Like::kQwen2, Like::kMixed, Like::kLatent);
  std::mt19937_64 rng(11);
  Suite suite;
  suite.vocab_size = kVocab;
  const Model model = like == Like::kMixed    ? mixed_model(&suite, rng)
                      : like == Like::kLatent ? latent_model(&suite, rng)
                                              : tiny_model(&suite, like, rng);
  for (size_t i : {0, 1})
    suite.cases.push_back(
        drawn_case(suite, model, {kActivations[(static_cast<size_t>(like) + i) % 3], KvDType::kF16, true}, like, rng));
  run(suite);
  // That the comparison tells rows with adapters from rows without.
  Case without = suite.cases[0];
  for (Step& step : without.steps)
    for (AdapterRow& row : step.forward_inputs.adapter_rows) row.scale = 0;
  CHECK_FALSE(
      compare(without, reference_outcome(suite, suite.cases[0]), reference_outcome(suite, without), Caps{}).empty());
}

// What the comparison above must find: a layer that reads the keys and values of another one than it should.
TEST_CASE("a layer that reads the cache of the wrong layer is told", "[decoder]") {
  std::mt19937_64 rng(7);
  Suite suite;
  suite.vocab_size = kVocab;
  const Model model = mixed_model(&suite, rng);
  const Case right = decoder_case(model, {DType::kF32, KvDType::kF16}, Like::kMixed, rng);
  suite.cases = {right};
  Case wrong = right;
  uint32_t num_changed = 0;
  for (Step& step : wrong.steps)
    for (Op& op : step.forward.ops)
      if (auto* attention = std::get_if<PagedAttention>(&op); attention != nullptr && attention->queries_only) {
        REQUIRE(attention->layer == 1);
        attention->layer = 0;
        ++num_changed;
      }
  REQUIRE(num_changed == wrong.steps.size());
  const Outcome expected = reference_outcome(suite, right);
  CHECK(compare(right, expected, reference_outcome(suite, right), Caps{}).empty());
  CHECK_FALSE(compare(right, expected, reference_outcome(suite, wrong), Caps{}).empty());
}

}  // namespace llmrt::optest
