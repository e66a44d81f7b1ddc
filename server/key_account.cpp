#include "server/key_account.h"

#include <algorithm>
#include <cmath>

namespace llmrt::server {

void TokenBucket::refill(TimeNs now) {
  if (last_ns_ != 0 && now > last_ns_) {
    const double minutes = static_cast<double>(now - last_ns_) / 60e9;
    const auto full = static_cast<double>(per_minute_);
    level_ = std::min(full, level_ + minutes * full);
  }
  last_ns_ = std::max(last_ns_, now);
}

void TokenBucket::set_rate(uint64_t per_minute, TimeNs now) {
  refill(now);
  const bool had_none = per_minute_ == 0;
  per_minute_ = per_minute;
  level_ = had_none ? static_cast<double>(per_minute) : std::min(level_, static_cast<double>(per_minute));
}

double TokenBucket::wait_s(uint64_t amount, TimeNs now) {
  if (per_minute_ == 0) return 0;
  refill(now);
  const double missing = static_cast<double>(std::min(amount, per_minute_)) - level_;
  constexpr double kRounding = 1e-6;  // of a bucket that was refilled in many small parts
  return missing <= kRounding ? 0 : missing / static_cast<double>(per_minute_) * 60;
}

void TokenBucket::take(uint64_t amount, TimeNs now) {
  if (per_minute_ == 0) return;
  refill(now);
  level_ -= static_cast<double>(amount);
}

void TokenBucket::give_back(uint64_t amount, TimeNs now) {
  if (per_minute_ == 0) return;
  refill(now);
  level_ = std::min(level_ + static_cast<double>(amount), static_cast<double>(per_minute_));
}

uint64_t TokenBucket::left(TimeNs now) {
  refill(now);
  return level_ <= 0 ? 0 : static_cast<uint64_t>(level_ + 1e-6);
}

double TokenBucket::full_in_s(TimeNs now) {
  refill(now);
  if (per_minute_ == 0) return 0;
  const auto full = static_cast<double>(per_minute_);
  return (full - level_) / full * 60;
}

KeyAccount::KeyAccount(std::string name, const KeyLimits& limits)
    : concurrent_max_(limits.concurrent), requests_(limits.requests_per_minute), tokens_(limits.tokens_per_minute) {
  figures_.name = std::move(name);
}

void KeyAccount::set_limits(const KeyLimits& limits, TimeNs now) {
  std::lock_guard lock(mutex_);
  concurrent_max_ = limits.concurrent;
  requests_.set_rate(limits.requests_per_minute, now);
  tokens_.set_rate(limits.tokens_per_minute, now);
}

std::optional<KeyRefusal> KeyAccount::begin_request(TimeNs now) {
  std::lock_guard lock(mutex_);
  const auto refuse = [&](KeyLimit limit, double wait_s, uint64_t value) {
    ++figures_.limited[static_cast<size_t>(limit)];
    return KeyRefusal{limit, wait_s, value};
  };
  if (concurrent_max_ > 0 && figures_.running >= concurrent_max_)
    return refuse(KeyLimit::kConcurrent, 1, concurrent_max_);
  if (const double wait = requests_.wait_s(1, now); wait > 0)
    return refuse(KeyLimit::kRequests, wait, requests_.per_minute());
  // Debt of answers: told before a body is parsed.
  if (const double wait = tokens_.wait_s(1, now); wait > 0)
    return refuse(KeyLimit::kTokens, wait, tokens_.per_minute());
  requests_.take(1, now);
  ++figures_.requests;
  ++figures_.running;
  return std::nullopt;
}

void KeyAccount::end_request() {
  std::lock_guard lock(mutex_);
  --figures_.running;
}

std::optional<KeyRefusal> KeyAccount::charge_prompt(uint64_t num_tokens, TimeNs now) {
  std::lock_guard lock(mutex_);
  if (const double wait = tokens_.wait_s(num_tokens, now); wait > 0) {
    ++figures_.limited[static_cast<size_t>(KeyLimit::kTokens)];
    requests_.give_back(1, now);  // it was not served
    return KeyRefusal{KeyLimit::kTokens, wait, tokens_.per_minute()};
  }
  tokens_.take(num_tokens, now);
  figures_.prompt_tokens += num_tokens;
  return std::nullopt;
}

void KeyAccount::charge(uint64_t prompt_tokens, uint64_t generated_tokens, TimeNs now) {
  std::lock_guard lock(mutex_);
  tokens_.take(prompt_tokens + generated_tokens, now);
  figures_.prompt_tokens += prompt_tokens;
  figures_.generated_tokens += generated_tokens;
}

bool KeyAccount::is_in_debt(TimeNs now) {
  std::lock_guard lock(mutex_);
  return tokens_.wait_s(1, now) > 0;
}

KeyRates KeyAccount::rates(TimeNs now) {
  std::lock_guard lock(mutex_);
  const auto rate = [&](TokenBucket& bucket) -> std::optional<KeyRates::Rate> {
    if (bucket.per_minute() == 0) return std::nullopt;
    return KeyRates::Rate{bucket.per_minute(), bucket.left(now), bucket.full_in_s(now)};
  };
  return {rate(requests_), rate(tokens_)};
}

KeyFigures KeyAccount::figures() const {
  std::lock_guard lock(mutex_);
  return figures_;
}

}  // namespace llmrt::server
