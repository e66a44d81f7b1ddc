// What the tokens of an answer must be, one by one: what the engine asks of a grammar (core/grammar makes them). A
// TokenConstraint is what a client asked, compiled, immutable and shared by all requests that ask the same; a
// ConstraintMatcher is where one branch stands in it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/base/status.h"
#include "core/sample/token_mask.h"

namespace llmrt {

// What ConstraintMatcher::next answers.
struct NextTokens {
  enum class State : uint8_t { kReady, kLate, kFailed };
  State state = State::kReady;
  TokenMaskPtr mask = nullptr;      // kReady: the tokens that may be drawn; null = all
  std::optional<Error> error = {};  // kFailed: ends the request (grammar_timeout, grammar_too_complex)
};

// One thread at a time, but for what it shares inside. Copies made by fork are independent.
class ConstraintMatcher {
 public:
  virtual ~ConstraintMatcher() = default;

  virtual std::unique_ptr<ConstraintMatcher> fork() const = 0;
  // Takes the token that was drawn. False: it may not stand here; the state is then as before.
  virtual bool advance(int32_t token) = 0;
  // What may be drawn next. Never blocks: kLate while the mask is being made, which the first call starts.
  virtual NextTokens next() = 0;
  // Waits until next() would not say kLate, at most so long.
  virtual void wait(std::chrono::microseconds most) = 0;
  // The answer is complete if it ends here: end tokens are in the mask exactly then.
  virtual bool accepts() const = 0;
  // Of the mask that next() has given here: the token of which all others are beginnings, so that the text is fixed, if
  // not how it is cut into tokens; -1: it is not. Only a guess of what is drawn, and right where no other may be.
  virtual int32_t fixed_token(const TokenMask& mask) const { return mask.num_allowed() == 1 ? mask.first() : -1; }
  // It accepts, and nothing but the end may follow: the engine ends the answer without a step for the end token.
  virtual bool ended() const = 0;
};

// What the client should be told of how its wish was read.
struct ConstraintNote {
  std::string tool;  // of its arguments; empty: of the content
  std::string text;
  bool operator==(const ConstraintNote&) const = default;
};

// Any thread.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  virtual std::unique_ptr<ConstraintMatcher> start() const = 0;
  virtual size_t held_bytes() const = 0;
  // Whether a matcher's fork takes no longer for a long text: then its masks are made ahead, for drafts.
  virtual bool forks_fast() const { return true; }
  // Whether it says where the answer may end; else end tokens may stand anywhere, and be banned.
  virtual bool decides_end() const { return true; }
  virtual std::span<const ConstraintNote> notes() const { return {}; }
};

}  // namespace llmrt
