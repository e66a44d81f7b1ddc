// shaders/route_experts.comp, sort_experts.comp, expert_sum.comp; the constants and push constants of the kernels that
// multiply experts' matrices (shaders/expert_ends.glsl): expert_vector.comp, expert_fragment.comp, expert_matrix.comp.
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct RouteExpertsKernel {
  static constexpr const char* kShader = "route_experts";
  struct Constants {
    uint32_t scoring;  // ExpertScoring
    uint32_t renormalise, bias, correction, shared_gate;
    uint32_t groups, groups_used, shared;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"scoring", &Constants::scoring},
      {"renormalise", &Constants::renormalise},
      {"bias", &Constants::bias},
      {"correction", &Constants::correction},
      {"shared_gate", &Constants::shared_gate},
      {"groups", &Constants::groups},
      {"groups_used", &Constants::groups_used},
      {"shared", &Constants::shared},
  };
  struct Push {
    Address scores, bias, correction, shared_gate, x, ids, weights, count;
    uint32_t num_experts, columns, chosen, row_first;
    float scale;
  };
};
static_assert(sizeof(RouteExpertsKernel::Push) == 84 && offsetof(RouteExpertsKernel::Push, num_experts) == 64);

struct SortExpertsKernel {
  static constexpr const char* kShader = "sort_experts";
  struct Constants {
    uint32_t rows_max;
  };
  static constexpr Constant<Constants> kConstants[] = {{"rows_max", &Constants::rows_max}};
  struct Push {
    Address ids, items, count, x, halves;
    uint32_t num_experts, per_row, rows_first, row_octets;
  };
};
static_assert(sizeof(SortExpertsKernel::Push) == 56);

struct ExpertSumKernel {
  static constexpr const char* kShader = "expert_sum";
  struct Constants {
    uint32_t bias, fours;
  };
  static constexpr Constant<Constants> kConstants[] = {{"bias", &Constants::bias}, {"fours", &Constants::fours}};
  struct Push {
    Address products, weights, ids, bias, result, count;
    uint32_t per_row, num_outputs, output_first, result_columns;
  };
};
static_assert(sizeof(ExpertSumKernel::Push) == 64);

// What all kernels that multiply have; a kernel's own fields follow.
struct ExpertConstants {
  uint32_t layout;  // layout_constant
  uint32_t x_dtype;
  uint32_t items;  // ItemKind
  uint32_t out_dtype;
  uint32_t gated, activation, bias, ragged, term;
};
struct ExpertPush {
  Address x, weight, up, bias, result, items, count;
  uint32_t columns, row_words, num_outputs, output_first, expert_rows, up_first, bias_up;
  uint32_t per_row, x_per_row, rows_first, result_columns, unused = 0;
  Address weights, term;
};
static_assert(sizeof(ExpertPush) == 120 && offsetof(ExpertPush, columns) == 56 && offsetof(ExpertPush, weights) == 104);

struct ExpertVectorKernel {
  static constexpr const char* kShader = "expert_vector";
  struct Constants : ExpertConstants {
    uint32_t outputs, cols;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"layout", &Constants::layout},       {"x_dtype", &Constants::x_dtype}, {"items", &Constants::items},
      {"out_dtype", &Constants::out_dtype}, {"gated", &Constants::gated},     {"activation", &Constants::activation},
      {"bias", &Constants::bias},           {"ragged", &Constants::ragged},   {"term", &Constants::term},
      {"outputs", &Constants::outputs},     {"cols", &Constants::cols},
  };
  using Push = ExpertPush;
};

struct ExpertFragmentKernel {
  static constexpr const char* kShader = "expert_fragment";
  struct Constants : ExpertConstants {
    uint32_t ahead, subgroups, m, n, k, row_lanes, tail, matrices, staged_octets, slots;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"layout", &Constants::layout},
      {"x_dtype", &Constants::x_dtype},
      {"items", &Constants::items},
      {"out_dtype", &Constants::out_dtype},
      {"gated", &Constants::gated},
      {"activation", &Constants::activation},
      {"bias", &Constants::bias},
      {"ragged", &Constants::ragged},
      {"term", &Constants::term},
      {"ahead", &Constants::ahead},
      {"subgroups", &Constants::subgroups},
      {"m", &Constants::m},
      {"n", &Constants::n},
      {"k", &Constants::k},
      {"row_lanes", &Constants::row_lanes},
      {"tail", &Constants::tail},
      {"matrices", &Constants::matrices},
      {"staged_octets", &Constants::staged_octets},
      {"slots", &Constants::slots},
  };
  using Push = ExpertPush;
};

struct ExpertMatrixKernel {
  static constexpr const char* kShader = "expert_matrix";
  struct Constants : ExpertConstants {
    uint32_t tile_rows, tile_cols, part_rows, part_cols, m, n, k;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"layout", &Constants::layout},
      {"x_dtype", &Constants::x_dtype},
      {"items", &Constants::items},
      {"out_dtype", &Constants::out_dtype},
      {"gated", &Constants::gated},
      {"activation", &Constants::activation},
      {"bias", &Constants::bias},
      {"ragged", &Constants::ragged},
      {"term", &Constants::term},
      {"tile_rows", &Constants::tile_rows},
      {"tile_cols", &Constants::tile_cols},
      {"part_rows", &Constants::part_rows},
      {"part_cols", &Constants::part_cols},
      {"m", &Constants::m},
      {"n", &Constants::n},
      {"k", &Constants::k},
  };
  using Push = ExpertPush;
};

}  // namespace llmrt::vulkan
