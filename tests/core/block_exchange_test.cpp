// Aim: blocks come through an exchange as they were given, only to engines of their layout, for the tokens that they
// stand for, and within its bound.
// Method: ports of an exchange, small blocks; random calls against a map.
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>
#include <thread>

#include "core/disk/block_exchange.h"

namespace llmrt {
namespace {

struct Memory {
  explicit Memory(uint8_t value = 0)
      : first(24, std::byte{value}), second(8, std::byte{static_cast<uint8_t>(~value)}) {}
  std::vector<std::span<std::byte>> parts() { return {std::span(first), std::span(second)}; }
  bool operator==(const Memory&) const = default;
  std::vector<std::byte> first, second;
};
constexpr uint64_t kBytes = 32;

DiskBlock named(uint32_t number, uint32_t kv_group = 0) {
  DiskBlock block;
  block.kv_group = kv_group;
  block.key = Sha256().add(number).finish();
  block.tokens = {static_cast<int32_t>(number), 7};
  block.root = number % 3;
  return block;
}

Digest layout(uint32_t number) {
  return Sha256().add_text("layout").add(number).finish();
}

}  // namespace

TEST_CASE("a block is found by engines of its layout, for its tokens, as it was given") {
  BlockExchange exchange(1 << 20);
  const auto giver = exchange.port(layout(1)), taker = exchange.port(layout(1)), other = exchange.port(layout(2));
  Memory given(5), taken;
  giver->put(named(1), given.parts());
  CHECK(taker->contains(named(1).key));
  CHECK_FALSE(other->contains(named(1).key));
  CHECK_FALSE(other->get(named(1), taken.parts()));
  REQUIRE(taker->get(named(1), taken.parts()));
  CHECK(taken == given);

  DiskBlock wrong = named(1);
  wrong.tokens[0] = 99;
  CHECK_FALSE(taker->get(wrong, taken.parts()));
  wrong = named(1, /*kv_group=*/1);
  CHECK_FALSE(taker->get(wrong, taken.parts()));
  CHECK_FALSE(taker->get(named(1), std::vector{std::span(taken.first)}));  // of another size
  CHECK(exchange.stats().num_missed == 4);

  taker->erase(named(1).key);
  CHECK_FALSE(giver->contains(named(1).key));
  CHECK(exchange.stats().bytes_used == 0);
}

TEST_CASE("the bound is kept: what was unused for longest goes, and what is larger than it never comes") {
  BlockExchange exchange(3 * kBytes);
  const auto port = exchange.port(layout(1));
  Memory memory(1);
  for (uint32_t i = 0; i < 3; ++i) port->put(named(i), memory.parts());
  REQUIRE(port->get(named(0), memory.parts()));
  port->put(named(3), memory.parts());
  CHECK(port->contains(named(0).key));
  CHECK_FALSE(port->contains(named(1).key));
  CHECK(exchange.stats().bytes_used == 3 * kBytes);
  CHECK(exchange.stats().num_evicted == 1);
  BlockExchange small(kBytes - 1);
  const auto none = small.port(layout(1));
  none->put(named(1), memory.parts());
  CHECK_FALSE(none->contains(named(1).key));
  CHECK(small.stats().bytes_used == 0);
}

TEST_CASE("random calls of an exchange against a map") {
  std::mt19937 rng(std::random_device{}());
  BlockExchange exchange(1 << 20);
  const auto port = exchange.port(layout(1));
  std::map<uint32_t, uint8_t> right;
  for (int i = 0; i < 3000; ++i) {
    const uint32_t number = rng() % 40;
    const auto value = static_cast<uint8_t>(rng());
    switch (rng() % 8) {
      case 0:
        port->erase(named(number).key);
        right.erase(number);
        break;
      case 1:
        if (rng() % 8 > 0) break;
        port->forget(number % 3);
        std::erase_if(right, [&](const auto& entry) { return entry.first % 3 == number % 3; });
        break;
      case 2:
      case 3:
      case 4: {
        Memory memory(value);
        port->put(named(number), memory.parts());
        right.try_emplace(number, value);
        break;
      }
      default: {
        Memory memory;
        const bool found = port->get(named(number), memory.parts());
        REQUIRE(found == right.contains(number));
        if (found) REQUIRE(memory == Memory(right.at(number)));
      }
    }
    REQUIRE(port->contains(named(number).key) == right.contains(number));
    REQUIRE(exchange.stats().bytes_used == right.size() * kBytes);
    REQUIRE(exchange.stats().blocks == right.size());
  }
}

TEST_CASE("givers and takers of an exchange on threads of their own") {
  BlockExchange exchange(20 * kBytes);
  std::vector<std::thread> threads;
  std::atomic<bool> is_right = true;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&exchange, &is_right, t] {
      const auto port = exchange.port(layout(1));
      for (uint32_t i = 0; i < 2000; ++i) {
        const uint32_t number = (i * 7 + t) % 50;
        Memory given(static_cast<uint8_t>(number)), taken;
        port->put(named(number), given.parts());
        if (port->get(named(number), taken.parts()) && taken != given) is_right = false;
        if (i % 97 == 0) port->forget(i % 3);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(is_right);
  CHECK(exchange.stats().bytes_used == exchange.stats().blocks * kBytes);
  CHECK(exchange.stats().bytes_used <= 20 * kBytes);
}

}  // namespace llmrt
