#include "server/process_mac.h"

#include <array>
#include <random>
#include <span>

namespace llmrt::server {
namespace {

constexpr size_t kBlockBytes = 64;
using MacBlock = std::array<uint8_t, kBlockBytes>;

const MacBlock& mac_key() {
  static const MacBlock key = [] {
    std::random_device device;
    MacBlock drawn{};
    for (size_t i = 0; i < 32; ++i) drawn[i] = static_cast<uint8_t>(device());
    return drawn;
  }();
  return key;
}

Sha256 begun_with(uint8_t pad) {
  MacBlock block = mac_key();
  for (uint8_t& byte : block) byte ^= pad;
  Sha256 hash;
  hash.add_bytes(std::as_bytes(std::span(block)));
  return hash;
}

Sha256 begun_for(std::string_view purpose) {
  Sha256 hash = begun_with(0x36);
  hash.add_text(purpose);
  return hash;
}

}  // namespace

ProcessMac::ProcessMac(std::string_view purpose) : purpose_(purpose), inner_(begun_for(purpose)) {}

ProcessMac& ProcessMac::add(std::string_view text) {
  inner_.add_bytes(std::as_bytes(std::span(text)));
  return *this;
}

Digest ProcessMac::take() {
  const Digest digest = inner_.finish();
  inner_ = begun_for(purpose_);
  return begun_with(0x5c).add(digest).finish();
}

}  // namespace llmrt::server
