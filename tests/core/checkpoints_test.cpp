// Checkpoints of states in the books, by hand: kept in the node's place and nowhere else, begun from without a copy,
// given up by worth.
#include "core/kv/checkpoints.h"

#include "kv_rows.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

bool is_place(const RecordPlace& place, BlockId record, uint32_t position) {
  return place.kv_group == 1 && place.record == record && place.position == position;
}

}  // namespace

TEST_CASE("a sequence has one state, and a hit begins from a checkpoint that stays") {
  const KvPoolSize sizes[] = {blocks(16, 2), states(5, 4)};
  KvSpace kv(sizes, PrefixCacheKind::kRadix);
  CHECK(kv.is_state(1));
  CHECK(kv.place_tokens() == 4);
  CHECK(kv.blocks_for(1, 100) == 1);
  Row a, b, c;
  begin(kv, a, text(11));
  REQUIRE(kv.grow(a.tables, 10));
  const Places saved = write(kv, a, 10, {4});
  REQUIRE(saved.size() == 1);
  CHECK(saved[0].position == 4);
  CHECK(saved[0].record != a.tables[1].blocks[0]);
  CHECK(kv.match(kIdentity, text(10)).num_full() == 0);  // not before the step that writes it is complete
  kv.forget_moves();
  CHECK(kv.num_cached(1) == 1);
  CHECK(kv.match(kIdentity, text(10)).num_tokens(2) == 4);
  CHECK(kv.match(kIdentity, text(10)).num_path == 5);
  CHECK(kv.match(kIdentity, text(3)).num_tokens(2) == 0);
  CHECK(books(kv, {&a}) == "");

  // Two rows of a step read it, each has a record of its own, and nothing is copied.
  begin(kv, b, text(11));
  begin(kv, c, text(11));
  CHECK(b.computed == 4);
  CHECK(kv.copies().empty());
  CHECK(kv.num_free(1) == 1);
  CHECK(kv.match(b.tables, 4).num_full() == 0);  // its own record is empty yet
  for (Row* row : {&b, &c}) {
    REQUIRE(kv.grow(row->tables, 6));
    const Places places = write(kv, *row, 6);
    REQUIRE(places.size() == 1);
    CHECK(is_place(places[0], saved[0].record, 4));
    CHECK(row->tables[1].blocks[0] != saved[0].record);
  }
  CHECK(kv.num_cached(1) == 0);  // held while the step reads it
  kv.forget_moves();
  CHECK(kv.num_cached(1) == 1);
  CHECK(kv.checkpoint_counts(1).num_kept == 1);
  CHECK(kv.checkpoint_counts(1).num_hits == 2);
  CHECK(books(kv, {&a, &b, &c}) == "");
  kv.release(a.tables);  // its state stands where none may be kept
  kv.release(b.tables);
  CHECK(kv.num_cached(1) == 1);
  step(kv, c, 8);
  kv.release(c.tables);  // and this one's where one may
  CHECK(kv.num_cached(1) == 2);
  CHECK(kv.match(kIdentity, text(10)).num_tokens(2) == 8);
  CHECK(books(kv, {}) == "");
}

TEST_CASE("the last record of a pool goes on itself") {
  const KvPoolSize sizes[] = {blocks(16, 2), states(2, 2)};
  KvSpace kv(sizes, PrefixCacheKind::kRadix);
  Row a, b, c;
  begin(kv, a, text(3));
  step(kv, a, 2);
  kv.release(a.tables);  // its state is the checkpoint
  begin(kv, c, text(3, 50));
  step(kv, c, 1);
  CHECK(kv.num_free(1) == 1);
  const BlockId checkpoint = kv.match(kIdentity, text(2)).others[0].parts[0].block;
  begin(kv, b, text(3));
  CHECK(b.computed == 2);
  CHECK(b.tables[1].blocks[0] == checkpoint);
  CHECK(kv.match(kIdentity, text(2)).num_full() == 0);
  REQUIRE(kv.grow(b.tables, 3));
  CHECK(write(kv, b, 3).empty());
  kv.forget_moves();
  CHECK(books(kv, {&b, &c}) == "");
}

TEST_CASE("a sequence that goes before its first step gives back what it would have begun from") {
  const KvPoolSize sizes[] = {blocks(16, 2), states(3, 2)};
  KvSpace kv(sizes, PrefixCacheKind::kRadix);
  Row a, b;
  begin(kv, a, text(3));
  step(kv, a, 2);
  kv.release(a.tables);
  begin(kv, b, text(3));
  CHECK(kv.num_free(1) == 1);
  kv.release(b.tables);
  CHECK(kv.num_free(1) == 3);
  CHECK(kv.num_cached(1) == 1);
  kv.forget_moves();
  CHECK(books(kv, {}) == "");
}

TEST_CASE("a checkpoint whose last token is still to be drawn is found when that is known") {
  const KvPoolSize sizes[] = {blocks(16, 2), states(4, 4)};
  KvSpace kv(sizes, PrefixCacheKind::kRadix);
  Row a;
  begin(kv, a, text(20));
  REQUIRE(step(kv, a, 4, {4}, /*known=*/3, /*is_answer=*/true).size() == 1);
  CHECK(kv.match(kIdentity, text(4)).num_full() == 0);
  CHECK(kv.num_free(1) == 2);
  CHECK(books(kv, {&a}) == "");
  step(kv, a, 5, {}, 4);
  CHECK(kv.match(kIdentity, text(4)).num_tokens(2) == 4);
  CHECK(kv.num_free(1) == 3);
  // The next one behind the answer takes its place.
  step(kv, a, 8, {8}, 8, true);
  CHECK(kv.num_cached(1) == 1);
  CHECK(kv.match(kIdentity, text(8)).num_tokens(2) == 8);
  CHECK(kv.match(kIdentity, text(7)).num_tokens(2) == 0);
  // A sequence that ends before the token is known takes it along.
  step(kv, a, 12, {12}, 11, true);
  CHECK(books(kv, {&a}) == "");
  kv.release(a.tables);
  CHECK(kv.num_free(1) == 4);
  CHECK(kv.match(kIdentity, text(12)).num_tokens(2) == 0);  // 8 has given way to it
  CHECK(books(kv, {}) == "");
}

TEST_CASE("one that others have begun from stays behind the answer") {
  const KvPoolSize sizes[] = {blocks(16, 2), states(5, 4)};
  KvSpace kv(sizes, PrefixCacheKind::kRadix);
  Row a, b;
  begin(kv, a, text(20));
  step(kv, a, 4, {4}, 4, true);
  begin(kv, b, text(6));
  CHECK(b.computed == 4);
  step(kv, b, 5);
  step(kv, a, 8, {8}, 8, true);
  CHECK(kv.num_cached(1) == 2);
  kv.release(a.tables);
  kv.release(b.tables);
  CHECK(kv.match(kIdentity, text(5)).num_tokens(2) == 4);
  CHECK(books(kv, {}) == "");
}

TEST_CASE("a checkpoint is made once, in all groups of states or in none, and none is taken from a row") {
  const KvPoolSize sizes[] = {blocks(16, 2), states(3, 2), states(4, 4)};
  KvSpace kv(sizes, PrefixCacheKind::kRadix);
  CHECK(kv.place_tokens() == 4);
  Row a, b;
  begin(kv, a, text(12));
  begin(kv, b, text(12));
  REQUIRE(kv.grow(a.tables, 9));
  REQUIRE(kv.grow(b.tables, 9));
  CHECK(write(kv, a, 9, {4}).size() == 2);
  CHECK(write(kv, b, 9, {4}).empty());  // the other one's step makes it
  kv.forget_moves();
  CHECK(step(kv, a, 10, {6}).empty());  // no place of all groups
  CHECK(kv.num_cached(1) == 1);
  CHECK(kv.num_cached(2) == 1);
  CHECK(books(kv, {&a, &b}) == "");
  Row c;
  begin(kv, c, text(12, 50));
  REQUIRE(kv.grow(c.tables, 9));  // group 1's last record: the checkpoint goes
  CHECK(kv.num_cached(1) == 0);
  CHECK(kv.match(kIdentity, text(11)).num_full() == 0);
  CHECK(write(kv, c, 9, {8}).empty());  // group 1 has none left
  kv.forget_moves();
  CHECK(kv.num_free(2) == 1);
  CHECK(kv.checkpoint_counts(1).num_evicted == 1);
  CHECK(books(kv, {&a, &b, &c}) == "");
}

TEST_CASE("the checkpoint that spares least goes first, and its node keeps its blocks") {
  const KvPoolSize sizes[] = {blocks(64, 2), states(3, 2)};
  KvSpace kv(sizes, PrefixCacheKind::kRadix);
  Row a;
  begin(kv, a, text(32));
  step(kv, a, 31, {20, 30});  // 30 spares 10 tokens, 20 twice as many
  kv.release(a.tables);
  CHECK(kv.match(kIdentity, text(31)).num_tokens(2) == 30);
  Row b;
  begin(kv, b, text(32, 100));
  step(kv, b, 31, {24});
  CHECK(kv.num_cached(1) == 2);
  const PrefixMatch match = kv.match(kIdentity, text(31));
  CHECK(match.num_tokens(2) == 20);
  CHECK(match.num_path == 15);
  CHECK(kv.checkpoint_counts(1).num_evicted == 1);
  CHECK(books(kv, {&b}) == "");
}

TEST_CASE("worth is what a checkpoint spares by its uses, and age takes those that are not used any more") {
  BlockPool pool(4);
  Checkpoints checkpoints(4);
  for (BlockId record = 0; record < 3; ++record) {
    pool.allocate();
    pool.set_keeps_content(record, true);
    pool.release(record);
  }
  checkpoints.add(0, 640, false);
  checkpoints.add(1, 1000, false);
  checkpoints.add(2, 640, true);
  CHECK(checkpoints.least(pool) == 0);  // of two equal ones that which nobody has held for longest
  checkpoints.hit(0);
  CHECK(checkpoints.least(pool) == 2);
  checkpoints.hit(2);
  CHECK(checkpoints.least(pool) == 1);
  checkpoints.set_passed(2);
  CHECK(checkpoints.least(pool) == 2);
  CHECK_FALSE(checkpoints.is_used(2));
  // 1 was used 15 times and then no more: what comes later is worth more in the end.
  for (int i = 0; i < 15; ++i) checkpoints.hit(1);
  int num_evicted = 0;
  for (; checkpoints.least(pool) != 1; ++num_evicted) {
    const BlockId least = checkpoints.least(pool);
    checkpoints.evict(least);
    checkpoints.add(least, 640, false);
  }
  CHECK(num_evicted > 20);
  CHECK(num_evicted < 60);
  CHECK(checkpoints.counts().num_hits == 17);
}

TEST_CASE("nothing of a text that is forgotten becomes a checkpoint") {
  const KvPoolSize sizes[] = {blocks(16, 2), states(4, 2)};
  KvSpace kv(sizes, PrefixCacheKind::kRadix);
  Row a;
  begin(kv, a, text(12));
  step(kv, a, 4, {4});
  kv.forget(kv.root(a.tables));
  CHECK(step(kv, a, 6, {6}).empty());
  kv.release(a.tables);
  CHECK(kv.num_cached(1) == 0);
  CHECK(kv.num_free(1) == 4);
  CHECK(books(kv, {}) == "");
}
