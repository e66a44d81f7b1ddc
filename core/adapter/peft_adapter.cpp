// Adapters as PEFT saves them: two matrices a module, under the module's name in the Hugging Face model.
#include <algorithm>
#include <map>
#include <utility>

#include "core/adapter/adapter_builder.h"
#include "core/adapter/adapter_files.h"
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

  // GGUF's name of the module's matrix. `shown` names the tensor in messages.
  Result<std::string> canonical(std::string_view module, std::string_view shown) const {
    const std::string name = std::string(module) + ".weight";
    if (configs_.empty())
      return refused_adapter("expected a GGUF file, as names of modules of {} are not known, found a PEFT folder",
                             architecture_);
    for (const HfConfig& config : configs_) {
      const HfPlace place = place_of(name, config);
      if (place.role == HfPlace::Role::kExpert || place.role == HfPlace::Role::kFused) return refuse_experts(shown);
      if (place.role == HfPlace::Role::kImage)
        return refused_adapter("tensor {}: expected no adapters on parts that read images", printable(shown));
      if (place.role != HfPlace::Role::kTensor) continue;
      if (place.draft_layers > 0)
        return refused_adapter("tensor {}: expected no adapters on layers that draft", printable(shown));
      return place.canonical;
    }
    if (module.find(".experts") != std::string_view::npos) return refuse_experts(shown);
    return adapter_mismatch("tensor {}: expected a module of {} with {} layers, found {}", printable(shown),
                            architecture_, configs_.front().num_layers, printable(module));
  }

 private:
  static Error refuse_experts(std::string_view shown) {
    return refused_adapter("tensor {}: expected no adapters on experts", printable(shown));
  }

  std::string architecture_;
  std::vector<HfConfig> configs_;
};

// The module of "base_model.model.<module>.lora_A.weight", and which half it is.
struct PeftHalf {
  std::string_view module;
  bool is_a = false;
};
Result<PeftHalf> read_half(std::string_view name) {
  for (const RefusedTensor& refused : kRefusedTensors)
    if (name.find(refused.part) != std::string_view::npos)
      return refused_adapter("tensor {}: expected {}", printable(name), refused.what);
  const bool is_a = name.ends_with(kLoraA), is_b = name.ends_with(kLoraB);
  const size_t ends = kModelPrefix.size() + kLoraA.size();
  if (!name.starts_with(kModelPrefix) || (!is_a && !is_b) || name.size() <= ends)
    return refused_adapter("tensor {}: expected {}<module>{} or {}, found another name", printable(name), kModelPrefix,
                           kLoraA, kLoraB);
  return PeftHalf{name.substr(kModelPrefix.size(), name.size() - ends), is_a};
}

using PeftModuleTensors = std::map<std::string_view, std::pair<const SourceTensor*, const SourceTensor*>>;

Result<PeftModuleTensors> pair_halves(const SafetensorsFile& file) {
  if (file.tensors.size() > kAdapterTensorsMax)
    return refused_adapter("expected at most {} tensors, found {}", kAdapterTensorsMax, file.tensors.size());
  PeftModuleTensors modules;
  for (const SourceTensor& tensor : file.tensors) {
    auto half = read_half(tensor.name);
    if (!half) return half.error();
    auto& halves = modules[half->module];
    (half->is_a ? halves.first : halves.second) = &tensor;  // names are unique in the file
  }
  return modules;
}

}  // namespace

Result<std::shared_ptr<const Adapter>> read_peft_adapter(std::string_view text, std::span<const std::byte> weights,
                                                         const Model& model, std::string path,
                                                         std::shared_ptr<const void> storage) {
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
  auto modules = pair_halves(*file);
  if (!modules) return modules.error();
  const PeftNames names(model);
  AdapterBuilder builder(model, AdapterRows::kFolder);
  for (const auto& [module, halves] : *modules) {
    const std::string_view shown = halves.first != nullptr ? halves.first->name : halves.second->name;
    auto canonical = names.canonical(module, shown);
    if (!canonical) return canonical.error();
    auto rank = config->rank_of(module);
    if (!rank) return rank.error();
    auto scale = config->scale_of(module);
    if (!scale) return scale.error();
    if (auto s = builder.add({*canonical, halves.first, halves.second}, *rank, *scale); !s) return s.error();
    auto is_target = config->has(module);
    if (!is_target) return is_target.error();
    if (!*is_target)
      return bad_adapter("tensor {}: expected a module that adapter_config.json names as a target, found another",
                         printable(shown));
  }
  return builder.finish(std::move(path), std::vector<int32_t>(tokens.begin(), tokens.end()), std::move(storage));
}

}  // namespace llmrt
