// gpt-oss: gate and up are one tensor of all experts, whose even rows are the gates. In mxfp4 it has one more
// dimension, the blocks of a row; in floats each expert's matrix lies transposed, as transformers multiplies from the
// left.
#include <array>

#include "core/weights/hf_rows.h"
#include "core/weights/hf_tensors.h"

namespace llmrt {
namespace {

using Dims = std::array<uint64_t, 4>;

struct FusedTensor {
  const char *canonical, *hf;
  uint64_t first, step;
  bool is_down;
};
constexpr FusedTensor kFusedTensors[] = {
    {"ffn_gate_exps", "gate_up_proj", 0, 2, false},
    {"ffn_up_exps", "gate_up_proj", 1, 2, false},
    {"ffn_down_exps", "down_proj", 0, 1, true},
};

class FusedLayer {
 public:
  FusedLayer(const HfConfig& config, const std::string& layer, const FindFused& find)
      : config_(config), layer_(layer), find_(find) {}

  Status make_weight(const FusedTensor& fused, SourceTensor* out) const {
    const std::string blocks = std::string(fused.hf) + "_blocks";
    const SourceTensor *packed = find_(blocks), *plain = find_(fused.hf);
    if (packed != nullptr && plain != nullptr)
      return make_error(ErrorCode::kCorruptFile, "tensor {}: expected none beside {}", plain->name, packed->name);
    if (packed == nullptr && plain == nullptr) return missing(blocks);
    const RowChoice choice = choice_of(fused);
    const uint64_t columns = fused.is_down ? config_.expert_width : config_.width,
                   there = choice.rows_part * fused.step;
    out->num_dims = 3;
    out->dims = {columns, choice.rows_part, config_.num_experts, 1};
    if (plain != nullptr) {
      if (!plain->encoding || is_quantized(*plain->encoding)) return refuse(*plain, "numbers in f32, f16 or bf16");
      if (auto s = expect_dims(*plain, {there, columns, config_.num_experts, 1}); !s) return s;
      out->encoding = plain->encoding;
      out->generate = transposed_rows(*plain, choice);
      return {};
    }
    constexpr uint64_t kBlock = geometry(Encoding::kMXFP4).elements_block;
    const SourceTensor* scales = find_(std::string(fused.hf) + "_scales");
    if (scales == nullptr) return missing(std::string(fused.hf) + "_scales");
    for (const SourceTensor* tensor : {packed, scales})
      if (tensor->encoding_name != std::string_view("u8")) return refuse(*tensor, "bytes in u8");
    if (columns % kBlock != 0) return refuse(*packed, fmt::format("rows of a multiple of {} numbers", kBlock));
    if (auto s = expect_dims(*packed, {kBlock / 2, columns / kBlock, there, config_.num_experts}); !s) return s;
    if (auto s = expect_dims(*scales, {columns / kBlock, there, config_.num_experts, 1}); !s) return s;
    out->encoding = Encoding::kMXFP4;
    out->generate = mxfp4_rows(*packed, *scales, choice);
    return {};
  }

  Status make_bias(const FusedTensor& fused, SourceTensor* out) const {
    const std::string name = std::string(fused.hf) + "_bias";
    const SourceTensor* bias = find_(name);
    if (bias == nullptr) return missing(name);
    if (!bias->encoding || is_quantized(*bias->encoding)) return refuse(*bias, "numbers in f32, f16 or bf16");
    const RowChoice choice = choice_of(fused);
    if (auto s = expect_dims(*bias, {choice.rows_part * fused.step, config_.num_experts, 1, 1}); !s) return s;
    out->num_dims = 2;
    out->dims = {choice.rows_part, config_.num_experts, 1, 1};
    out->encoding = Encoding::kF32;
    out->generate = widened_choice(*bias, choice);
    return {};
  }

 private:
  RowChoice choice_of(const FusedTensor& fused) const {
    return {fused.is_down ? config_.width : config_.expert_width, fused.first, fused.step};
  }
  Error missing(const std::string& name) const {
    return make_error(ErrorCode::kCorruptFile, "missing tensor: {}mlp.experts.{}", layer_, name);
  }
  Error refuse(const SourceTensor& tensor, std::string_view expected) const {
    return make_error(ErrorCode::kUnsupported, "unsupported model: tensor {}: expected {}, file has {}",
                      printable(tensor.name), expected, describe(tensor));
  }
  Status expect_dims(const SourceTensor& tensor, const Dims& dims) const {
    if (tensor.dims == dims) return {};
    return make_error(ErrorCode::kCorruptFile, "shape mismatch: {}: expected [{}], file has {}", printable(tensor.name),
                      fmt::join(dims, ", "), describe(tensor));
  }

  const HfConfig& config_;
  const std::string& layer_;
  const FindFused& find_;
};

}  // namespace

Result<std::vector<std::pair<std::string, SourceTensor>>> make_fused_experts(const HfConfig& config,
                                                                             const std::string& layer,
                                                                             const FindFused& find) {
  const FusedLayer maker(config, layer, find);
  std::vector<std::pair<std::string, SourceTensor>> made;
  for (const FusedTensor& fused : kFusedTensors) {
    auto& [weight_name, weight] = made.emplace_back();
    weight_name = std::string(fused.canonical) + ".weight";
    if (auto status = maker.make_weight(fused, &weight); !status) return status.error();
    auto& [bias_name, bias] = made.emplace_back();
    bias_name = std::string(fused.canonical) + ".bias";
    if (auto status = maker.make_bias(fused, &bias); !status) return status.error();
  }
  return made;
}

}  // namespace llmrt
