// The table of all shaders, and how a kernel prints.
#include "backends/vulkan/kernels/adapters.h"
#include "backends/vulkan/kernels/apply_bias.h"
#include "backends/vulkan/kernels/apply_penalties.h"
#include "backends/vulkan/kernels/causal_conv.h"
#include "backends/vulkan/kernels/elementwise.h"
#include "backends/vulkan/kernels/embed.h"
#include "backends/vulkan/kernels/experts.h"
#include "backends/vulkan/kernels/filter.h"
#include "backends/vulkan/kernels/fragment_probe.h"
#include "backends/vulkan/kernels/gated_norm.h"
#include "backends/vulkan/kernels/gather_rows.h"
#include "backends/vulkan/kernels/joined_qk_norm.h"
#include "backends/vulkan/kernels/latent.h"
#include "backends/vulkan/kernels/logprobs.h"
#include "backends/vulkan/kernels/matmul_batch.h"
#include "backends/vulkan/kernels/matmul_dots.h"
#include "backends/vulkan/kernels/matmul_fragment.h"
#include "backends/vulkan/kernels/matmul_lanes.h"
#include "backends/vulkan/kernels/matmul_matrix.h"
#include "backends/vulkan/kernels/matmul_pairs.h"
#include "backends/vulkan/kernels/matmul_row.h"
#include "backends/vulkan/kernels/matmul_tile.h"
#include "backends/vulkan/kernels/matmul_vector.h"
#include "backends/vulkan/kernels/matmul_wide.h"
#include "backends/vulkan/kernels/move_blocks.h"
#include "backends/vulkan/kernels/paged_attention_block.h"
#include "backends/vulkan/kernels/paged_attention_decode.h"
#include "backends/vulkan/kernels/paged_attention_fragment.h"
#include "backends/vulkan/kernels/paged_attention_lanes.h"
#include "backends/vulkan/kernels/paged_attention_matrix.h"
#include "backends/vulkan/kernels/paged_attention_merge.h"
#include "backends/vulkan/kernels/paged_attention_tile.h"
#include "backends/vulkan/kernels/paged_attention_wide.h"
#include "backends/vulkan/kernels/prepare_rows.h"
#include "backends/vulkan/kernels/qkv.h"
#include "backends/vulkan/kernels/rms_norm.h"
#include "backends/vulkan/kernels/sample.h"
#include "backends/vulkan/kernels/state_walk.h"
#include "backends/vulkan/kernels/update_rows.h"
#include "backends/vulkan/kernels/write_halves.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

template <class K>
Shader describe(const char* name = K::kShader) {
  Shader shader{name, {}, sizeof(typename K::Push)};
  if constexpr (!std::is_empty_v<typename K::Constants>)
    for (const auto& constant : K::kConstants) shader.constants.push_back(constant.name);
  return shader;
}

}  // namespace

std::span<const Shader> all_shaders() {
  static const Shader kShaders[] = {
      describe<AdapterExpandKernel>(),
      describe<AdapterShrinkKernel>(),
      describe<ExpertExpandKernel>(),
      describe<ExpertShrinkKernel>(),
      describe<ApplyBiasKernel>(),
      describe<ApplyPenaltiesKernel>(),
      describe<CausalConvKernel>(),
      describe<ElementwiseKernel>(),
      describe<EmbedKernel>(),
      describe<ExpandLatentKernel>(),
      describe<ExpertFragmentKernel>(),
      describe<ExpertMatrixKernel>(),
      describe<ExpertSumKernel>(),
      describe<ExpertVectorKernel>(),
      describe<FilterKernel>(),
      describe<FragmentProbeKernel>(),
      describe<GatedNormKernel>(),
      describe<GatherRowsKernel>(),
      describe<HeadMatmulKernel>(),
      describe<JoinedQkNormKernel>(),
      describe<LatentAttentionKernel>(),
      describe<LatentRowsKernel>(),
      describe<LogprobsKernel>(),
      describe<MatmulBatchKernel>(),
      describe<MatmulDotsKernel>(),
      describe<MatmulFragmentKernel>(),
      describe<MatmulLanesKernel>(),
      describe<MatmulMatrixKernel>(),
      describe<MatmulPairsKernel>(),
      describe<MatmulRowKernel>(),
      describe<MatmulTileKernel>(),
      describe<MatmulVectorKernel>(),
      describe<MatmulWideKernel>(),
      describe<MoveBlocksKernel>(),
      describe<PagedAttentionBlockKernel>(),
      describe<PagedAttentionDecodeKernel>(),
      describe<PagedAttentionFragmentKernel>(),
      describe<PagedAttentionLanesKernel>(),
      describe<PagedAttentionMatrixKernel>(),
      describe<PagedAttentionMergeKernel>(),
      describe<PagedAttentionTileKernel>(),
      describe<PagedAttentionWideKernel>(),
      describe<PrepareRowsKernel>(),
      describe<QkvKernel>(),
      describe<RmsNormKernel>(),
      describe<RouteExpertsKernel>(),
      describe<SampleKernel>(),
      describe<SortExpertsKernel>(),
      describe<StateEntriesKernel>(),
      describe<StateWalkKernel>(),
      describe<StateWalkKernel>(StateWalkKernel::kRingShader),
      describe<UpdateRowsKernel>(),
      describe<WriteHalvesKernel>(),
      describe<PagedAttentionBlockKernel>(PagedAttentionBlockKernel::kPairsShader),
  };
  return kShaders;
}

Groups spread(const Traits& traits, uint64_t groups) {
  const uint64_t y = ceil_div<uint64_t>(groups, traits.groups_max[0]);
  return {static_cast<uint32_t>(y > 1 ? ceil_div(groups, y) : groups), static_cast<uint32_t>(y)};
}

std::string print(const Kernel& kernel) {
  const auto shader = std::ranges::find(all_shaders(), std::string_view(kernel.shader),
                                        [](const Shader& s) { return std::string_view(s.name); });
  LLMRT_CHECK(shader != all_shaders().end() && shader->constants.size() == kernel.constants.size(), kernel.shader);
  std::string text = fmt::format("{} group_size={}", kernel.shader, kernel.group_size);
  for (size_t i = 0; i < kernel.constants.size(); ++i)
    text += fmt::format(" {}={}", shader->constants[i], kernel.constants[i]);
  return text;
}

std::string print(const KernelChoice& choice) {
  const Groups& g = choice.groups;
  return fmt::format("{} grid={}x{}x{}", print(choice.kernel), g.x, g.y, g.z);
}

}  // namespace llmrt::vulkan
