// Where one branch stands in its constraint, and what is known of the mask of its next token. It belongs to the
// branch's sequence, through preemption and until the branch ends. The engine's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "core/request/token_constraint.h"

namespace llmrt {

class BranchConstraint {
 public:
  // Behind the tokens that the answer has already.
  BranchConstraint(const TokenConstraint& constraint, std::span<const int32_t> begun);

  // A token of the answer; where it may not stand, error() says so.
  void advance(int32_t token);
  // Whether the mask of the next token is known, or that there will be none. Never blocks; the first call after a token
  // lets the mask be made.
  bool is_ready();
  // When it is ready: null = every token may be drawn.
  const TokenMaskPtr& mask() const { return mask_; }
  void wait(std::chrono::microseconds most) { matcher_->wait(most); }
  // Nothing but the end may follow.
  bool ended() const { return matcher_->ended(); }
  // Why the branch must end: it has no mask any more.
  const std::optional<Error>& error() const { return error_; }

 private:
  std::unique_ptr<ConstraintMatcher> matcher_;
  bool is_known_ = false;  // the mask of the next token
  TokenMaskPtr mask_;
  std::optional<Error> error_;
};

}  // namespace llmrt
