// SipHash against its published vectors (2-4: key 00..0f, message 00..n-1), and as the hash of a container.
#include "core/base/keyed_hash.h"

#include <catch2/catch_test_macros.hpp>

#include <string>

namespace llmrt {
namespace {

TEST_CASE("SipHash-2-4 gives the published values") {
  const HashKey key = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  std::string message;
  for (int i = 0; i < 15; ++i) message += static_cast<char>(i);
  CHECK(siphash("", key, 2, 4) == 0x726fdb47dd0e0e31u);
  CHECK(siphash(message.substr(0, 1), key, 2, 4) == 0x74f839c593dc67fdu);
  CHECK(siphash(message.substr(0, 7), key, 2, 4) == 0xab0200f58b01d137u);
  CHECK(siphash(message.substr(0, 8), key, 2, 4) == 0x93f5f5799a932462u);
  CHECK(siphash(message, key, 2, 4) == 0xa129ca6149be45e5u);
}

TEST_CASE("two keys hash one text differently, one key always the same") {
  CHECK(siphash("text", {1, 2}) != siphash("text", {1, 3}));
  CHECK(siphash("text", {1, 2}) != siphash("text", {3, 2}));
  CHECK(process_hash_key() == process_hash_key());
  CHECK((process_hash_key()[0] | process_hash_key()[1]) != 0);
}

TEST_CASE("a keyed map is searched by views") {
  KeyedMap<int> map;
  map.emplace("a", 1);
  CHECK(map.find(std::string_view("a"))->second == 1);
  CHECK(map.find(std::string_view("b")) == map.end());
}

}  // namespace
}  // namespace llmrt
