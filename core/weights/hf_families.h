// The families of Hugging Face models that are read, as rows of data: what config.json calls them, the defaults that
// transformers has for keys that it leaves out, and the names of their tensors. Sources: the configuration classes of
// transformers and GGUF's names of the same tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace llmrt {

// Which layers have a window.
enum class HfWindows : uint8_t {
  kRefused,    // none may
  kAll,        // all, where sliding_window is a number
  kAllIfUsed,  // all, where use_sliding_window asks for it
  kFromLayer,  // likewise, those from max_window_layers on, or layer_types says which
  kByPattern,  // layer_types, or all but every n-th
};

// How the experts of a layer lie in the files.
enum class HfExperts : uint8_t { kNone, kOneTensorEach, kFused };

// What layers without attention compute (hf_recurrent.cpp). kLoneScan: a layer is a scan, attention or a feed-forward
// part alone.
enum class HfRecurrent : uint8_t { kNone, kShortConv, kGatedDelta, kScan, kLoneScan };
constexpr bool is_scan(HfRecurrent kind) {
  return kind == HfRecurrent::kScan || kind == HfRecurrent::kLoneScan;
}

// How a family's folders name the layers behind the others, which draft tokens beyond the next one. kMtp: one after the
// other under "mtp."; kMtpParts: two of these are one layer, its attention and its feed-forward part.
enum class HfDrafts : uint8_t { kNone, kMtp, kMtpParts };

struct HfName {
  std::string_view hf, canonical;
};

// A 0 among the defaults: the key is required, but for kv_heads (as many as heads) and head_dim (width / heads).
struct HfFamily {
  std::string_view model_type, class_name;  // in "model_type" and "architectures"
  std::string_view architecture;            // GGUF's
  uint32_t width = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, context = 0;
  double eps = 0, rope_base = 10000;
  bool is_tied = false;
  bool may_have_biases = false;  // attention_bias and mlp_bias may be true
  bool is_gemma = false;         // norms hold what is added to 1; scores have a scale of their own
  bool norms_add_one = false;    // norms hold what is added to 1, but for that of a recurrent part
  double rotary_share = 1;       // of a head's numbers that turn
  bool is_nested = false;        // the text model is a part: text_config, names under language_model
  HfWindows windows = HfWindows::kRefused;
  uint32_t window = 0, pattern = 0;  // of kAll and kByPattern
  HfExperts experts = HfExperts::kNone;
  bool may_lack_experts = false;    // a count of 0 is a model without them
  std::string_view count_key = {};  // of experts
  uint32_t num_experts = 0, num_used = 0, expert_ffn = 0;
  HfRecurrent recurrent = HfRecurrent::kNone;
  // Latent attention, whose RoPE pairs are neighbours: sizes of heads, shared experts beside the others, and whether
  // experts are chosen by sigmoids with a correction.
  bool is_latent = false, has_correction = false;
  uint32_t nope_dim = 0, value_dim = 0, query_rank = 0, num_shared = 0, num_dense = 0;
  double routed_scale = 1;
  HfDrafts drafts = HfDrafts::kNone;
  std::string_view activation_key = "hidden_act", activation = "silu";
  std::span<const HfName> layer_names;        // whole names behind "model.layers.N."
  std::span<const HfName> projection_names;   // with .weight and .bias
  std::span<const HfName> expert_names = {};  // behind "mlp.experts.E." and the like: kOneTensorEach
  std::string_view experts_prefix = {};       // "mlp.experts."
};

std::span<const HfFamily> hf_families();
// Null: not known.
const HfFamily* find_hf_family(std::string_view model_type);

}  // namespace llmrt
