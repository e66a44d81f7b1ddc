// A mask that another thread would still work on: it bans one token, which depends on all tokens before, and is ready
// only when it has been asked for it some times. Each request that is submitted has a fresh one.
#pragma once

#include <memory>
#include <unordered_map>

#include "core/request/request.h"
#include "tests/fakes/fake_model.h"

namespace llmrt::test {

class LateMask final : public LogitsProcessor {
 public:
  explicit LateMask(uint32_t asks_max) : asks_max_(asks_max) {}
  // What has been asked of the request's masks before is forgotten.
  static void make_fresh(Request* request) {
    for (auto& processor : request->processors)
      if (const auto* mask = dynamic_cast<const LateMask*>(processor.get()))
        processor = std::make_shared<LateMask>(mask->asks_max_);
  }

  std::string_view name() const override { return "late_mask"; }
  bool is_ready(std::span<const int32_t> tokens, uint32_t) const override {
    const uint64_t digest = digest_of(tokens);
    return ++num_asked_[digest] > digest % (asks_max_ + 1);
  }
  void process(std::span<const int32_t> tokens, uint32_t, std::vector<TokenBias>* changes) const override {
    changes->push_back({static_cast<int32_t>(digest_of(tokens) / 7 % kFakeVocab), kBan});
  }

 private:
  static uint64_t digest_of(std::span<const int32_t> tokens) {
    uint64_t digest = 0;
    for (const int32_t token : tokens) digest = mix(digest, static_cast<uint64_t>(token));
    return digest;
  }

  uint32_t asks_max_;
  mutable std::unordered_map<uint64_t, uint64_t> num_asked_;  // by the tokens' digest
};

}  // namespace llmrt::test
