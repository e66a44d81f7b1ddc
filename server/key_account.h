// What a key has used: rates by token buckets that hold a minute's worth, requests under way, counts for metrics. Time
// is a parameter. Thread-safe. Source of the algorithm: the token bucket of RFC 2697, in debt where tokens are known
// only once they are there.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/base/clock.h"
#include "server/access_figures.h"
#include "server/api_keys.h"

namespace llmrt::server {

class TokenBucket {
 public:
  // Full at first. 0: no limit.
  explicit TokenBucket(uint64_t per_minute = 0) : per_minute_(per_minute), level_(static_cast<double>(per_minute)) {}

  // Another rate, for the same past: what was there stays, up to a minute's worth.
  void set_rate(uint64_t per_minute, TimeNs now);
  // Seconds until `amount` may be taken; 0: now. More than a minute's worth needs a full bucket, not more.
  double wait_s(uint64_t amount, TimeNs now);
  // Whatever is there: the level may fall below 0.
  void take(uint64_t amount, TimeNs now);
  void give_back(uint64_t amount, TimeNs now);

  uint64_t per_minute() const { return per_minute_; }
  uint64_t left(TimeNs now);     // whole ones, not below 0
  double full_in_s(TimeNs now);  // until a minute's worth is there

 private:
  void refill(TimeNs now);

  uint64_t per_minute_;
  double level_;
  TimeNs last_ns_ = 0;
};

// Why a request must wait.
struct KeyRefusal {
  KeyLimit limit;
  double wait_s = 1;
  uint64_t limit_value = 0;
};

// What the x-ratelimit headers say; absent for what has no limit.
struct KeyRates {
  struct Rate {
    uint64_t limit = 0, left = 0;
    double full_in_s = 0;
  };
  std::optional<Rate> requests, tokens;
};

class KeyAccount {
 public:
  KeyAccount(std::string name, const KeyLimits& limits);

  void set_limits(const KeyLimits& limits, TimeNs now);
  // Nothing: the request may go on, and counts as under way until end_request().
  std::optional<KeyRefusal> begin_request(TimeNs now);
  void end_request();
  // The request has begun. Nothing: the prompt is charged.
  std::optional<KeyRefusal> charge_prompt(uint64_t num_tokens, TimeNs now);
  // Told afterwards, so the bucket may run into debt, which later requests wait for.
  void charge(uint64_t prompt_tokens, uint64_t generated_tokens, TimeNs now);
  void charge_generated(uint64_t num_tokens, TimeNs now) { charge(0, num_tokens, now); }

  // Whether tokens are owed, so that nothing more should be begun for this key.
  bool is_in_debt(TimeNs now);

  KeyRates rates(TimeNs now);
  KeyFigures figures() const;

 private:
  mutable std::mutex mutex_;
  uint32_t concurrent_max_;
  TokenBucket requests_, tokens_;
  KeyFigures figures_;
};

// A request of a key that is under way.
class KeyUse {
 public:
  KeyUse() = default;
  explicit KeyUse(std::shared_ptr<KeyAccount> account) : account_(std::move(account)) {}
  KeyUse(KeyUse&& other) noexcept = default;
  KeyUse& operator=(KeyUse&& other) noexcept {
    std::swap(account_, other.account_);
    return *this;
  }
  ~KeyUse() {
    if (account_) account_->end_request();
  }

 private:
  std::shared_ptr<KeyAccount> account_;
};

}  // namespace llmrt::server
