// adapter_config.json of a PEFT folder: which modules an adapter changes, with which rank and scale. A key that is not
// known here, or asks for what llmrt does not compute, is refused by name. Defaults of absent keys are PEFT's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/adapter/name_patterns.h"
#include "core/base/status.h"
#include "core/weights/json_tree.h"

namespace llmrt {

inline constexpr size_t kPeftNamesMax = 1u << 15;     // of one list
inline constexpr size_t kPeftPatternsMax = 1u << 12;  // of rank_pattern and of alpha_pattern

// A set of modules: a list of names or ends of names, or one expression for whole names.
struct PeftModules {
  std::vector<std::string> names;
  std::vector<NamePattern> pattern;  // at most one; instead of names
  bool all_linear = false;           // all but the output layer; instead of names

  Result<bool> has(std::string_view module) const;
};

// A number for the modules whose names end, at a dot, in what the expression matches.
struct PeftRule {
  std::string literal;               // an expression that is a name, where '.' is any character
  std::vector<NamePattern> pattern;  // at most one: another expression
  bool from_start = false;           // of a literal: the whole name
  double value = 0;
};

class PeftConfig {
 public:
  // Errors: corrupt_file, unsupported.
  static Result<PeftConfig> read(const JsonTree& tree);

  // Whether PEFT would put an adapter on the module ("model.layers.0.self_attn.q_proj").
  Result<bool> has(std::string_view module) const;
  // Whether it would on the parameter ("model.layers.0.mlp.experts.down_proj").
  bool has_parameter(std::string_view parameter) const;
  Result<uint64_t> rank_of(std::string_view module) const;
  Result<double> scale_of(std::string_view module) const;
  // aLoRA's; none: not one.
  const std::vector<int64_t>& invocation_tokens() const { return invocation_tokens_; }

 private:
  Status read_layers(const JsonTree& tree);
  bool is_chosen_layer(std::string_view module) const;

  PeftModules targets_, excluded_;
  PeftModules parameters_;                // target_parameters: names alone
  std::vector<int64_t> layers_;           // layers_to_transform
  std::vector<std::string> layer_lists_;  // layers_pattern
  uint64_t rank_ = 8;
  double alpha_ = 8;
  bool is_rank_stabilised_ = false;
  std::vector<PeftRule> ranks_, alphas_;
  std::vector<int64_t> invocation_tokens_;
};

}  // namespace llmrt
