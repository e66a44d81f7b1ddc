#include "core/model/synthetic_shapes.h"

#include <algorithm>

namespace llmrt {

namespace {

constexpr ShapeKey kQwen3MoeKeys[] = {
    {"expert_count", 128, true},
    {"expert_used_count", 8, true},
    {"expert_feed_forward_length", 768, true},
};
constexpr ShapeKey kGptOss20bKeys[] = {
    {"expert_count", 32, true},
    {"expert_used_count", 4, true},
    {"expert_feed_forward_length", 2880, true},
    {"attention.sliding_window", 128, true},
    {"rope.scaling.type", 0, false, "yarn"},
    {"rope.scaling.factor", 32, false},
    {"rope.scaling.original_context_length", 4096, true},
};
constexpr ShapeKey kGemma27bKeys[] = {
    {"attention.sliding_window", 1024, true},
    {"rope.scaling.factor", 8, false},  // linear, of the layers that see all positions
};

constexpr ShapeKey kGlm47FlashKeys[] = {
    {"attention.head_count_kv", 1, true},
    {"attention.kv_lora_rank", 512, true},
    {"attention.q_lora_rank", 768, true},
    {"attention.key_length", 576, true},
    {"attention.value_length", 512, true},
    {"attention.key_length_mla", 256, true},
    {"attention.value_length_mla", 256, true},
    {"rope.dimension_count", 64, true},
    {"leading_dense_block_count", 1, true},
    {"expert_count", 64, true},
    {"expert_used_count", 4, true},
    {"expert_feed_forward_length", 1536, true},
    {"expert_shared_count", 1, true},
    {"expert_gating_func", 2, true},
    {"expert_weights_scale", 1.8, false},
};

// Qwen3.5 and its successors of the same shapes. Positions of images turn by sections, which other engines ask for.
constexpr int32_t kSections[] = {11, 11, 10, 0};
constexpr ShapeKey kQwen36_27bKeys[] = {
    {"rope.dimension_count", 64, true},   {"rope.dimension_sections", 0, true, nullptr, 0, kSections},
    {"full_attention_interval", 4, true}, {"ssm.conv_kernel", 4, true},
    {"ssm.state_size", 128, true},        {"ssm.group_count", 16, true},
    {"ssm.time_step_rank", 48, true},     {"ssm.inner_size", 6144, true},
};
constexpr ShapeKey kQwen36_35bKeys[] = {
    {"rope.dimension_count", 64, true},
    {"rope.dimension_sections", 0, true, nullptr, 0, kSections},
    {"full_attention_interval", 4, true},
    {"ssm.conv_kernel", 4, true},
    {"ssm.state_size", 128, true},
    {"ssm.group_count", 16, true},
    {"ssm.time_step_rank", 32, true},
    {"ssm.inner_size", 4096, true},
    {"expert_count", 256, true},
    {"expert_used_count", 8, true},
    {"expert_feed_forward_length", 512, true},
    {"expert_shared_feed_forward_length", 512, true},
};
constexpr ShapeKey kQwen3NextKeys[] = {
    {"rope.dimension_count", 64, true},
    {"full_attention_interval", 4, true},
    {"ssm.conv_kernel", 4, true},
    {"ssm.state_size", 128, true},
    {"ssm.group_count", 16, true},
    {"ssm.time_step_rank", 32, true},
    {"ssm.inner_size", 4096, true},
    {"expert_count", 512, true},
    {"expert_used_count", 10, true},
    {"expert_feed_forward_length", 512, true},
    {"expert_shared_feed_forward_length", 512, true},
};
// M: Mamba-2, E: experts, *: attention.
constexpr const char* kNemotronParts = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";
constexpr ShapeKey kNemotron30bKeys[] = {
    {"attention.head_count_kv", 2, true, nullptr, '*'},
    {"feed_forward_length", 1856, true, nullptr, 'E'},
    {"ssm.conv_kernel", 4, true},
    {"ssm.state_size", 128, true},
    {"ssm.group_count", 8, true},
    {"ssm.time_step_rank", 64, true},
    {"ssm.inner_size", 4096, true},
    {"expert_count", 128, true},
    {"expert_used_count", 6, true},
    {"expert_feed_forward_length", 1856, true},
    {"expert_shared_count", 1, true},
    {"expert_shared_feed_forward_length", 3712, true},
    {"expert_weights_scale", 2.5, false},
    {"expert_group_count", 1, true},
};

constexpr Shape kShapes[] = {
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5f, 1e-5f, true, false, {}},
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6f, 1e-6f, true, false, {}},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5f, 1e-5f, false, true, {}},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6f, 1e-6f, false, false, {}},
    {"qwen3-32b", "qwen3", 64, 5120, 25600, 64, 8, 128, 151936, 40960, 1e6f, 1e-6f, false, false, {}},
    {"llama-3.3-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 131072, 5e5f, 1e-5f, false, true, {}},
    {"qwen3-30b-a3b", "qwen3moe", 48, 2048, 6144, 32, 4, 128, 151936, 40960, 1e6f, 1e-6f, false, false, kQwen3MoeKeys},
    {"gpt-oss-20b", "gpt-oss", 24, 2880, 2880, 64, 8, 64, 201088, 131072, 150000, 1e-5f, false, false, kGptOss20bKeys},
    {"glm-4.7-flash", "deepseek2", 47, 2048, 10240, 20, 1, 576, 154880, 202752, 1e6f, 1e-5f, false, false,
     kGlm47FlashKeys},
    {"gemma-3-27b", "gemma3", 62, 5376, 21504, 32, 16, 128, 262208, 131072, 1e6f, 1e-6f, true, false, kGemma27bKeys},
    {"qwen3.6-27b", "qwen35", 64, 5120, 17408, 24, 4, 256, 248320, 262144, 1e7f, 1e-6f, false, false, kQwen36_27bKeys,
     "", true},
    {"qwen3.6-35b-a3b", "qwen35moe", 40, 2048, 512, 16, 2, 256, 248320, 262144, 1e7f, 1e-6f, false, false,
     kQwen36_35bKeys, "", true},
    {"qwen3-next-80b-a3b", "qwen3next", 48, 2048, 5120, 16, 2, 256, 151936, 262144, 1e7f, 1e-6f, false, false,
     kQwen3NextKeys},
    {"nemotron-3-30b-a3b", "nemotron_h_moe", 52, 2688, 1856, 32, 2, 128, 131072, 262144, 1e4f, 1e-5f, false, false,
     kNemotron30bKeys, kNemotronParts},
};

}  // namespace

std::vector<int32_t> Shape::numbers_of(const ShapeKey& key) const {
  std::vector<int32_t> all(key.numbers.begin(), key.numbers.end());
  for (const char* part = parts; key.part != 0 && *part != 0; ++part)
    all.push_back(*part == key.part ? static_cast<int32_t>(key.value) : 0);
  return all;
}

std::span<const Shape> shapes() {
  return kShapes;
}

const Shape* find_shape(std::string_view name) {
  const auto found = std::ranges::find(kShapes, name, [](const Shape& shape) { return std::string_view(shape.name); });
  return found == std::end(kShapes) ? nullptr : found;
}

}  // namespace llmrt
