#include "server/sealed_thought.h"

#include <algorithm>
#include <cstdint>

#include "server/process_mac.h"

namespace llmrt::server {
namespace {

constexpr char kVersion = 1;
constexpr size_t kKeyIdBytes = 4, kMacBytes = 16, kHeadBytes = 1 + kKeyIdBytes + kMacBytes;
constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

// Of the key, so that what another process has sealed is known for that.
const std::string& key_id() {
  static const std::string id = [] {
    const Digest name = ProcessMac("name of the key").take();
    return std::string(name.begin(), name.begin() + kKeyIdBytes);
  }();
  return id;
}

// What stands before the thought.
std::string head_of(std::string_view thought) {
  std::string head(1, kVersion);
  head += key_id();
  const Digest mac = ProcessMac("sealed thought").add(head).add(thought).take();
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
  if (bytes->compare(1, kKeyIdBytes, key_id()) != 0) return std::nullopt;
  std::string thought = bytes->substr(kHeadBytes);
  const std::string head = head_of(thought);
  int difference = 0;  // in the same time wherever it is
  for (size_t i = 0; i < kHeadBytes; ++i) difference |= head[i] ^ (*bytes)[i];
  if (difference != 0) return std::nullopt;
  return thought;
}

}  // namespace llmrt::server
