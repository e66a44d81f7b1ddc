#include "core/weights/hf_tensors.h"

#include <algorithm>
#include <cmath>

#include "core/weights/hf_rows.h"

namespace llmrt {
namespace {

constexpr uint64_t kVectorBytesMax = 256u << 20;  // of all norms and biases; a model of 500 GB has 30 MB
constexpr std::string_view kRouter = "ffn_gate_inp.weight";
constexpr std::string_view kShortConv = "shortconv.conv.weight", kConv1d = "ssm_conv1d.weight";
constexpr std::string_view kDecay = ".ssm_a", kSkip = ".ssm_d", kRecurrentNorm = ".ssm_norm.weight";
constexpr std::string_view kFp8Name = "f8_e4m3";

bool is_float(const SourceTensor& tensor) {
  return tensor.encoding && !is_quantized(*tensor.encoding);
}

}  // namespace

Status HfTensors::add(const SourceTensor& tensor) {
  const HfPlace place = place_of(tensor.name, config_);
  const bool is_tied_head = config_.is_tied && place.canonical == "output.weight";
  if (place.role == HfPlace::Role::kIgnored || is_tied_head) return {};
  if (place.role == HfPlace::Role::kUnknown)
    return make_error(ErrorCode::kUnsupported, "unsupported model: tensor {}: {} has no such tensor, file has {}",
                      printable(tensor.name), config_.family->model_type, describe(tensor));
  const auto found_twice = [&] {
    return make_error(ErrorCode::kCorruptFile, "tensor {}: found twice", printable(tensor.name));
  };
  SourceTensor kept = tensor;
  kept.name = storage_.texts.emplace_back(tensor.name);
  if (place.role == HfPlace::Role::kFused) {
    if (!fused_.emplace(place.canonical, std::move(kept)).second) return found_twice();
    return {};
  }
  num_draft_layers_ = std::max(num_draft_layers_, place.draft_layers);
  const auto [at, is_new] = entries_.try_emplace(place.canonical);
  if (is_new) order_.push_back(&at->first);
  at->second.is_stack = place.role == HfPlace::Role::kExpert;
  Part& part = at->second.parts[place.expert];
  std::unique_ptr<SourceTensor>& slot = place.is_scale ? part.scale : part.weight;
  if (slot != nullptr) return found_twice();
  slot = std::make_unique<SourceTensor>(std::move(kept));
  return {};
}

// One tensor of the folder in the encoding that rows of it will have.
Status HfTensors::build_part(const Part& part, SourceTensor* out) {
  if (part.weight == nullptr)
    return make_error(ErrorCode::kCorruptFile, "tensor {}: expected the weights that it scales, found none",
                      printable(part.scale->name));
  if (part.weight->encoding_name == kFp8Name)
    return make_fp8(*part.weight, part.scale.get(), config_.quantization, out);
  if (part.scale != nullptr)
    return make_error(ErrorCode::kUnsupported, "unsupported model: tensor {}: expected weights in f8_e4m3, file has {}",
                      printable(part.scale->name), describe(*part.weight));
  *out = *part.weight;
  return {};
}

Status HfTensors::widen(const SourceTensor& tensor, double offset, SourceTensor* out) {
  // The file holds half of the bytes at least, so the product fits.
  const uint64_t count = tensor.dims[0];
  storage_.vector_bytes += count * sizeof(float);
  if (storage_.vector_bytes > kVectorBytesMax)
    return make_error(ErrorCode::kCorruptFile, "tensor {}: expected at most {} bytes of norms and biases, found more",
                      printable(tensor.name), kVectorBytesMax);
  std::vector<float>& values = storage_.vectors.emplace_back(count);
  for (size_t i = 0; i < values.size(); ++i) values[i] = number_of(tensor, i) + static_cast<float>(offset);
  *out = tensor;
  out->bytes = std::as_bytes(std::span(values));
  out->encoding = Encoding::kF32;
  return {};
}

// The logarithm of a decay's rate, as its negative rate.
Status HfTensors::negate_exp(const SourceTensor& tensor, SourceTensor* out) {
  if (auto status = widen(tensor, 0, out); !status) return status;
  for (float& value : storage_.vectors.back()) value = -std::exp(value);
  return {};
}

Status HfTensors::build_one(const std::string& name, const Entry& entry, SourceTensor* out) {
  const Part& part = entry.parts.begin()->second;
  if (auto status = build_part(part, out); !status) return status;
  if (name.starts_with("v.") || name.starts_with("mm.")) return {};  // left out by the engine
  if (name.ends_with(".scale")) {                                    // of the KV cache: a number, of whatever shape
    const uint64_t count = out->dims[0] * out->dims[1] * out->dims[2] * out->dims[3];
    if (count != 1 || !is_float(*out))
      return make_error(ErrorCode::kUnsupported, "unsupported model: tensor {}: expected one number, file has {}",
                        printable(part.weight->name), describe(*part.weight));
    out->num_dims = 1;
  }
  // Weights of a depthwise convolution: a row of one channel.
  if (out->num_dims == 3 && out->dims[1] == 1 && (name.ends_with(kShortConv) || name.ends_with(kConv1d))) {
    out->dims = {out->dims[0], out->dims[2], 1, 1};
    out->num_dims = 2;
  }
  if (out->num_dims == 1 && is_float(*out)) {
    if (is_scan(config_.family->recurrent) && (name.ends_with(kDecay) || name.ends_with(kSkip))) {
      if (auto status =
              name.ends_with(kDecay) ? negate_exp(SourceTensor(*out), out) : widen(SourceTensor(*out), 0, out);
          !status)
        return status;
      out->dims = {1, out->dims[0], 1, 1};  // one number a head is one a row in GGUF
      out->num_dims = 2;
      return {};
    }
    if (name.ends_with(kDecay)) return negate_exp(SourceTensor(*out), out);
    const bool is_norm = name.ends_with("norm.weight") && !name.ends_with(kRecurrentNorm);  // enorm's too
    const double offset = (config_.family->is_gemma || config_.family->norms_add_one) && is_norm ? 1 : 0;
    if (offset != 0 || *out->encoding != Encoding::kF32)
      if (auto status = widen(SourceTensor(*out), offset, out); !status) return status;
    const uint64_t groups = config_.scan_groups;
    if (groups > 1 && name.ends_with(kRecurrentNorm) && out->dims[0] % groups == 0) {
      out->dims = {out->dims[0] / groups, groups, 1, 1};  // a row each in GGUF
      out->num_dims = 2;
    }
  }
  if (out->num_dims == 2 && name.ends_with(kRouter) && is_float(*out) && *out->encoding != Encoding::kF32) {
    out->generate = widened_rows(SourceTensor(*out));
    out->bytes = {};
    out->encoding = Encoding::kF32;
  }
  return {};
}

Status HfTensors::build_stack(const std::string& name, const Entry& entry, SourceTensor* out) {
  std::vector<SourceTensor> parts;
  for (const auto& [expert, part] : entry.parts) {
    if (expert != parts.size()) break;
    if (auto status = build_part(part, &parts.emplace_back()); !status) return status;
    const SourceTensor &first = parts.front(), &last = parts.back();
    if (last.num_dims != 2 || last.dims != first.dims || last.encoding != first.encoding || !last.encoding)
      return make_error(ErrorCode::kUnsupported,
                        "unsupported model: tensor {}: expected a matrix as that of the first expert, {}, file has {}",
                        printable(last.name), describe(first), describe(last));
  }
  if (parts.size() != config_.num_experts)
    return make_error(ErrorCode::kCorruptFile, "missing tensor: that of expert {} of {}, of {} experts", parts.size(),
                      name, config_.num_experts);
  *out = parts.front();
  out->num_dims = 3;
  out->dims[2] = parts.size();
  out->bytes = {};
  out->generate = stacked_rows(std::move(parts));
  return {};
}

Status HfTensors::give(std::string name, SourceTensor tensor, WeightSource* source) {
  tensor.name = storage_.texts.emplace_back(std::move(name));
  if (tensor.encoding) tensor.encoding_name = encoding_name(*tensor.encoding);
  if (!source->tensor_index.emplace(tensor.name, source->tensors.size()).second)
    return make_error(ErrorCode::kCorruptFile, "tensor {}: found under two names", printable(tensor.name));
  source->tensors.push_back(std::move(tensor));
  return {};
}

Status HfTensors::build_fused(WeightSource* source) {
  for (uint64_t layer = 0; layer < config_.num_layers; ++layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    auto made = make_fused_experts(config_, prefix, [&](std::string_view name) -> const SourceTensor* {
      const auto found = fused_.find(prefix + std::string(name));
      return found == fused_.end() ? nullptr : &found->second;
    });
    if (!made) return made.error();
    for (auto& [name, tensor] : *made)
      if (auto status = give(prefix + name, std::move(tensor), source); !status) return status;
  }
  return {};
}

Status HfTensors::build(WeightSource* source) {
  for (const std::string* name : order_) {
    const Entry& entry = entries_.find(*name)->second;
    SourceTensor tensor;
    const Status status = entry.is_stack ? build_stack(*name, entry, &tensor) : build_one(*name, entry, &tensor);
    if (!status) return status;
    if (auto given = give(*name, std::move(tensor), source); !given) return given;
  }
  return config_.family->experts == HfExperts::kFused ? build_fused(source) : Status();
}

}  // namespace llmrt
