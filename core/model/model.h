// A model ready to be put on a backend: configuration, weight table, and where each weight of each layer is.
// Immutable after load; shared by value of shared_ptr.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/model/model_config.h"
#include "core/text/tokenizer.h"
#include "core/weights/weight_table.h"

namespace llmrt {

// The weights of a first part that keeps a state.
struct RecurrentWeights {
  // What the convolution passes comes first but for Mamba-2's gate; recurrent_parts.cpp has the order of the rows.
  WeightGroupId in = -1, out = -1;
  WeightId conv = -1, conv_bias = -1;  // conv_bias: of a scan alone
  WeightId a = -1, dt_bias = -1, norm = -1;
  WeightId d = -1;  // of a scan alone
};

// The weights of latent attention.
struct LatentWeights {
  WeightGroupId query_latent = -1;  // LatentSpec::query_rank only
  WeightId query_norm = -1;         // likewise
  WeightGroupId query = -1;         // of a head nope_dim rows, then those that turn
  WeightGroupId keys_values = -1;   // the latent's rows, then those that turn
  WeightId norm = -1;               // of the latent
  WeightGroupId key = -1;           // by head, [rank, nope_dim]: what brings a query to the latent's numbers
  WeightGroupId value = -1;         // by head, [value_dim, rank]
  WeightGroupId key_rows = -1;      // LatentSpec::can_expand only: key transposed, what makes a key of a latent
};

// -1: the layer has none.
struct LayerWeights {
  WeightId attention_norm = -1, ffn_norm = -1;
  // q, k, v rows stacked (LayerSpec::cache_of: q alone); bias with the group where the file has one
  WeightGroupId qkv = -1;
  WeightGroupId output = -1;
  WeightGroupId gate_up = -1;  // gate rows, then up rows (has_other_half); with experts as ExpertGateUp says
  WeightGroupId down = -1;
  LatentWeights latent;
  RecurrentWeights recurrent;
  WeightId router = -1, router_bias = -1, router_correction = -1, shared_gate = -1;  // with experts only
  WeightGroupId shared_gate_up = -1, shared_down = -1;                               // ExpertSpec::shared_width only
  WeightGroupId latent_down = -1, latent_up = -1;                                    // ExpertSpec::latent_width only
  WeightId q_norm = -1, k_norm = -1;                                                 // LayerSpec::qk_norm only
  WeightId v_norm = -1;                                                              // LayerSpec::v_norm only: ones
  WeightGroupId attention_gate = -1;                                                 // LayerSpec::output_gate only
  WeightId sinks = -1;                                                               // LayerSpec::sinks only
  WeightId attention_post_norm = -1, ffn_post_norm = -1;                             // where LayerSpec has them
  KvTensorScales kv_scales = {};                                                     // Model::has_kv_scales only
};

// What stands before the layer of a model that drafts (Model::draft_head): its stream begins as
// token_in norm(embedding; token_norm) + hidden_in norm(hidden; hidden_norm).
struct DraftInputWeights {
  WeightId token_norm = -1, hidden_norm = -1;
  WeightGroupId token_in = -1, hidden_in = -1;  // the two halves of one matrix's columns
};

struct Model {
  std::string path;      // as given: a file, or "synthetic:<shape>:<encoding>"
  std::string encoding;  // what most bytes are stored in, for reports ("q4_1")
  ModelConfig config;
  WeightTable weights;
  WeightId embedding = -1;
  WeightId final_norm = -1;
  std::vector<WeightId> rope_freqs;  // of ModelConfig::rope_freqs: f32 [1, RopeSpec::dim / 2] each
  WeightGroupId head = -1;           // the embedding's rows when tied
  std::vector<LayerWeights> layers;  // one for each of config.layers
  // Of ModelConfig::num_draft_layers, under GGUF's names, in no table of this model's.
  std::vector<WeightTensor> draft_tensors;
  // The first of these layers as a model of its own (draft_head.h), which shares what this one has of embedding and
  // head. Null: there is none, and draft_head_lack says why, where there are such layers.
  std::shared_ptr<const Model> draft_head;
  std::string draft_head_lack;
  std::optional<DraftInputWeights> draft_input;  // of a model that drafts
  bool has_kv_scales = false;                    // the file has scales for an fp8 KV cache, of every layer
  // What the file leaves out or gets wrong although it can be used, a line each: to be shown wherever it is loaded.
  std::vector<std::string> warnings;
  std::optional<Vocabulary> vocabulary;  // none for synthetic models (token ids only)
};

// Whether adapters may change the group's products: it is one matrix, in few segments.
bool takes_adapters(const WeightGroup& group);
// Likewise those of each expert of a stack.
bool takes_expert_adapters(const WeightGroup& group);

// Opens a GGUF file, a Hugging Face folder, or "synthetic:<shape>:<encoding>" (shapes as
// synthetic_shapes() says; encoding any of encoding.h's names, or q4_k for the Q4_K_M mix). Maps, checks everything and
// reads nothing that is not needed. Errors: not_found, corrupt_file, unsupported (with the name of what is), each
// naming key or tensor, expected, found.
Result<std::shared_ptr<const Model>> load_model(const std::string& path);

// What --draft-model names: a path as load_model takes it, or "mtp", the target's own layer. Errors name the option.
inline constexpr const char* kOwnDraftHead = "mtp";
Result<std::shared_ptr<const Model>> load_draft_model(const std::string& name, const Model& target);

// Names of the synthetic shapes, for help texts.
std::vector<std::string> synthetic_shapes();

}  // namespace llmrt
