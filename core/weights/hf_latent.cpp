#include "core/weights/hf_latent.h"

#include <cmath>

namespace llmrt {
namespace {

constexpr int64_t kNumbersMax = 1 << 20, kSharedMax = 64, kLaterLayersMax = 16;

constexpr std::string_view kKeys[] = {
    "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "rope_interleave",
    "n_routed_experts", "n_shared_experts", "first_k_dense_replace", "mlp_layer_types", "moe_layer_freq",
    "routed_scaling_factor", "scoring_func", "topk_method", "n_group", "topk_group", "num_nextn_predict_layers",
    // Training alone reads these, and where the model's code lies.
    "aux_loss_alpha", "seq_aux", "ep_size", "auto_map", "qk_head_dim"};

// A count that may be 0.
uint64_t read_count(HfReader& reader, std::string_view name, uint64_t otherwise, int64_t max) {
  const double count = reader.number(name, static_cast<double>(otherwise));
  if (count >= 0 && count <= static_cast<double>(max) && count == std::floor(count))
    return static_cast<uint64_t>(count);
  reader.refuse(name, fmt::format("an integer in [0, {}]", max), fmt::format("{}", count));
  return 0;
}

// The first layers, which have no experts.
uint64_t read_num_dense(const HfFamily& family, uint64_t num_layers, HfReader& reader) {
  uint64_t num_dense = read_count(reader, "first_k_dense_replace", family.num_dense, static_cast<int64_t>(num_layers));
  const JsonTree* types = reader.find("mlp_layer_types");
  if (types == nullptr) return num_dense;
  if (types->items() == nullptr || types->items()->size() != num_layers) {
    reader.refuse("mlp_layer_types", fmt::format("an array of {}, one a layer", num_layers), types->describe());
    return num_dense;
  }
  num_dense = 0;
  for (uint64_t layer = 0; layer < num_layers; ++layer) {
    const std::string* type = (*types->items())[layer].string();
    const bool is_dense = type != nullptr && *type == "dense";
    if ((!is_dense && (type == nullptr || *type != "sparse")) || (is_dense && num_dense < layer))
      reader.refuse("mlp_layer_types", "dense layers, then sparse ones", (*types->items())[layer].describe());
    num_dense += is_dense;
  }
  return num_dense;
}

void read_routing(const HfFamily& family, const std::string& prefix, HfReader& reader, CanonicalMetadata& metadata) {
  const bool has_sigmoid = family.has_correction;
  const std::string_view scoring = has_sigmoid ? "sigmoid" : "softmax", method = has_sigmoid ? "noaux_tc" : "greedy";
  if (const std::string found = reader.string("scoring_func", scoring); found != scoring)
    reader.refuse("scoring_func", scoring, "\"" + printable(found) + "\"");
  if (const std::string found = reader.string("topk_method", method); found != method)
    reader.refuse("topk_method", method, "\"" + printable(found) + "\"");
  if (const uint64_t step = reader.integer("moe_layer_freq", 1); step != 1)
    reader.refuse("moe_layer_freq", "1", fmt::format("{}", step));
  metadata.add_u64(prefix + "expert_gating_func", has_sigmoid ? 2 : 1);
  if (!has_sigmoid && reader.boolean("norm_topk_prob", false)) reader.refuse("norm_topk_prob", "false", "true");
  metadata.add_f64(prefix + "expert_weights_scale", reader.number("routed_scaling_factor", family.routed_scale));
  metadata.add_u64(prefix + "expert_shared_count",
                   read_count(reader, "n_shared_experts", family.num_shared, kSharedMax));
  // Greedy choice knows no groups.
  const uint64_t groups = reader.integer("n_group", 1), used = reader.integer("topk_group", 1);
  if (!has_sigmoid) return;
  metadata.add_u64(prefix + "expert_group_count", groups);
  metadata.add_u64(prefix + "expert_group_used_count", used);
}

}  // namespace

std::span<const std::string_view> hf_latent_keys() {
  return kKeys;
}

void read_hf_latent(const HfFamily& family, const std::string& prefix, HfReader& reader, CanonicalMetadata& metadata,
                    HfConfig* out) {
  const uint64_t rank = reader.integer("kv_lora_rank", 512, kNumbersMax);
  const uint64_t rope_dim = reader.integer("qk_rope_head_dim", 64, kNumbersMax);
  const uint64_t nope_dim = reader.integer("qk_nope_head_dim", family.nope_dim, kNumbersMax);
  metadata.add_u64(prefix + "attention.kv_lora_rank", rank);
  metadata.add_u64(prefix + "attention.key_length", rank + rope_dim);
  metadata.add_u64(prefix + "attention.value_length", rank);
  metadata.add_u64(prefix + "attention.key_length_mla", nope_dim + rope_dim);
  metadata.add_u64(prefix + "attention.value_length_mla", reader.integer("v_head_dim", family.value_dim, kNumbersMax));
  metadata.add_u64(prefix + "attention.head_count_kv", 1);
  metadata.add_u64(prefix + "rope.dimension_count", rope_dim);
  // Null: none; absent: transformers' own number.
  const bool is_null = reader.has("q_lora_rank") && reader.find("q_lora_rank") == nullptr;
  if (!is_null)
    metadata.add_u64(prefix + "attention.q_lora_rank", reader.integer("q_lora_rank", family.query_rank, kNumbersMax));
  metadata.add_u64(prefix + "leading_dense_block_count", read_num_dense(family, out->num_layers, reader));
  read_routing(family, prefix, reader, metadata);
  out->num_later = read_count(reader, "num_nextn_predict_layers", 0, kLaterLayersMax);
}

}  // namespace llmrt
