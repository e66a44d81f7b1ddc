// Regular expressions over the names of modules, as adapter_config.json has them in target_modules, rank_pattern and
// the like. Expressions and names come from outside: both are short, and matching is bounded in steps and memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace llmrt {

inline constexpr size_t kNamePatternBytesMax = 8192;

class NamePattern {
 public:
  // `field` names it in messages. Error: unsupported.
  static Result<NamePattern> create(std::string_view expression, std::string field);

  // Whether it matches the whole name. Error: unsupported, where that takes too many steps.
  Result<bool> matches(std::string_view name) const;

 private:
  struct Code;
  NamePattern(std::shared_ptr<const Code> code, std::string field) : code_(std::move(code)), field_(std::move(field)) {}

  std::shared_ptr<const Code> code_;
  std::string field_;
};

}  // namespace llmrt
