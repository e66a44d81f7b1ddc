// SHA-256 (FIPS 180-4), for identities that must be the same in every process and that nobody may forge. Not for
// secrets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace llmrt {

using Digest = std::array<uint8_t, 32>;

std::string to_hex(const Digest& digest);

class Sha256 {
 public:
  Sha256& add_bytes(std::span<const std::byte> bytes);
  // As it lies in memory (little-endian).
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, Digest> Sha256& add(const T& value) {
    return add_bytes(std::as_bytes(std::span(&value, 1)));
  }
  template <typename T>
  requires std::is_arithmetic_v<T> Sha256& add_all(std::span<const T> values) {
    return add_bytes(std::as_bytes(values));
  }
  // Its length first, so that neighbouring texts cannot be cut in two ways.
  Sha256& add_text(std::string_view text);

  // The digest of everything added. Nothing may be added afterwards.
  Digest finish();

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_ = {};
  uint64_t num_bytes_ = 0;
};

}  // namespace llmrt
