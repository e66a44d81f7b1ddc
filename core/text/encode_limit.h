// How far an encoder may go: a most number of tokens, and a flag that somebody else may set. A value for one call.
#pragma once

#include <atomic>
#include <cstddef>
#include <limits>

#include "core/text/tokenizer.h"

namespace llmrt {

class EncodeLimit {
 public:
  EncodeLimit() = default;
  explicit EncodeLimit(const EncodeOptions& options)
      : tokens_max_(options.tokens_max == 0 ? kNone : options.tokens_max), cancelled_(options.cancelled) {}

  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  // kNone: as many as it likes.
  size_t tokens_max() const { return tokens_max_; }
  bool has_tokens_max() const { return tokens_max_ != kNone; }
  // How many more may come behind `num_tokens`, which is not over the limit.
  size_t tokens_left(size_t num_tokens) const { return has_tokens_max() ? tokens_max_ - num_tokens : kNone; }
  bool is_cancelled() const { return cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed); }
  // Nothing more needs to be encoded.
  bool is_over(size_t num_tokens) const { return num_tokens > tokens_max_ || is_cancelled(); }

 private:
  size_t tokens_max_ = kNone;
  const std::atomic<bool>* cancelled_ = nullptr;
};

}  // namespace llmrt
