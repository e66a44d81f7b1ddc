// Where one branch stands in its constraint, and what is known of the mask of its next token. It belongs to the
// branch's sequence, through preemption and until the branch ends. The engine's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

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

  // ---- drafts ----
  // Whether the next token is fixed, as far as its mask is there; and whether the text is behind it, too.
  bool is_fixed() const { return is_known_ && fixed_token(*matcher_, mask_) >= 0; }
  bool stays_fixed() const;
  // Cuts drafts of the next tokens before the first that may not stand, and before the first behind which there is no
  // mask: it is not made yet, or nothing but the end follows. Where they end and the text is fixed, it goes on with
  // that, up to `most` tokens. To be called when it is ready.
  void follow(uint32_t most, std::vector<int32_t>* drafts);
  // The mask behind so many drafts of the last follow(); behind none: mask(). Valid until the next token.
  const TokenMaskPtr& mask_behind(size_t num_drafts) const {
    return num_drafts == 0 ? mask_ : followed_[num_drafts - 1].mask;
  }
  // Nothing but this draft may stand there.
  bool is_certain(size_t draft) const {
    const TokenMaskPtr& mask = mask_behind(draft);
    return mask && mask->num_allowed() == 1;
  }

 private:
  struct Followed {
    int32_t token;
    TokenMaskPtr mask;  // behind it
  };

  static int32_t fixed_token(const ConstraintMatcher& matcher, const TokenMaskPtr& mask) {
    return mask ? matcher.fixed_token(*mask) : -1;
  }
  void take_followed(int32_t token);

  std::unique_ptr<ConstraintMatcher> matcher_;
  bool is_known_ = false;  // the mask of the next token
  TokenMaskPtr mask_;
  std::vector<Followed> followed_;  // the drafts, and ...
  size_t num_drawn_ = 0;            // ... how many of them have been drawn since
  std::optional<Error> error_;
};

}  // namespace llmrt
