// The tensors of layers with experts: router, stacks, the shared expert.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/model/assembler.h"
#include "core/weights/row_codec.h"
#include "core/weights/weight_bytes.h"

namespace llmrt {

using namespace tensor_names;

// The router is multiplied in f32, in whatever 16-bit form a file has it.
Status Assembler::add_router(const std::string& prefix, const ExpertSpec& experts, LayerWeights* weights) {
  const std::string name = prefix + kRouter;
  auto tensor = source_.take(name + ".weight", experts.count, model_->config.width, false);
  if (!tensor) return tensor.error();
  if (is_quantized(tensor->encoding))
    return make_error(ErrorCode::kUnsupported, "unsupported encoding: {}.weight: expected f32, f16 or bf16, found {}",
                      name, encoding_name(tensor->encoding));
  if (tensor->encoding != Encoding::kF32) {
    tensor = widen(*tensor);
  }
  weights->router = add(*std::move(tensor));
  if (experts.has_correction)
    if (auto s = add_vector(prefix + kExpertCorrection, experts.count, &weights->router_correction); !s) return s;
  return experts.has_bias ? add_vector(name + ".bias", experts.count, &weights->router_bias) : Status{};
}

// f32 vectors of all experts, joined in the order of the group's rows.
Status Assembler::add_stack_bias(const std::string& prefix, const std::vector<Part>& parts, uint64_t count,
                                 WeightGroup* group) {
  std::vector<float> joined;
  for (const Part& part : parts) {
    const std::string name = prefix + part.name + ".bias";
    auto tensor = source_.take(name, count, part.rows, false);
    if (!tensor) return tensor.error();
    if (tensor->encoding != Encoding::kF32)
      return make_error(ErrorCode::kUnsupported, "unsupported encoding: {}: expected f32, found {}", name,
                        encoding_name(tensor->encoding));
    const size_t begin = joined.size();
    joined.resize(begin + count * part.rows);
    const auto target = std::as_writable_bytes(std::span(joined).subspan(begin));
    copy_weight_bytes(*tensor, 0, target);
  }
  for (const float value : joined)
    if (!std::isfinite(value))
      return make_error(ErrorCode::kCorruptFile, "bad tensor: {}.bias: expected finite numbers, found {}", group->name,
                        value);
  group->bias = add(storage_.own(group->name + ".bias", std::move(joined)));
  return {};
}

// A stack with the shared expert's rows behind it, made from both while it is read: kernels read one tensor.
Result<WeightTensor> Assembler::add_shared(const std::string& prefix, const Part& part, uint64_t columns,
                                           WeightTensor stack) {
  const std::string_view name = part.name;
  std::vector<std::pair<const char*, uint64_t>> shared;
  if (name == kExpertGate || name == kExpertGateUp) shared.push_back({kSharedGate, model_->config.width});
  if (name == kExpertUp || name == kExpertGateUp) shared.push_back({kSharedUp, model_->config.width});
  if (name == kExpertDown) shared.push_back({kSharedDown, columns});
  std::vector<WeightTensor> all = {std::move(stack)};
  WeightTensor joined;
  for (const auto& [shared_name, shared_columns] : shared) {
    const std::string full = prefix + shared_name + ".weight";
    auto tensor = source_.take(full, part.rows / shared.size(), shared_columns, false);
    if (!tensor) return tensor.error();
    if (tensor->encoding != all.front().encoding)
      return make_error(ErrorCode::kUnsupported,
                        "unsupported encoding: {}: expected {}, as the other experts, found {}", full,
                        encoding_name(all.front().encoding), encoding_name(tensor->encoding));
    all.push_back(*std::move(tensor));
  }
  joined.name = all.front().name;
  joined.encoding = all.front().encoding;
  joined.columns = columns;
  for (const WeightTensor& tensor : all) joined.rows += tensor.rows;
  joined.generate = [all](uint64_t byte_offset, std::span<std::byte> out) {
    for (const WeightTensor& tensor : all) {
      const uint64_t bytes = tensor.bytes();
      if (byte_offset < bytes && !out.empty()) {
        const auto bytes_here = out.first(std::min<uint64_t>(out.size(), bytes - byte_offset));
        copy_weight_bytes(tensor, byte_offset, bytes_here);
        out = out.subspan(bytes_here.size());
        byte_offset += bytes_here.size();
      }
      byte_offset -= std::min(byte_offset, bytes);
    }
  };
  return joined;
}

Status Assembler::add_stacks(const std::string& prefix, const char* name, std::vector<Part> parts, uint64_t columns,
                             const ExpertSpec& experts, WeightGroupId* out) {
  WeightGroup group;
  group.name = prefix + name;
  group.columns = columns;
  group.num_experts = experts.count + experts.rule.num_shared;
  for (const Part& part : parts) {
    auto tensor = source_.take_stack(prefix + part.name + ".weight", experts.count, part.rows, columns);
    if (!tensor) return tensor.error();
    if (experts.rule.num_shared > 0)
      if (tensor = add_shared(prefix, part, columns, *std::move(tensor)); !tensor) return tensor.error();
    const uint64_t rows = group.num_experts * part.rows;
    group.segments.push_back({add(*std::move(tensor)), 0, rows});
    group.rows += rows;
  }
  if (experts.has_bias)
    if (auto s = add_stack_bias(prefix, parts, experts.count, &group); !s) return s;
  model_->weights.groups.push_back(std::move(group));
  *out = static_cast<WeightGroupId>(model_->weights.groups.size() - 1);
  return {};
}

// The expert that every token goes to, as a dense part. Folders of Granite have it under the names of one: with experts
// or without, it is the same part there.
Status Assembler::add_dense_shared(const std::string& prefix, const LayerSpec& spec, LayerWeights* weights) {
  const uint64_t width = model_->config.width, ffn = spec.experts.shared_width;
  const bool has_gate = has_other_half(spec.activation);
  const bool is_own =
      !has_gate || source_.has(prefix + kSharedUp + ".weight") || !source_.has(prefix + kGateUp + ".weight");
  std::vector<Part> parts = {{kGateUp, 2 * ffn}};
  if (is_own) parts = {{kSharedUp, ffn}};
  if (is_own && has_gate) parts.insert(parts.begin(), {kSharedGate, ffn});
  if (auto s = add_group(prefix, "shared_gate_up", parts, width, Presence::kNever, &weights->shared_gate_up); !s)
    return s;
  return add_group(prefix, "shared_down", {{is_own ? kSharedDown : kDown, width}}, ffn, Presence::kNever,
                   &weights->shared_down);
}

Status Assembler::add_experts(const std::string& prefix, LayerSpec* spec, LayerWeights* weights) {
  const uint64_t ffn = spec->ffn_width, width = model_->config.width;
  ExpertSpec& experts = spec->experts;
  const uint64_t columns = experts.latent_width > 0 ? experts.latent_width : width;
  const bool has_gate = has_other_half(spec->activation);
  experts.has_correction = source_.has(prefix + kExpertCorrection);
  experts.by_expert = has_gate && source_.has(prefix + kExpertGateUp + ".weight");
  if (auto s = add_router(prefix, experts, weights); !s) return s;
  std::vector<Part> parts = {{kExpertGateUp, 2 * ffn}};
  if (!experts.by_expert) parts = {{kExpertUp, ffn}};
  if (!experts.by_expert && has_gate) parts.insert(parts.begin(), {kExpertGate, ffn});
  if (auto s = add_stacks(prefix, "gate_up", parts, columns, experts, &weights->gate_up); !s) return s;
  // A correction is of sigmoids; files from before expert_gating_func say no more.
  if (experts.has_correction && !experts.has_scoring) experts.rule.scoring = ExpertScoring::kSigmoid;
  if (experts.rule.num_shared > 0)
    if (auto s = add_numbers(prefix + kSharedRouter, 1, width, &weights->shared_gate); !s) return s;
  if (auto s = add_stacks(prefix, "down", {{kExpertDown, columns}}, ffn, experts, &weights->down); !s) return s;
  if (experts.latent_width > 0)
    if (auto s = add_latents(prefix, columns, weights); !s) return s;
  return experts.shared_width == 0 ? Status{} : add_dense_shared(prefix, *spec, weights);
}

// What brings a row to the width of the experts, and their sum back.
Status Assembler::add_latents(const std::string& prefix, uint64_t columns, LayerWeights* weights) {
  const uint64_t width = model_->config.width;
  if (auto s = add_group(prefix, kLatentDown, {{kLatentDown, columns}}, width, Presence::kNever, &weights->latent_down);
      !s)
    return s;
  return add_group(prefix, kLatentUp, {{kLatentUp, width}}, columns, Presence::kNever, &weights->latent_up);
}

}  // namespace llmrt
