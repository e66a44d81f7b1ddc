#include "core/request/branch_constraint.h"

namespace llmrt {

BranchConstraint::BranchConstraint(const TokenConstraint& constraint, std::span<const int32_t> begun)
    : matcher_(constraint.start()) {
  for (size_t i = 0; i < begun.size() && !error_; ++i) {
    if (matcher_->advance(begun[i])) continue;
    error_ =
        make_error(ErrorCode::kInvalidArgument, "begun: token {} ({}) may not stand there in the grammar", i, begun[i]);
  }
}

void BranchConstraint::advance(int32_t token) {
  is_known_ = false;
  mask_ = nullptr;
  if (error_ || matcher_->advance(token)) return;
  error_ = make_error(ErrorCode::kInternal, "the device drew token {}, which the grammar's mask does not allow", token);
}

bool BranchConstraint::is_ready() {
  if (is_known_ || error_) return true;
  NextTokens next = matcher_->next();
  if (next.state == NextTokens::State::kLate) return false;
  if (next.state == NextTokens::State::kFailed) error_ = std::move(next.error);
  mask_ = std::move(next.mask);
  is_known_ = true;
  return true;
}

}  // namespace llmrt
