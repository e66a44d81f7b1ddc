#include "server/api_keys.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>

#include "core/request/request.h"

namespace llmrt::server {
namespace {

constexpr std::string_view kHashed = "sha256:";
constexpr std::string_view kSettings =
    "class, requests-per-minute, tokens-per-minute, concurrent, cache-salt, adapters, slow-clients, "
    "stream-buffer-kib, stall-s";

bool is_key_name(std::string_view text) {
  return !text.empty() && text.size() <= ApiKeys::kNameBytesMax && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' ||
           c == '-';
  });
}
bool is_secret(std::string_view text) {
  return !text.empty() && text.size() <= ApiKeys::kSecretBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

std::optional<Digest> hash_of_hex(std::string_view hex) {
  Digest digest = {};
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    const char* begin = hex.data() + 2 * i;
    const auto [end, error] = std::from_chars(begin, begin + 2, digest[i], 16);
    if (error != std::errc() || end != begin + 2) return std::nullopt;
  }
  return digest;
}

template <typename T>
bool read_count(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out > 0 && out <= T{1'000'000'000};
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const size_t end = std::min(line.size(), line.find_first_of(" \t\r"));
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

// What is wrong with "name=value"; empty: nothing. Values are not quoted: a secret may stand in the wrong place.
std::string read_setting(std::string_view word, ApiKey& key) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos)
    return fmt::format("expected settings as NAME=VALUE ({}), found a word of {} bytes", kSettings, word.size());
  const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
  const auto count = [&](bool is_read) {
    return is_read ? std::string() : fmt::format("{}: expected a whole number from 1 to 1000000000", name);
  };
  if (name == "requests-per-minute") return count(read_count(value, key.limits.requests_per_minute));
  if (name == "tokens-per-minute") return count(read_count(value, key.limits.tokens_per_minute));
  if (name == "concurrent") return count(read_count(value, key.limits.concurrent));
  if (name == "stream-buffer-kib" || name == "stall-s") {
    uint32_t& field = name == "stall-s" ? key.stall_s : key.stream_buffer_kib;
    return read_count(value, field) && field <= 1'000'000
               ? std::string()
               : fmt::format("{}: expected a whole number from 1 to 1000000", name);
  }
  if (name == "slow-clients") {
    key.slow_clients = parse_slow_clients(value);
    return key.slow_clients ? "" : "slow-clients: expected buffer, throttle or disconnect";
  }
  if (name == "class") {
    key.request_class = parse_request_class(value);
    return key.request_class ? "" : "class: expected interactive, agent, batch, evaluation or background";
  }
  if (name == "adapters") {
    key.adapters.emplace();
    for (std::string_view rest = value; !rest.empty();) {
      const size_t end = std::min(rest.size(), rest.find(','));
      key.adapters->emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(rest.size(), end + 1));
    }
    return "";
  }
  if (name == "cache-salt") {
    key.cache_salt = value;
    return value.size() <= kCacheSaltBytesMax
               ? ""
               : fmt::format("cache-salt: expected at most {} bytes", kCacheSaltBytesMax);
  }
  return fmt::format("expected one of the settings {}, found another", kSettings);
}

// Every byte is looked at, whatever the others are.
bool is_equal(const Digest& a, const Digest& b) {
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = difference | static_cast<uint8_t>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

Digest hash_secret(std::string_view secret) {
  return Sha256().add_bytes(std::as_bytes(std::span(secret))).finish();
}

Status ApiKeys::add(ApiKey key) {
  if (!is_key_name(key.name))
    return make_error(ErrorCode::kInvalidArgument,
                      "expected a name of 1 to {} letters, digits, '.', '_' and '-', found one of {} bytes",
                      kNameBytesMax, key.name.size());
  if (keys_.size() == kKeysMax) return make_error(ErrorCode::kInvalidArgument, "expected at most {} keys", kKeysMax);
  for (const ApiKey& other : keys_) {
    if (other.name == key.name) return make_error(ErrorCode::kInvalidArgument, "the name {} is there twice", key.name);
    if (is_equal(other.hash, key.hash))
      return make_error(ErrorCode::kInvalidArgument, "{} has the secret of {}", key.name, other.name);
  }
  keys_.push_back(std::move(key));
  return {};
}

Status ApiKeys::add_secret(ApiKey key, std::string_view secret) {
  if (!is_secret(secret))
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: expected a secret of 1 to {} printable ASCII characters, found one of {} bytes", key.name,
                      kSecretBytesMax, secret.size());
  key.hash = hash_secret(secret);
  if (Status status = add(std::move(key)); !status) return status;
  ++num_plain_;
  if (secret.size() < kGuessableBytes) ++num_guessable_;
  return {};
}

Result<ApiKeys> ApiKeys::parse(std::string_view text, std::string_view place) {
  ApiKeys keys;
  size_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.size(), text.find('\n'));
    const std::vector<std::string_view> words = words_of(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
    if (words.empty() || words[0].starts_with('#')) continue;
    const auto problem = [&](std::string_view what) {
      return make_error(ErrorCode::kInvalidArgument, "{}: line {}: {}", place, number, what);
    };
    if (words.size() < 2) return problem("expected a name and a secret, found one word");
    ApiKey key;
    key.name = words[0];
    key.cache_salt = words[0];
    for (size_t i = 2; i < words.size(); ++i)
      if (const std::string wrong = read_setting(words[i], key); !wrong.empty()) return problem(wrong);
    Status status;
    if (words[1].starts_with(kHashed)) {
      const std::optional<Digest> hash = hash_of_hex(words[1].substr(kHashed.size()));
      if (!hash) return problem(fmt::format("expected {} and 64 hexadecimal digits", kHashed));
      key.hash = *hash;
      status = keys.add(std::move(key));
    } else {
      status = keys.add_secret(std::move(key), words[1]);
    }
    if (!status) return problem(status.error().message);
  }
  return keys;
}

Result<ApiKeys> ApiKeys::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    return make_error(ErrorCode::kIo, "{}: expected a file with keys, found none that can be read", path);
  const auto num_read = static_cast<size_t>(file.gcount());
  if (num_read > kFileBytesMax)
    return make_error(ErrorCode::kInvalidArgument, "{}: expected at most {} bytes", path, kFileBytesMax);
  Result<ApiKeys> keys = parse(std::string_view(text).substr(0, num_read), path);
  if (keys && keys->empty())
    return make_error(ErrorCode::kInvalidArgument, "{}: expected at least one key, found none", path);
  return keys;
}

const ApiKey* ApiKeys::find(std::string_view secret) const {
  const Digest hash = hash_secret(secret);
  const ApiKey* found = nullptr;
  for (const ApiKey& key : keys_)
    if (is_equal(key.hash, hash)) found = &key;
  return found;
}

}  // namespace llmrt::server
