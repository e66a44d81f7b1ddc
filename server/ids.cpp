#include "server/ids.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>

#include "core/base/keyed_hash.h"

namespace llmrt::server {
namespace {

HashKey random_key() {
  std::random_device device;
  const auto word = [&] { return (static_cast<uint64_t>(device()) << 32) | device(); };
  return {word(), word()};
}

// The counter of calls, through a keyed hash: a different input each time, and nobody has the key.
std::array<uint64_t, 2> new_number() {
  static const HashKey key = random_key();
  static std::atomic<uint64_t> counter{0};
  const auto digits = [number = counter.fetch_add(1, std::memory_order_relaxed)](char half) {
    char input[sizeof(number) + 1];
    std::memcpy(input, &number, sizeof(number));
    input[sizeof(number)] = half;
    return siphash({input, sizeof(input)}, key, 2, 4);
  };
  return {digits(0), digits(1)};
}

}  // namespace

std::string make_id_of(std::string_view begin) {
  const auto number = new_number();
  return fmt::format("{}{:016x}{:016x}", begin, number[0], number[1]);
}

std::string make_id(std::string_view prefix) {
  return make_id_of(fmt::format("{}-", prefix));
}

std::string make_bare_id(size_t length) {
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::array<uint64_t, 2> number = new_number();
  std::string id;
  for (size_t i = 0; i < std::min<size_t>(length, 20); ++i) {
    uint64_t& half = number[i % 2];
    id += kLetters[half % kLetters.size()];
    half /= kLetters.size();
  }
  return id;
}

}  // namespace llmrt::server
