#include "core/base/keyed_hash.h"

#include <bit>
#include <cstring>
#include <random>

namespace llmrt {
namespace {

struct State {
  uint64_t v0, v1, v2, v3;

  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  }
  void absorb(uint64_t word, int c) {
    v3 ^= word;
    rounds(c);
    v0 ^= word;
  }
};

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

}  // namespace

uint64_t siphash(std::string_view bytes, const HashKey& key, int c, int d) {
  State state{key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du, key[0] ^ 0x6c7967656e657261u,
              key[1] ^ 0x7465646279746573u};
  const size_t whole = bytes.size() / 8 * 8;
  for (size_t at = 0; at < whole; at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    state.absorb(word, c);
  }
  uint64_t last = static_cast<uint64_t>(bytes.size()) << 56;
  for (size_t i = whole; i < bytes.size(); ++i)
    last |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * (i - whole));
  state.absorb(last, c);
  state.v2 ^= 0xff;
  state.rounds(d);
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

const HashKey& process_hash_key() {
  static const HashKey key = [] {
    std::random_device device;
    const auto word = [&] { return (static_cast<uint64_t>(device()) << 32) | device(); };
    return HashKey{word(), word()};
  }();
  return key;
}

}  // namespace llmrt
