// Adapters as PEFT saves them: two matrices a module, under the module's name in the Hugging Face model.
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "core/adapter/adapter_builder.h"
#include "core/adapter/adapter_files.h"
#include "core/adapter/base_copies.h"
#include "core/adapter/peft_config.h"
#include "core/weights/hf_names.h"
#include "core/weights/safetensors.h"

namespace llmrt {
namespace {

constexpr std::string_view kModelPrefix = "base_model.model.";
constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight";

// Parts of names of tensors that PEFT writes for what is refused, each with the name of the feature.
struct RefusedTensor {
  std::string_view part, what;
};
constexpr RefusedTensor kRefusedTensors[] = {
    {".lora_embedding_", "no adapter on the embedding"},
    {".lora_magnitude_vector", "none of use_dora"},
    {".lora_B.bias", "none of lora_bias"},
    {".modules_to_save", "none of modules_to_save"},
    {"trainable_tokens", "no trainable tokens"},
};

// What a module's tensors change.
struct PeftPlace {
  std::string canonical;           // GGUF's name of the matrix
  std::optional<uint64_t> expert;  // of one expert of the stack
  bool is_stack = false;           // of all its experts
  bool alternates = false;         // in such a stack rows of gates and of other halves take turns
};

// Parameters of a module that holds all experts of a layer, in the order in which it has them.
constexpr HfName kStackNames[] = {{"gate_up_proj", "ffn_gate_up_exps.weight"},
                                  {"up_proj", "ffn_up_exps.weight"},
                                  {"down_proj", "ffn_down_exps.weight"}};

// What the model's modules are called in Hugging Face's code, by the families that have its architecture.
class PeftNames {
 public:
  explicit PeftNames(const Model& model) : architecture_(model.config.architecture) {
    for (const HfFamily& family : hf_families()) {
      // A family may have an architecture of its own for models with experts.
      if (architecture_ != family.architecture && architecture_ != std::string(family.architecture) + "_moe") continue;
      HfConfig config;
      config.family = &family;
      config.num_layers = model.config.num_layers();
      config.width = model.config.width;
      config.vocab_size = model.config.vocab_size;
      for (const LayerSpec& layer : model.config.layers)
        config.num_experts = std::max<uint64_t>(config.num_experts, layer.experts.count);
      configs_.push_back(config);
    }
  }

  // The matrix that a module's tensors change. `parameter`: the one of the module's own that they are of; empty: its
  // matrix. `shown` names the tensor in messages.
  Result<PeftPlace> find(std::string_view module, std::string_view parameter, std::string_view shown) const {
    if (configs_.empty())
      return refused_adapter("expected a GGUF file, as names of modules of {} are not known, found a PEFT folder",
                             architecture_);
    for (const HfConfig& config : configs_) {
      const HfPlace place = parameter.empty() ? place_of(std::string(module) + ".weight", config)
                                              : stack_place(module, parameter, config);
      if (place.role == HfPlace::Role::kImage)
        return refused_adapter("tensor {}: expected no adapters on parts that read images", printable(shown));
      if (place.role != HfPlace::Role::kTensor && place.role != HfPlace::Role::kExpert) continue;
      if (place.draft_layers > 0)
        return refused_adapter("tensor {}: expected no adapters on layers that draft", printable(shown));
      PeftPlace found;
      found.canonical = place.canonical;
      if (place.role == HfPlace::Role::kExpert) found.expert = place.expert;
      found.is_stack = place.role == HfPlace::Role::kTensor && place.canonical.ends_with("_exps.weight");
      found.alternates = config.family->experts == HfExperts::kFused;
      return found;
    }
    return adapter_mismatch("tensor {}: expected a module of {} with {} layers, found {}", printable(shown),
                            architecture_, configs_.front().num_layers,
                            printable(std::string(module) + (parameter.empty() ? "" : ".") + std::string(parameter)));
  }

 private:
  // Where a parameter of all experts of a layer ("model.layers.0.mlp.experts", "down_proj") goes. Checkpoints of most
  // families have a tensor for each expert instead, under the family's own name.
  static HfPlace stack_place(std::string_view module, std::string_view parameter, const HfConfig& config) {
    const std::string whole = fmt::format("{}.{}", module, parameter);
    if (const HfPlace place = place_of(whole, config); place.role == HfPlace::Role::kTensor) return place;
    const auto canonical = std::ranges::find(kStackNames, parameter, &HfName::hf);
    if (canonical == std::end(kStackNames)) return {};
    constexpr std::string_view kPrefixes[] = {"model.layers.", "backbone.layers.", "model.language_model.layers.",
                                              "language_model.model.layers."};
    const auto prefix = std::ranges::find_if(kPrefixes, [&](std::string_view p) { return module.starts_with(p); });
    if (prefix == std::end(kPrefixes)) return {};
    module.remove_prefix(prefix->size());
    const size_t end = module.find('.');
    if (end == std::string_view::npos) return {};
    const std::string container = std::string(module.substr(end + 1)) + ".";
    if (container != "mlp.experts." && container != config.family->experts_prefix) return {};
    uint64_t layer = 0;
    const auto [stop, error] = std::from_chars(module.data(), module.data() + end, layer);
    if (error != std::errc() || stop != module.data() + end || layer >= config.num_layers) return {};
    HfPlace place;
    place.role = HfPlace::Role::kTensor;
    place.canonical = fmt::format("blk.{}.{}", layer, canonical->canonical);
    return place;
  }

  std::string architecture_;
  std::vector<HfConfig> configs_;
};

// The module of "base_model.model.<module>.lora_A.weight", and what it is of it.
struct PeftTensor {
  enum class Kind { kA, kB, kCopy } kind;
  std::string_view module;
};
Result<PeftTensor> read_name(std::string_view name) {
  for (const RefusedTensor& refused : kRefusedTensors)
    if (name.find(refused.part) != std::string_view::npos)
      return refused_adapter("tensor {}: expected {}", printable(name), refused.what);
  constexpr std::pair<std::string_view, PeftTensor::Kind> kEnds[] = {{kLoraA, PeftTensor::Kind::kA},
                                                                     {kLoraB, PeftTensor::Kind::kB},
                                                                     {".base_layer.weight", PeftTensor::Kind::kCopy},
                                                                     {".weight", PeftTensor::Kind::kCopy}};
  for (const auto& [end, kind] : kEnds)
    if (name.starts_with(kModelPrefix) && name.ends_with(end) && name.size() > kModelPrefix.size() + end.size())
      return PeftTensor{kind, name.substr(kModelPrefix.size(), name.size() - kModelPrefix.size() - end.size())};
  return refused_adapter("tensor {}: expected {}<module>{} or {}, found another name", printable(name), kModelPrefix,
                         kLoraA, kLoraB);
}

struct PeftModule {
  const SourceTensor *a = nullptr, *b = nullptr;
};
using PeftModuleMap = std::map<std::string_view, PeftModule>;

// The two halves of each module; copies of the model's own weights are checked and left out.
Result<PeftModuleMap> pair_halves(const SafetensorsFile& file, const PeftNames& names, const Model& model) {
  if (file.tensors.size() > kAdapterTensorsMax)
    return refused_adapter("expected at most {} tensors, found {}", kAdapterTensorsMax, file.tensors.size());
  PeftModuleMap modules;
  for (const SourceTensor& tensor : file.tensors) {
    auto read = read_name(tensor.name);
    if (!read) return read.error();
    if (read->kind == PeftTensor::Kind::kCopy) {
      auto place = names.find(read->module, {}, tensor.name);
      if (!place) return place.error();
      if (auto s = check_base_copy(tensor, place->canonical, model); !s) return s.error();
      continue;
    }
    PeftModule& halves = modules[read->module];
    (read->kind == PeftTensor::Kind::kA ? halves.a : halves.b) = &tensor;  // names are unique in the file
  }
  return modules;
}

// The parameter that a module's tensors are of, as PEFT targets parameters: empty where they are of the module's
// matrix. A module with two of them has the second's tensors under its own name, and the first's under ".base_layer".
struct PeftParameter {
  std::string_view module, name;
};
Result<PeftParameter> parameter_of(std::string_view module, const PeftConfig& config, std::string_view shown) {
  constexpr std::string_view kInner = ".base_layer";
  PeftParameter found{module, {}};
  size_t depth = 0;
  for (; found.module.ends_with(kInner); ++depth) found.module.remove_suffix(kInner.size());
  if (!found.module.ends_with(".experts")) return PeftParameter{module, {}};
  const auto is_target = [&](std::string_view name) {
    return config.has_parameter(fmt::format("{}.{}", found.module, name));
  };
  std::vector<std::string_view> names;
  for (const HfName& known : kStackNames)
    if (is_target(known.hf)) names.push_back(known.hf);
  for (const char* bias : {"gate_up_proj_bias", "up_proj_bias", "down_proj_bias"})
    if (is_target(bias))
      return refused_adapter("tensor {}: expected no adapters on biases, found a target {}", printable(shown), bias);
  if (names.empty() && depth == 0) return found;
  if (depth >= names.size())
    return bad_adapter("tensor {}: expected a parameter that adapter_config.json names as a target, found another",
                       printable(shown));
  found.name = names[names.size() - 1 - depth];
  return found;
}

}  // namespace

Result<std::shared_ptr<const Adapter>> read_peft_adapter(std::string_view text, std::span<const std::byte> weights,
                                                         const Model& model, std::string path) {
  auto tree = parse_json_tree(text, "adapter_config.json");
  if (!tree) return tree.error();
  auto config = PeftConfig::read(*tree);
  if (!config) return config.error();
  const std::vector<int64_t>& tokens = config->invocation_tokens();
  if (!tokens.empty())
    if (auto s = check_invocation_tokens(tokens, model, "adapter_config.json: alora_invocation_tokens"); !s)
      return s.error();
  auto file = parse_safetensors(weights);
  if (!file) return make_error(file.error().code, "adapter_model.safetensors: {}", file.error().message);
  const PeftNames names(model);
  auto modules = pair_halves(*file, names, model);
  if (!modules) return modules.error();
  AdapterBuilder builder(model, AdapterRows::kFolder);
  for (const auto& [module, halves] : *modules) {
    const std::string_view shown = halves.a != nullptr ? halves.a->name : halves.b->name;
    auto parameter = parameter_of(module, *config, shown);
    if (!parameter) return parameter.error();
    auto place = names.find(parameter->module, parameter->name, shown);
    if (!place) return place.error();
    // By the names that PEFT matches: of the parameter, if it is one that is a target.
    std::string name(parameter->module);
    const std::string_view own = parameter->name.empty() ? "weight" : parameter->name;
    const bool is_parameter = config->has_parameter(name + "." + std::string(own));
    if (is_parameter) name += "." + std::string(own);
    auto rank = config->rank_of(name);
    if (!rank) return rank.error();
    auto scale = config->scale_of(name);
    if (!scale) return scale.error();
    AdapterPair pair{place->canonical, halves.a, halves.b};
    pair.layout = place->expert ? ExpertLayout::kOne : place->is_stack ? ExpertLayout::kFlattened : ExpertLayout::kGguf;
    pair.expert = place->expert.value_or(0);
    pair.alternates = place->alternates;
    if (auto s = builder.add(pair, *rank, *scale); !s) return s.error();
    auto is_target = is_parameter ? Result<bool>(true) : config->has(module);
    if (!is_target) return is_target.error();
    if (!*is_target)
      return bad_adapter("tensor {}: expected a module that adapter_config.json names as a target, found another",
                         printable(shown));
  }
  return builder.finish(std::move(path), std::vector<int32_t>(tokens.begin(), tokens.end()));
}

}  // namespace llmrt
