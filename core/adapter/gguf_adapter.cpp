// Adapters in GGUF files: two matrices beside each name of a matrix of the model, and one alpha for all.
#include <algorithm>
#include <map>
#include <utility>

#include "core/adapter/adapter_builder.h"
#include "core/adapter/adapter_files.h"
#include "core/weights/gguf.h"

namespace llmrt {
namespace {

constexpr const char* kAlpha = "adapter.lora.alpha";
constexpr const char* kInvocation = "adapter.alora.invocation_tokens";
constexpr std::string_view kGgufLoraA = ".lora_a", kGgufLoraB = ".lora_b";
// Keys beside those that say how, when and by whom the file was made.
constexpr std::string_view kGgufKeys[] = {"adapter.type", kAlpha, kInvocation, "adapter.lora.task_name"};

Status expect_text(const Metadata& metadata, const char* key, std::string_view expected) {
  auto found = metadata.string(key);
  if (!found) return found.error();
  if (*found != expected)
    return refused_adapter("metadata {}: expected {}, found {}", key, expected, printable(*found));
  return {};
}

// GGUF has another name for a nemotron_h with experts, Hugging Face does not.
bool is_architecture_of(std::string_view name, std::string_view model) {
  constexpr std::string_view kWithExperts = "_moe";
  if (model.ends_with(kWithExperts)) model.remove_suffix(kWithExperts.size());
  if (name.ends_with(kWithExperts)) name.remove_suffix(kWithExperts.size());
  return name == model;
}

Status check_metadata(const Metadata& metadata, const Model& model) {
  if (auto s = expect_text(metadata, "general.type", "adapter"); !s) return s;
  if (auto s = expect_text(metadata, "adapter.type", "lora"); !s) return s;
  auto architecture = metadata.string("general.architecture");
  if (!architecture) return architecture.error();
  if (!is_architecture_of(*architecture, model.config.architecture))
    return adapter_mismatch("metadata general.architecture: expected {}, found {}", model.config.architecture,
                            printable(*architecture));
  for (const auto& [key, value] : metadata.entries())
    if (!key.starts_with("general.") && !key.starts_with("tokenizer.") &&
        std::ranges::find(kGgufKeys, key) == std::end(kGgufKeys))
      return refused_adapter("metadata {}: not a key that is known here, found {}", printable(key), describe(value));
  return {};
}

using GgufPairs = std::map<std::string_view, AdapterPair>;

Result<GgufPairs> pair_tensors(const WeightSource& source) {
  if (source.tensors.size() > kAdapterTensorsMax)
    return refused_adapter("expected at most {} tensors, found {}", kAdapterTensorsMax, source.tensors.size());
  GgufPairs pairs;
  for (const SourceTensor& tensor : source.tensors) {
    const bool is_a = tensor.name.ends_with(kGgufLoraA), is_b = tensor.name.ends_with(kGgufLoraB);
    if (!is_a && !is_b)
      return refused_adapter("tensor {}: expected a name that ends in {} or {}, found {}", printable(tensor.name),
                             kGgufLoraA, kGgufLoraB, describe(tensor));
    const std::string_view name = tensor.name.substr(0, tensor.name.size() - kGgufLoraA.size());
    AdapterPair& pair = pairs[name];
    pair.canonical = name;
    (is_a ? pair.a : pair.b) = &tensor;
  }
  return pairs;
}

}  // namespace

Result<std::shared_ptr<const Adapter>> read_gguf_adapter(std::span<const std::byte> bytes, const Model& model,
                                                         std::string path) {
  auto source = parse_gguf(bytes);
  if (!source) return source.error();
  if (auto s = check_metadata(source->metadata, model); !s) return s.error();
  auto alpha = source->metadata.number(kAlpha, -1e30, 1e30, 0.0);
  if (!alpha) return alpha.error();
  std::vector<int64_t> tokens;
  if (source->metadata.has(kInvocation)) {
    auto read = source->metadata.integers(kInvocation, 0, UINT32_MAX);
    if (!read) return read.error();
    tokens = *std::move(read);
    if (auto s = check_invocation_tokens(tokens, model, kInvocation); !s) return s.error();
  }
  auto pairs = pair_tensors(*source);
  if (!pairs) return pairs.error();
  AdapterBuilder builder(model, AdapterRows::kGguf);
  for (const auto& [name, pair] : *pairs) {
    const uint64_t rank = pair.a != nullptr ? pair.a->dims[1] : pair.b->dims[0];
    const double scale = *alpha == 0 ? 1 : *alpha / static_cast<double>(rank);
    if (auto s = builder.add(pair, rank, scale); !s) return s.error();
  }
  return builder.finish(std::move(path), std::vector<int32_t>(tokens.begin(), tokens.end()));
}

}  // namespace llmrt
