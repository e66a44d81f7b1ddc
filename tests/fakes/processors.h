// A logits processor as an example: no token stands more than `run` times in a row, and the token that would is
// replaced by others as the model likes. Given to a request as `request.processors = {std::make_shared<LimitRuns>(2)}`.
#pragma once

#include <algorithm>

#include "core/sample/logits_processor.h"

namespace llmrt::test {

class LimitRuns final : public LogitsProcessor {
 public:
  explicit LimitRuns(size_t run) : run_(run) {}
  std::string_view name() const override { return "limit_runs"; }
  void process(std::span<const int32_t> tokens, uint32_t, std::vector<TokenBias>* changes) const override {
    if (tokens.size() < run_) return;
    const auto tail = tokens.last(run_);
    if (std::ranges::count(tail, tail.back()) == static_cast<std::ptrdiff_t>(run_))
      changes->push_back({tail.back(), kBan});
  }

 private:
  size_t run_;  // at least 1
};

}  // namespace llmrt::test
