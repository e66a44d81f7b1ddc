#include "server/thought_signature.h"

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

}  // namespace

ThoughtSignature::ThoughtSignature() : inner_(begun_with(0x36)) {}

void ThoughtSignature::add(std::string_view text) {
  inner_.add_bytes(std::as_bytes(std::span(text)));
}

std::string ThoughtSignature::take() {
  const Digest digest = inner_.finish();
  inner_ = begun_with(0x36);
  Sha256 outer = begun_with(0x5c);
  outer.add_bytes(std::as_bytes(std::span(digest)));
  return to_hex(outer.finish());
}

}  // namespace llmrt::server
