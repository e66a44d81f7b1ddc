#include "server/sealed_thought.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <span>

#include "core/base/sha256.h"

namespace llmrt::server {
namespace {

constexpr char kVersion = 1;
constexpr size_t kKeyIdBytes = 4, kMacBytes = 16, kHeadBytes = 1 + kKeyIdBytes + kMacBytes;
constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// RFC 2104, with a key of one digest's length.
Digest hmac(const Digest& key, std::string_view text) {
  std::array<std::byte, 64> inner = {}, outer = {};
  for (size_t i = 0; i < inner.size(); ++i) {
    const uint8_t byte = i < key.size() ? key[i] : uint8_t{0};
    inner[i] = static_cast<std::byte>(byte ^ 0x36);
    outer[i] = static_cast<std::byte>(byte ^ 0x5c);
  }
  const Digest digest = Sha256().add_bytes(inner).add_bytes(bytes_of(text)).finish();
  return Sha256().add_bytes(outer).add(digest).finish();
}

struct SealKey {
  Digest key;
  std::string id;
};
const SealKey& seal_key() {
  static const SealKey made = [] {
    std::random_device device;
    SealKey out;
    for (uint8_t& byte : out.key) byte = static_cast<uint8_t>(device());
    const Digest name = hmac(out.key, "id");
    out.id.assign(name.begin(), name.begin() + kKeyIdBytes);
    return out;
  }();
  return made;
}

// What stands before the thought.
std::string head_of(std::string_view thought) {
  std::string head(1, kVersion);
  head += seal_key().id;
  const Digest mac = hmac(seal_key().key, head + std::string(thought));
  head.append(mac.begin(), mac.begin() + kMacBytes);
  return head;
}

// Base 64 for URLs (RFC 4648), without padding.
std::string encode64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() * 4 + 2) / 3);
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : bytes) {
    bits = (bits << 8) | static_cast<uint8_t>(c);
    for (num_bits += 8; num_bits >= 6; num_bits -= 6) out += kDigits[(bits >> (num_bits - 6)) & 63];
  }
  if (num_bits > 0) out += kDigits[(bits << (6 - num_bits)) & 63];
  return out;
}
std::optional<std::string> decode64(std::string_view text) {
  std::string out;
  out.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(digit);
    if ((num_bits += 6) < 8) continue;
    num_bits -= 8;
    out += static_cast<char>(bits >> num_bits);
  }
  return out;
}

}  // namespace

std::string seal_thought(std::string_view thought) {
  return encode64(head_of(thought) + std::string(thought));
}

std::optional<std::string> open_thought(std::string_view sealed) {
  std::optional<std::string> bytes = decode64(sealed);
  if (!bytes || bytes->size() < kHeadBytes || (*bytes)[0] != kVersion) return std::nullopt;
  if (bytes->compare(1, kKeyIdBytes, seal_key().id) != 0) return std::nullopt;
  std::string thought = bytes->substr(kHeadBytes);
  const std::string head = head_of(thought);
  int difference = 0;  // in the same time wherever it is
  for (size_t i = 0; i < kHeadBytes; ++i) difference |= head[i] ^ (*bytes)[i];
  if (difference != 0) return std::nullopt;
  return thought;
}

}  // namespace llmrt::server
