// Books of several KV groups, by hand: windows, states, and prefix hits, branches, the host tier and the audit where
// groups differ.
#include <algorithm>
#include <map>

#include "kv_rows.h"

using namespace llmrt;
using namespace llmrt::test;

TEST_CASE("blocks behind the window go while the sequence runs") {
  const KvPoolSize sizes[] = {blocks(16, 2), blocks(4, 2, 5)};
  KvSpace kv(sizes);
  CHECK(kv.can_hold(32));  // 5 positions lie in at most 3 blocks of 2
  CHECK(kv.blocks_for(1, 4) == 2);
  CHECK(kv.blocks_for(1, 100) == 3);
  CHECK(kv.entries_for(1, 31) == 16);
  Row row;
  row.tables = kv.make_tables(64);
  row.tokens = text(40);
  for (uint32_t end = 1; end <= 32; ++end) {
    step(kv, row, end);
    // The next token, at position `end`, sees the positions from end - 4 on.
    const uint32_t first = end < 5 ? 0 : (end - 4) / 2;
    CHECK(row.tables[1].first == first);
    CHECK(row.tables[1].blocks.size() == (end + 1) / 2);
    CHECK(kv.num_free(1) == 4 - ((end + 1) / 2 - first));
    CHECK(books(kv, {&row}) == "");
  }
  CHECK(kv.capacity_tokens(row.tables) == 32);  // of group 0
  CHECK_FALSE(kv.grow(row.tables, 33));
  kv.release(row.tables);
  CHECK(kv.num_free(0) == 16);
  CHECK(kv.num_free(1) == 4);
}

TEST_CASE("blocks behind the window stay until the step that reads them is complete") {
  const KvPoolSize sizes[] = {blocks(16, 2), blocks(8, 2, 3)};
  KvSpace kv(sizes);
  Row row;
  row.tables = kv.make_tables(64);
  row.tokens = text(16);
  REQUIRE(kv.grow(row.tables, 12));
  write(kv, row, 12);
  CHECK(kv.num_free(1) == 2);
  kv.forget_moves();
  CHECK(kv.num_free(1) == 7);
  CHECK(row.tables[1].num_sent == 5);  // nothing before is worth sending
}

TEST_CASE("a prefix hit needs the blocks inside the window alone") {
  const KvPoolSize sizes[] = {blocks(16, 2), blocks(7, 2, 4)};
  KvSpace kv(sizes, PrefixCacheKind::kRadix);
  Row a, b;
  begin(kv, a, text(9));
  for (uint32_t end = 1; end <= 8; ++end) step(kv, a, end);
  CHECK(a.tables[1].first == 2);
  CHECK(kv.num_cached(1) == 2);
  const PrefixMatch match = kv.match(kIdentity, text(8));
  REQUIRE(match.blocks.size() == 4);
  CHECK(match.others[0].first_entry == 2);
  REQUIRE(match.others[0].parts.size() == 2);
  CHECK(match.others[0].parts[0].block == a.tables[1].blocks[2]);
  CHECK(kv.num_live(match, 0) == 4);
  CHECK(kv.num_live(match, 1) == 2);
  begin(kv, b, text(9));
  CHECK(b.computed == 8);
  CHECK(b.tables[1].blocks == std::vector<BlockId>{kNoBlock, kNoBlock, a.tables[1].blocks[2], a.tables[1].blocks[3]});
  CHECK(b.tables[1].num_sent == 2);
  CHECK(books(kv, {&a, &b}) == "");
  // What lies behind the window has not gone yet: a hit that ends there may use it.
  CHECK(kv.match(kIdentity, text(4)).blocks.size() == 2);
  kv.release(a.tables);
  kv.release(b.tables);
  // Others take the free blocks and the one that was let go first, the beginning of the text.
  Row c;
  begin(kv, c, text(9, 100));
  REQUIRE(kv.grow(c.tables, 8));
  CHECK(kv.match(kIdentity, text(8)).blocks.size() == 4);
  CHECK(kv.match(kIdentity, text(4)).blocks.empty());  // group 0 has its blocks still
  CHECK(kv.match(kIdentity, text(2)).blocks.empty());
  CHECK(books(kv, {&c}) == "");
}

TEST_CASE("groups of other block sizes meet at common places") {
  for (const auto& [leading, other] : {std::pair{2u, 6u}, {6u, 2u}}) {
    const KvPoolSize sizes[] = {blocks(16, leading), blocks(16, other)};
    KvSpace kv(sizes, PrefixCacheKind::kHashed);
    Row a, b;
    begin(kv, a, text(17));
    step(kv, a, 16);
    CHECK(kv.match(kIdentity, text(16)).num_tokens(leading) == 12);
    CHECK(kv.match(kIdentity, text(11)).num_tokens(leading) == 6);
    CHECK(kv.match(kIdentity, text(5)).num_tokens(leading) == 0);
    begin(kv, b, text(17));
    CHECK(b.computed == 12);
    CHECK(std::equal(b.tables[1].blocks.begin(), b.tables[1].blocks.end(), a.tables[1].blocks.begin()));
    step(kv, b, 16);
    CHECK(books(kv, {&a, &b}) == "");
    kv.release(a.tables);
    kv.release(b.tables);
    CHECK(kv.num_free(1) == 16);
    CHECK(books(kv, {}) == "");
  }
}

TEST_CASE("a branch copies the state and what is full in part, where they stand still") {
  const KvPoolSize sizes[] = {blocks(16, 4), blocks(16, 2, 6), states(4, 4)};
  for (const PrefixCacheKind kind : {PrefixCacheKind::kOff, PrefixCacheKind::kRadix}) {
    KvSpace kv(sizes, kind);
    Row a;
    begin(kv, a, text(12));
    step(kv, a, 11);
    CHECK(kv.match(a.tables, 10).num_tokens(4) == 0);  // the state has gone on
    const PrefixMatch match = kv.match(a.tables, 11);
    CHECK(match.num_tokens(4) == 11);
    CHECK(match.partial_block == a.tables[0].blocks[2]);
    std::vector<BlockTable> branch = kv.make_tables(64);
    kv.share(branch, match);
    CHECK(branch[1].first == 3);
    CHECK(kv.match(branch, 11).num_tokens(4) == 0);             // what is still copied to cannot be copied from
    using Copies = std::vector<std::pair<uint32_t, uint32_t>>;  // group, tokens
    Copies copies;
    for (const BlockMove& copy : kv.copies()) copies.emplace_back(copy.kv_group, copy.num_tokens);
    // With a cache only what stands beside a full block of group 0 is shared: not positions 8 and 9.
    CHECK(copies == (kind == PrefixCacheKind::kOff ? Copies{{1, 1}, {2, 4}} : Copies{{1, 2}, {1, 1}, {2, 4}}));
    kv.forget_moves();
    REQUIRE(kv.grow(branch, 11));
    const KvSpace::Holder both[] = {{a.tables, 11}, {branch, 11}};
    const Status status = kv.check_books(both);
    CHECK((status ? "" : status.error().message) == "");
    kv.release(branch);
    kv.release(a.tables);
    CHECK(kv.num_free(1) == 16);
    CHECK(kv.num_free(2) == 4);
  }
}

TEST_CASE("windows and states go to the host with the blocks they stand beside, and come back") {
  const KvPoolSize sizes[] = {blocks(4, 2), blocks(4, 2, 4, 8), states(3, 4, 4)};
  KvSpace kv(sizes, PrefixCacheKind::kRadix, {.num_blocks = 8, .stores_max = 16});
  Row a, b, c;
  begin(kv, a, text(9));
  step(kv, a, 8, {4});
  kv.set_worth_storing(a.tables, true);
  kv.release(a.tables);  // and a checkpoint behind 8
  begin(kv, b, text(9, 50));
  REQUIRE(kv.grow(b.tables, 8));
  std::map<uint32_t, int> stores;
  for (const BlockMove& store : kv.stores()) ++stores[store.kv_group];
  CHECK(stores[0] == 4);
  CHECK(stores[1] == 4);
  CHECK(stores[2] == 2);
  write(kv, b, 8);
  kv.forget_moves();
  kv.release(b.tables, /*forget=*/true);
  CHECK(books(kv, {}) == "");

  begin(kv, c, text(9));
  CHECK(c.computed == 8);
  std::map<uint32_t, int> loads;
  for (const BlockMove& load : kv.loads()) ++loads[load.kv_group];
  CHECK(loads[0] == 4);
  CHECK(loads[1] == 2);  // inside the window
  CHECK(loads[2] == 1);
  CHECK(kv.copies().empty());
  kv.forget_moves();
  CHECK(books(kv, {&c}) == "");
  kv.release(c.tables);
  kv.forget(kv.root(kv.match(kIdentity, text(8)).blocks[0]));
  CHECK(kv.match(kIdentity, text(8)).num_full() == 0);
  CHECK(kv.num_cached(1) == 0);
  CHECK(kv.num_cached(2) == 0);
  CHECK(books(kv, {}) == "");
}

TEST_CASE("an audit tells what is wrong in which group") {
  const KvPoolSize sizes[] = {blocks(8, 2), blocks(8, 2, 4), states(3, 2)};
  KvSpace kv(sizes, PrefixCacheKind::kRadix);
  Row a;
  begin(kv, a, text(9));
  step(kv, a, 8);
  REQUIRE(books(kv, {&a}) == "");
  Row wrong = a;
  std::swap(wrong.tables[2].blocks[0], wrong.tables[1].blocks[3]);
  CHECK(books(kv, {&wrong}) != "");
  wrong = a;
  wrong.tables[1].first = 3;
  CHECK(books(kv, {&wrong}) == "books: group 1: a table begins at entry 3, expected at most 2");
  wrong = a;
  wrong.tables[1].blocks[3] = kNoBlock;
  CHECK(books(kv, {&wrong}) == "books: group 1: entry 3 of a table that begins at 2");
  wrong = a;
  wrong.tables[2].blocks.clear();
  CHECK(books(kv, {&wrong}) == "books: group 2: a sequence has 0 states");
  CHECK(books(kv, {&a, &a}) != "");  // a state in two tables
}
