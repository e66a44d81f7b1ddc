#include "server/key_ring.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "server/routes.h"

namespace llmrt::server {
namespace {

ApiError unauthorized(std::string message) {
  return http_error(401, "invalid_api_key", std::move(message));
}

// As OpenAI's headers say it: "6m0s", "12s".
std::string duration_text(double seconds) {
  const auto whole = static_cast<uint64_t>(std::ceil(std::max(0.0, seconds)));
  return whole < 60 ? fmt::format("{}s", whole) : fmt::format("{}m{}s", whole / 60, whole % 60);
}

// Random numbers of this process, so that nobody outside can compute a salt.
const std::array<uint64_t, 4>& process_secret() {
  static const std::array<uint64_t, 4> secret = [] {
    std::random_device device;
    std::array<uint64_t, 4> words = {};
    for (uint64_t& word : words) word = (static_cast<uint64_t>(device()) << 32) | device();
    return words;
  }();
  return secret;
}

}  // namespace

Result<std::unique_ptr<KeyRing>> KeyRing::open(const Settings& settings) {
  std::unique_ptr<KeyRing> ring(new KeyRing(settings));
  Result<ApiKeys> keys = ring->read();
  if (!keys) return keys.error();
  ring->keys_ = std::move(*keys);
  for (const ApiKey& key : ring->keys_.all())
    ring->accounts_[key.name] = std::make_shared<KeyAccount>(key.name, key.limits);
  return ring;
}

Result<ApiKeys> KeyRing::read() const {
  ApiKeys keys;
  if (!settings_.key_file.empty()) {
    Result<ApiKeys> read = ApiKeys::read(settings_.key_file);
    if (!read) return read;
    keys = std::move(*read);
  }
  if (settings_.key.empty()) return keys;
  ApiKey key;
  key.name = kEnvironmentKey;
  if (Status status = keys.add_secret(std::move(key), settings_.key); !status)
    return make_error(status.error().code, "LLMRT_API_KEY: {}", status.error().message);
  return keys;
}

Status KeyRing::reload(TimeNs now) {
  Result<ApiKeys> keys = read();
  std::lock_guard lock(mutex_);
  if (!keys) {
    ++reload_failures_;
    return keys.error();
  }
  std::map<std::string, std::shared_ptr<KeyAccount>> accounts;
  for (const ApiKey& key : keys->all()) {
    const auto known = accounts_.find(key.name);
    std::shared_ptr<KeyAccount> account =
        known == accounts_.end() ? std::make_shared<KeyAccount>(key.name, key.limits) : known->second;
    account->set_limits(key.limits, now);
    accounts[key.name] = std::move(account);
  }
  keys_ = std::move(*keys);
  accounts_ = std::move(accounts);
  ++reloads_;
  return {};
}

bool KeyRing::has_keys() const {
  std::lock_guard lock(mutex_);
  return !keys_.empty();
}

std::vector<std::string> KeyRing::warnings() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> texts;
  if (keys_.num_guessable() > 0)
    texts.push_back(fmt::format("{} keys have fewer than {} characters: they may be guessed", keys_.num_guessable(),
                                ApiKeys::kGuessableBytes));
  return texts;
}

ApiResult<Caller> KeyRing::admit(const RequestHead& head, const Route& route, std::string* audit) {
  std::lock_guard lock(mutex_);
  if (keys_.empty()) return Caller();
  const bool is_needed = needs_key(head, route, settings_.open_metrics);
  if (head.api_key.empty()) {
    if (!is_needed) return Caller();
    ++missing_;
    *audit = "without a key";
    return unauthorized("API key: expected 'Authorization: Bearer KEY' or 'x-api-key: KEY', found neither");
  }
  if (const ApiKey* key = keys_.find(head.api_key)) return Caller{*key, accounts_.at(key->name)};
  if (!is_needed) return Caller();
  ++wrong_;
  *audit = fmt::format("with a wrong key of {} bytes, SHA-256 {}...", head.api_key.size(),
                       to_hex(hash_secret(head.api_key)).substr(0, 8));
  return unauthorized("API key: expected one that this server knows, found another");
}

std::optional<Caller> KeyRing::find(std::string_view name) const {
  if (name.empty()) return Caller();
  std::lock_guard lock(mutex_);
  for (const ApiKey& key : keys_.all())
    if (key.name == name) return Caller{key, accounts_.at(key.name)};
  return std::nullopt;
}

AccessFigures KeyRing::figures() const {
  std::lock_guard lock(mutex_);
  AccessFigures figures;
  for (const auto& [name, account] : accounts_) figures.keys.push_back(account->figures());
  figures.missing = missing_;
  figures.wrong = wrong_;
  figures.reloads = reloads_;
  figures.reload_failures = reload_failures_;
  return figures;
}

bool needs_key(const RequestHead& head, const Route& route, bool open_metrics) {
  if (head.method == "OPTIONS") return false;  // what browsers ask before they send a key; it tells methods alone
  const RouteRow* row = route.row ? route.row : route.at_path;
  if (row == nullptr) return true;
  return row->access == Access::kProtected || (row->access == Access::kMetrics && !open_metrics);
}

ApiError over_limit(const KeyRefusal& refusal) {
  std::string message;
  switch (refusal.limit) {
    case KeyLimit::kRequests:
      message = fmt::format("API key: expected at most {} requests a minute", refusal.limit_value);
      break;
    case KeyLimit::kTokens:
      message =
          fmt::format("API key: expected at most {} tokens a minute, of prompts and answers", refusal.limit_value);
      break;
    case KeyLimit::kConcurrent:
      message = fmt::format("API key: expected at most {} requests at once", refusal.limit_value);
      break;
  }
  ApiError error = http_error(429, "rate_limit_exceeded", std::move(message));
  error.retry_after_s = std::max(1, static_cast<int>(std::ceil(refusal.wait_s)));
  return error;
}

void add_rate_headers(const KeyRates& rates, Headers* headers) {
  const auto add = [&](const std::optional<KeyRates::Rate>& rate, const std::array<std::string_view, 3>& names) {
    if (!rate) return;
    headers->emplace_back(names[0], fmt::format("{}", rate->limit));
    headers->emplace_back(names[1], fmt::format("{}", rate->left));
    headers->emplace_back(names[2], duration_text(rate->full_in_s));
  };
  add(rates.requests, {"x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"});
  add(rates.tokens, {"x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"});
}

std::string scoped_salt(std::string_view key_salt, std::string_view client_salt) {
  if (key_salt.empty()) return std::string(client_salt);
  Sha256 hash;
  for (const uint64_t word : process_secret()) hash.add(word);
  return to_hex(hash.add_text(key_salt).add_text(client_salt).finish());
}

}  // namespace llmrt::server
