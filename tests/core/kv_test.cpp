// The books of the KV pool. Method: small pools by hand, then a seeded run of random calls beside a plain model.
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>

#include "core/kv/kv_space.h"

using namespace llmrt;

TEST_CASE("a pool hands out every block once, in order, and takes them back") {
  BlockPool pool(4);
  for (BlockId expected = 0; expected < 4; ++expected) CHECK(pool.allocate() == expected);
  CHECK(pool.num_free() == 0);
  for (BlockId block = 4; block-- > 0;) pool.release(block);
  CHECK(pool.num_free() == 4);
  CHECK(pool.check_books(std::vector<uint32_t>(4, 0)).ok());
  CHECK(pool.allocate() == 0);  // freed last, so handed out first
}

TEST_CASE("a block is free when its last holder lets go") {
  BlockPool pool(2);
  const BlockId block = pool.allocate();
  pool.retain(block);
  pool.release(block);
  CHECK(pool.num_free() == 1);
  CHECK(pool.references(block) == 1);
  pool.release(block);
  CHECK(pool.num_free() == 2);
}

TEST_CASE("books that disagree with the tables are told, not survived in silence") {
  BlockPool pool(2);
  const BlockId block = pool.allocate();
  std::vector<uint32_t> counted(2, 0);
  const Status leak = pool.check_books(counted);  // a block that no table holds
  REQUIRE_FALSE(leak.ok());
  CHECK(leak.error().message == "books: block 0: expected 0 references (tables), found 1");
  counted[block] = 1;
  CHECK(pool.check_books(counted).ok());
  counted[1] = 1;  // a table that holds a free block
  CHECK_FALSE(pool.check_books(counted).ok());
}

TEST_CASE("random allocations, retains and releases agree with a plain map") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  constexpr uint32_t kBlocks = 37;
  BlockPool pool(kBlocks);
  std::vector<uint32_t> references(kBlocks, 0);
  for (int step = 0; step < 20000; ++step) {
    const BlockId block = random() % kBlocks;
    const uint32_t what = random() % 3;
    if (what == 0 && pool.num_free() > 0) {
      const BlockId got = pool.allocate();
      REQUIRE(references[got] == 0);
      references[got] = 1;
    } else if (what == 1 && references[block] > 0) {
      pool.retain(block);
      ++references[block];
    } else if (what == 2 && references[block] > 0) {
      pool.release(block);
      --references[block];
    }
    REQUIRE(pool.check_books(references).ok());
  }
}

TEST_CASE("8 sequences of 257 tokens leave nothing behind") {
  const KvPoolSize size = {8 * 17, 16};
  KvSpace kv({&size, 1});
  std::vector<std::vector<BlockTable>> sequences(8);
  for (auto& tables : sequences) tables = kv.make_tables(257);
  for (uint32_t tokens = 1; tokens <= 257; ++tokens) {
    for (auto& tables : sequences) REQUIRE(kv.grow(tables, tokens));
  }
  CHECK(kv.num_free(0) == 0);
  for (auto& tables : sequences) CHECK(tables[0].blocks.size() == 17);
  for (auto& tables : sequences) kv.release(tables);
  CHECK(kv.num_free(0) == kv.num_blocks(0));
  CHECK(kv.check_books({}).ok());  // the references sum to 0
}

TEST_CASE("tables may begin with the full blocks of others, and what is still written is in one table") {
  const KvPoolSize size = {8, 16};
  KvSpace kv({&size, 1});
  auto a = kv.make_tables(100), b = kv.make_tables(100);
  REQUIRE(kv.grow(a, 40));
  const PrefixMatch match = kv.match(a, 37);
  CHECK(match.blocks == std::vector<BlockId>(a[0].blocks.begin(), a[0].blocks.begin() + 2));
  CHECK(match.partial_block == a[0].blocks[2]);
  CHECK(match.partial_tokens == 5);
  CHECK(kv.match(a, 32).partial_tokens == 0);
  kv.share(b, match);
  REQUIRE(kv.grow(b, 38));
  CHECK(kv.num_free(0) == 4);
  const KvSpace::Holder both[] = {{a, 40}, {b, 38}};
  CHECK(kv.check_books(both).ok());
  const KvSpace::Holder too_early[] = {{a, 40}, {b, 30}};  // b would write to a shared block
  CHECK(kv.check_books(too_early).error().message == "books: block 1: it is in 2 tables and not full");
  kv.release(a);
  CHECK(kv.num_free(0) == 5);  // b holds the first two still
  kv.release(b);
  CHECK(kv.num_free(0) == 8);
}

TEST_CASE("a sequence grows in all groups or in none") {
  const KvPoolSize sizes[] = {{8, 16}, {2, 16}};
  KvSpace kv(sizes);
  auto tables = kv.make_tables(64);
  CHECK(kv.capacity_tokens(tables) == 32);
  CHECK_FALSE(kv.grow(tables, 33));
  CHECK(kv.num_free(0) == 8);
  CHECK(kv.num_free(1) == 2);
  CHECK(kv.grow(tables, 32));
  CHECK(kv.num_free(0) == 6);
  CHECK(kv.num_free(1) == 0);
}
