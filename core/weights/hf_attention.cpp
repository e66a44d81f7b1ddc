#include "core/weights/hf_attention.h"

#include <vector>

namespace llmrt {
namespace {

// One object of rope_scaling, or of rope_parameters of later versions, which holds the base as well.
class RopeObject {
 public:
  RopeObject(const JsonTree& object, std::string place, bool is_latent = false)
      : reader_(object, place + "."), place_(std::move(place)), is_latent_(is_latent) {}

  // Where only some of a head's numbers turn. Sections of M-RoPE have equal positions in text.
  std::optional<double> share(HfReader& config) {
    if (reader_.find("partial_rotary_factor") == nullptr) return {};
    const double share = reader_.number("partial_rotary_factor");
    config.keep(reader_.status());
    return share;
  }

  void add(const std::string& prefix, HfReader& config, CanonicalMetadata& metadata) {
    const std::string type = reader_.string("rope_type", reader_.string("type", "default"));
    constexpr std::string_view kAll[] = {
        "rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved"};
    constexpr std::string_view kLinear[] = {"factor"};
    constexpr std::string_view kLlama3[] = {"factor", "low_freq_factor", "high_freq_factor",
                                            "original_max_position_embeddings"};
    constexpr std::string_view kYarn[] = {
        "factor",  "original_max_position_embeddings", "beta_fast", "beta_slow", "finetuned", "attention_factor",
        "truncate"};
    if (type == "default") {
      reader_.expect_known({kAll});
    } else if (type == "linear") {
      reader_.expect_known({kAll, kLinear});
    } else if (type == "llama3") {
      reader_.expect_known({kAll, kLlama3});
      add_llama3(prefix, metadata);
    } else if (type == "yarn") {
      constexpr std::string_view kScales[] = {"mscale", "mscale_all_dim"};
      reader_.expect_known({kAll, kYarn, is_latent_ ? std::span(kScales) : std::span<const std::string_view>()});
      add_yarn(prefix, metadata);
      if (is_latent_) add_score_scale(prefix, metadata);
    } else {
      reader_.refuse("rope_type", "default, linear, llama3 or yarn", "\"" + printable(type) + "\"");
    }
    if (type != "default") {
      metadata.add_string(prefix + "rope.scaling.type", type);
      const double factor = reader_.number("factor");
      if (factor < 1) reader_.refuse("factor", "at least 1", fmt::format("{}", factor));
      metadata.add_f64(prefix + "rope.scaling.factor", factor);
    }
    config.keep(reader_.status());
  }

  std::optional<double> base(HfReader& config) {
    if (reader_.find("rope_theta") == nullptr) return {};
    const double base = reader_.number("rope_theta");
    config.keep(reader_.status());
    return base;
  }
  // A default rope, and nothing else: that of layers with a window.
  void expect_plain(HfReader& config) {
    const std::string type = reader_.string("rope_type", reader_.string("type", "default"));
    if (type != "default") reader_.refuse("rope_type", "default", "\"" + printable(type) + "\"");
    constexpr std::string_view kPlain[] = {"rope_type", "type", "rope_theta"};
    reader_.expect_known({kPlain});
    config.keep(reader_.status());
  }

 private:
  void add_number(const std::string& key, const char* name, CanonicalMetadata& metadata) {
    if (reader_.find(name) != nullptr) metadata.add_f64(key, reader_.number(name));
  }
  void add_llama3(const std::string& prefix, CanonicalMetadata& metadata) {
    const double low = reader_.number("low_freq_factor"), high = reader_.number("high_freq_factor");
    if (!(low > 0 && high > low))
      reader_.refuse("high_freq_factor", fmt::format("above low_freq_factor {}, which is above 0", low),
                     fmt::format("{}", high));
    metadata.add_f64(prefix + "rope.scaling.low_freq_factor", low);
    metadata.add_f64(prefix + "rope.scaling.high_freq_factor", high);
    metadata.add_u64(prefix + "rope.scaling.original_context_length",
                     reader_.integer("original_max_position_embeddings"));
  }
  // The factor is taken as it is given, not as the quotient of the two contexts.
  void add_yarn(const std::string& prefix, CanonicalMetadata& metadata) {
    const double fast = reader_.number("beta_fast", 32), slow = reader_.number("beta_slow", 1);
    if (!(slow > 0 && fast > slow))
      reader_.refuse("beta_fast", fmt::format("above beta_slow {}, which is above 0", slow), fmt::format("{}", fast));
    if (const double whole = reader_.number("attention_factor", 1); !(whole > 0))
      reader_.refuse("attention_factor", "above 0", fmt::format("{}", whole));
    add_number(prefix + "rope.scaling.yarn_beta_fast", "beta_fast", metadata);
    add_number(prefix + "rope.scaling.yarn_beta_slow", "beta_slow", metadata);
    add_number(prefix + "rope.scaling.yarn_attn_factor", "attention_factor", metadata);
    if (!reader_.boolean("truncate", true)) metadata.add_bool("llmrt.rope_yarn_truncate", false);
    if (reader_.find("original_max_position_embeddings") != nullptr)
      metadata.add_u64(prefix + "rope.scaling.original_context_length",
                       reader_.integer("original_max_position_embeddings"));
  }

  // Latent attention's factor on scores; that on cos and sin is then the quotient of two such.
  void add_score_scale(const std::string& prefix, CanonicalMetadata& metadata) {
    const double all = reader_.number("mscale_all_dim", 0), own = reader_.number("mscale", 0);
    if (!(all >= 0 && own >= 0)) return reader_.refuse("mscale_all_dim", "at least 0", fmt::format("{}", all));
    if (all == 0) return;
    const double factor = std::max(1.0, reader_.number("factor"));
    const auto scale = [&](double multiplier) { return 1 + 0.1 * multiplier * std::log(factor); };
    metadata.add_f64(prefix + "rope.scaling.yarn_log_multiplier", 0.1 * all);
    if (reader_.find("attention_factor") == nullptr)
      metadata.add_f64(prefix + "rope.scaling.yarn_attn_factor", own > 0 ? scale(own) / scale(all) : scale(1));
  }

  HfReader reader_;
  std::string place_;
  const bool is_latent_;
};

// The base of layers with a window, and the object of the others, where rope_parameters tells the two apart.
const JsonTree* read_window_rope(const JsonTree& object, std::optional<double>* window_base, HfReader& reader) {
  const JsonTree* full = object.find("full_attention");
  const JsonTree* window = object.find("sliding_attention");
  if (full == nullptr && window == nullptr) return &object;
  if (full == nullptr || window == nullptr || full->members() == nullptr || window->members() == nullptr ||
      object.members()->size() != 2) {
    reader.refuse("rope_parameters", "objects full_attention and sliding_attention", object.describe());
    return nullptr;
  }
  RopeObject rope(*window, "rope_parameters.sliding_attention");
  rope.expect_plain(reader);
  *window_base = rope.base(reader);
  return full;
}

// The layers that have a window, from layer_types; false: it does not say.
bool read_layer_types(uint64_t num_layers, HfReader& reader, std::vector<bool>* has_window) {
  const JsonTree* types = reader.find("layer_types");
  if (types == nullptr) return false;
  if (types->items() == nullptr || types->items()->size() != num_layers) {
    reader.refuse("layer_types", fmt::format("an array of {}, one a layer", num_layers), types->describe());
    return true;
  }
  for (uint64_t layer = 0; layer < num_layers; ++layer) {
    const JsonTree& type = (*types->items())[layer];
    const bool is_window = type.string() != nullptr && *type.string() == "sliding_attention";
    if (!is_window && (type.string() == nullptr || *type.string() != "full_attention"))
      reader.refuse("layer_types", "full_attention and sliding_attention", type.describe());
    (*has_window)[layer] = is_window;
  }
  return true;
}

// Only what transformers knows under one of two names.
uint64_t read_pattern(const HfFamily& family, HfReader& reader) {
  const uint64_t usual = reader.integer("_sliding_window_pattern", family.pattern, 1024);
  return reader.integer("sliding_window_pattern", usual, 1024);
}

}  // namespace

void read_hf_rope(const HfFamily& family, const std::string& prefix, HfReader& reader, CanonicalMetadata& metadata) {
  std::optional<double> base, window_base, rope_share;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    const JsonTree* object = reader.find(key);
    if (object == nullptr) continue;
    if (object->members() == nullptr) return reader.refuse(key, "an object", object->describe());
    if (key == "rope_scaling" && reader.find("rope_parameters") != nullptr)
      return reader.refuse(key, "none beside rope_parameters", object->describe());
    if (family.is_gemma && key == "rope_parameters") object = read_window_rope(*object, &window_base, reader);
    if (object == nullptr) return;
    RopeObject rope(*object, std::string(key), family.is_latent);
    rope.add(prefix, reader, metadata);
    base = rope.base(reader);
    rope_share = rope.share(reader);
  }
  const double own = reader.number("rope_theta", base.value_or(family.rope_base));
  if (base && *base != own)
    reader.refuse("rope_theta", fmt::format("{}, as beside the scaling", *base), fmt::format("{}", own));
  metadata.add_f64(prefix + "rope.freq_base", own);
  if (family.is_gemma)
    metadata.add_f64(prefix + "rope.freq_base_swa", reader.number("rope_local_base_freq", window_base.value_or(10000)));
  const double share = reader.number("partial_rotary_factor", rope_share.value_or(family.rotary_share));
  if (family.rotary_share == 1 && share != 1) reader.refuse("partial_rotary_factor", "1", fmt::format("{}", share));
  if (!(share > 0 && share <= 1)) return reader.refuse("partial_rotary_factor", "in (0, 1]", fmt::format("{}", share));
  if (share != 1)
    metadata.add_u64(prefix + "rope.dimension_count",
                     static_cast<uint64_t>(share * static_cast<double>(reader.integer("head_dim", family.head_dim))));
  if (reader.boolean("rope_interleaved", false)) reader.refuse("rope_interleaved", "false", "true");
}

void read_hf_windows(const HfFamily& family, const std::string& prefix, uint64_t num_layers, HfReader& reader,
                     CanonicalMetadata& metadata) {
  std::vector<bool> has_window(num_layers);
  const bool has_types = read_layer_types(num_layers, reader, &has_window);
  uint64_t window = 0;
  const auto give = [&](auto&& layer_has_window) {
    for (uint64_t layer = 0; layer < num_layers && !has_types; ++layer) has_window[layer] = layer_has_window(layer);
  };
  switch (family.windows) {
    case HfWindows::kRefused:
      if (reader.find("sliding_window") != nullptr && reader.boolean("use_sliding_window", true))
        reader.refuse("sliding_window", "none", reader.find("sliding_window")->describe());
      break;
    case HfWindows::kAll: {
      const bool is_default = !reader.has("sliding_window") && family.window > 0;
      if (reader.find("sliding_window") != nullptr || is_default)
        window = reader.integer("sliding_window", family.window);
      give([&](uint64_t) { return window > 0; });
      break;
    }
    case HfWindows::kAllIfUsed:
    case HfWindows::kFromLayer: {
      if (!reader.boolean("use_sliding_window", false)) break;
      const bool is_null = reader.has("sliding_window") && reader.find("sliding_window") == nullptr;
      if (!is_null) window = reader.integer("sliding_window", 4096);
      const bool is_from_layer = family.windows == HfWindows::kFromLayer;
      const JsonTree* first = is_from_layer ? reader.find("max_window_layers") : nullptr;
      uint64_t begin = is_from_layer ? 28 : 0;
      if (first != nullptr && first->integer() != nullptr && *first->integer() >= 0) {
        begin = static_cast<uint64_t>(*first->integer());
      } else if (first != nullptr) {
        reader.refuse("max_window_layers", "a number of layers", first->describe());
      }
      give([&](uint64_t layer) { return window > 0 && layer >= begin; });
      break;
    }
    case HfWindows::kByPattern: {
      window = reader.integer("sliding_window", family.window);
      const uint64_t pattern = read_pattern(family, reader);
      give([&](uint64_t layer) { return layer % pattern + 1 < pattern; });
      break;
    }
  }
  if (std::ranges::count(has_window, true) == 0) return;
  if (window == 0)
    return reader.refuse("layer_types", "full_attention alone, as sliding_window is not set", "sliding_attention");
  metadata.add_u64(prefix + "attention.sliding_window", window);
  metadata.add_bools(prefix + "attention.sliding_window_pattern", has_window);
}

}  // namespace llmrt
