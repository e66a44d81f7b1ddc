// Adapters as PEFT saves them: two matrices a module, under the module's name in the Hugging Face model.
#include <algorithm>
#include <map>
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
      auto canonical = names.canonical(read->module, tensor.name);
      if (!canonical) return canonical.error();
      if (auto s = check_base_copy(tensor, *canonical, model); !s) return s.error();
      continue;
    }
    PeftModule& halves = modules[read->module];
    (read->kind == PeftTensor::Kind::kA ? halves.a : halves.b) = &tensor;  // names are unique in the file
  }
  return modules;
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
    auto canonical = names.canonical(module, shown);
    if (!canonical) return canonical.error();
    auto rank = config->rank_of(module);
    if (!rank) return rank.error();
    auto scale = config->scale_of(module);
    if (!scale) return scale.error();
    if (auto s = builder.add({*canonical, halves.a, halves.b}, *rank, *scale); !s) return s.error();
    auto is_target = config->has(module);
    if (!is_target) return is_target.error();
    if (!*is_target)
      return bad_adapter("tensor {}: expected a module that adapter_config.json names as a target, found another",
                         printable(shown));
  }
  return builder.finish(std::move(path), std::vector<int32_t>(tokens.begin(), tokens.end()));
}

}  // namespace llmrt
