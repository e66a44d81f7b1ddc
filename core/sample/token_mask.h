// Which tokens of a vocabulary may be drawn. Immutable once made, shared by all rows whose grammar is in the same
// state; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace llmrt {

// Sets the token's bit in words of 32, as TokenMask has them.
inline void allow_token(std::vector<uint32_t>* bits, int32_t token) {
  (*bits)[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
}

class TokenMask {
 public:
  // One bit a token, in words of 32: token v is allowed where bit v % 32 of word v / 32 is set. Tokens beyond the words
  // are not allowed.
  explicit TokenMask(std::vector<uint32_t> bits);

  bool allows(int32_t token) const;
  uint32_t num_allowed() const { return num_allowed_; }
  int32_t first() const;  // of the allowed tokens; -1: none
  // As given, but empty where a list() says the same in less room: most masks allow few tokens.
  std::span<const uint32_t> bits() const { return bits_; }
  // The allowed tokens in ascending order, where that takes less than half the room of the bits; else empty.
  std::span<const uint32_t> list() const { return list_; }
  // Of the set of allowed tokens, however many words say it; for sample traces.
  uint64_t digest() const { return digest_; }
  size_t held_bytes() const { return sizeof(*this) + 4 * (bits_.capacity() + list_.capacity()); }

 private:
  std::vector<uint32_t> bits_, list_;
  uint32_t num_allowed_ = 0;
  uint64_t digest_ = 0;
};

// Null: every token may be drawn.
using TokenMaskPtr = std::shared_ptr<const TokenMask>;

}  // namespace llmrt
