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
  if (error_) return;
  if (matcher_->advance(token)) return take_followed(token);
  error_ = make_error(ErrorCode::kInternal, "the device drew token {}, which the grammar's mask does not allow", token);
}

// The mask behind a draft is known.
void BranchConstraint::take_followed(int32_t token) {
  if (num_drawn_ == followed_.size()) return;
  if (followed_[num_drawn_].token != token) {
    num_drawn_ = followed_.size();  // those behind it are of another text
    return;
  }
  mask_ = followed_[num_drawn_++].mask;
  is_known_ = true;
}

bool BranchConstraint::stays_fixed() const {
  if (error_ || !is_fixed()) return false;
  const std::unique_ptr<ConstraintMatcher> ahead = matcher_->fork();
  if (!ahead->advance(fixed_token(*matcher_, mask_)) || ahead->ended()) return false;
  const NextTokens next = ahead->next();
  return next.state == NextTokens::State::kReady && fixed_token(*ahead, next.mask) >= 0;
}

void BranchConstraint::follow(uint32_t most, std::vector<int32_t>* drafts) {
  followed_.clear();
  num_drawn_ = 0;
  if (error_ || most == 0) drafts->clear();
  if (error_ || (drafts->empty() && (most == 0 || !is_fixed()))) return;
  const std::unique_ptr<ConstraintMatcher> ahead = matcher_->fork();
  TokenMaskPtr mask = mask_;
  while (followed_.size() < most) {
    const size_t i = followed_.size();
    if (i == drafts->size() || (mask && !mask->allows((*drafts)[i]))) {
      drafts->resize(i);
      const int32_t fixed = fixed_token(*ahead, mask);
      if (fixed < 0) break;
      drafts->push_back(fixed);
    }
    if (!ahead->advance((*drafts)[i]) || ahead->ended()) break;
    NextTokens next = ahead->next();
    if (next.state != NextTokens::State::kReady) break;
    mask = next.mask;
    followed_.push_back({(*drafts)[i], std::move(next.mask)});
  }
  drafts->resize(followed_.size());
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
