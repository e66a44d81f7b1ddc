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
  REQUIRE(step(kv, a, 4, {4}, /*known=*/3, CheckpointKind::kAnswer).size() == 1);
  CHECK(kv.match(kIdentity, text(4)).num_full() == 0);
  CHECK(kv.num_free(1) == 2);
  CHECK(books(kv, {&a}) == "");
  step(kv, a, 5, {}, 4);
  CHECK(kv.match(kIdentity, text(4)).num_tokens(2) == 4);
  CHECK(kv.num_free(1) == 3);
  // The next one behind the answer takes its place.
  step(kv, a, 8, {8}, 8, CheckpointKind::kAnswer);
  CHECK(kv.num_cached(1) == 1);
  CHECK(kv.match(kIdentity, text(8)).num_tokens(2) == 8);
  CHECK(kv.match(kIdentity, text(7)).num_tokens(2) == 0);
  // A sequence that ends before the token is known takes it along.
  step(kv, a, 12, {12}, 11, CheckpointKind::kAnswer);
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
  step(kv, a, 4, {4}, 4, CheckpointKind::kAnswer);
  begin(kv, b, text(6));
  CHECK(b.computed == 4);
  step(kv, b, 5);
  step(kv, a, 8, {8}, 8, CheckpointKind::kAnswer);
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

namespace {

// A pool whose records are all cached, in their order.
struct Kept {
  explicit Kept(uint32_t num_records) : pool(num_records), checkpoints(num_records) {
    for (BlockId record = 0; record < num_records; ++record) {
      pool.allocate();
      pool.set_keeps_content(record, true);
      pool.release(record);
    }
  }
  void add(BlockId record, uint32_t position, CheckpointKind kind, BlockId parent = kNoBlock, uint32_t num_turns = 0) {
    checkpoints.add(record, {position, parent, kind, num_turns});
  }
  BlockId least() const { return checkpoints.least(pool); }
  // As for a new one behind so many tokens: the record that it got.
  BlockId replace(uint32_t position) {
    const BlockId record = least();
    checkpoints.evict(record);
    checkpoints.remove(record);
    add(record, position, CheckpointKind::kPassage);
    return record;
  }
  BlockPool pool;
  Checkpoints checkpoints;
};

}  // namespace

TEST_CASE("worth is what a checkpoint spares by its uses, and age takes those that are not used any more") {
  Kept kept(3);
  kept.add(0, 640, CheckpointKind::kPassage);
  kept.add(1, 1000, CheckpointKind::kPassage);
  kept.add(2, 640, CheckpointKind::kPrompt);
  CHECK(kept.least() == 0);  // of two equal ones that which nobody has held for longest
  kept.checkpoints.hit(0);
  CHECK(kept.least() == 2);
  kept.checkpoints.hit(2);
  CHECK(kept.least() == 1);
  kept.checkpoints.set_passed(2);
  CHECK(kept.least() == 2);
  kept.checkpoints.hit(2);  // by a second one: whoever goes on behind it, it stays
  kept.checkpoints.set_passed(2);
  CHECK(kept.least() == 1);
  // 1 was used 15 times and then no more: what comes later is worth more in the end.
  for (int i = 0; i < 15; ++i) kept.checkpoints.hit(1);
  int num_evicted = 0;
  for (; kept.least() != 1; ++num_evicted) kept.replace(640);
  CHECK(num_evicted > 20);
  CHECK(num_evicted < 60);
  CHECK(kept.checkpoints.counts().num_hits == 18);
}

TEST_CASE("a checkpoint spares what one before it has spared, when that is gone or passed") {
  Kept kept(3);
  kept.add(0, 1000, CheckpointKind::kPrompt);
  kept.add(1, 1200, CheckpointKind::kPassage, 0);
  kept.add(2, 700, CheckpointKind::kPassage);
  CHECK(kept.least() == 1);
  kept.checkpoints.set_passed(0);
  CHECK(kept.least() == 0);
  CHECK(kept.replace(1100) == 0);
  CHECK(kept.least() == 2);  // 1 spares 1200
  CHECK(kept.replace(1150) == 2);
  CHECK(kept.least() == 0);
  // One that was not passed.
  kept.add(0, 500, CheckpointKind::kShared);
  kept.add(1, 900, CheckpointKind::kPassage, 0);
  kept.add(2, 600, CheckpointKind::kPassage);
  CHECK(kept.least() == 1);
  kept.checkpoints.remove(0);
  kept.add(0, 10'000, CheckpointKind::kShared);
  CHECK(kept.least() == 2);
}

TEST_CASE("a new checkpoint takes no place of one that is worth more, until that is old") {
  Kept kept(1);
  kept.add(0, 1000, CheckpointKind::kPassage, kNoBlock, /*num_turns=*/2);
  CHECK(kept.checkpoints.stays({3100, kNoBlock, CheckpointKind::kPrompt}, 0));
  int num_refused = 0;
  while (!kept.checkpoints.stays({500, kNoBlock, CheckpointKind::kPrompt}, 0)) ++num_refused;
  CHECK(num_refused == 5);
}

TEST_CASE("one behind an answer counts little while its sequence runs, and as much as clients go on from answers") {
  Kept kept(2);
  kept.add(0, 4000, CheckpointKind::kAnswer);
  kept.add(1, 1000, CheckpointKind::kPassage);
  CHECK(kept.least() == 0);
  kept.checkpoints.set_last(0);
  CHECK(kept.least() == 1);
  CHECK_FALSE(kept.checkpoints.answers_go_on());
  kept.add(1, 1000, CheckpointKind::kPrompt);
  for (int i = 0; i < 8; ++i) kept.checkpoints.learn(0, /*is_short=*/false, PathEnd::kLeaf);
  CHECK(kept.checkpoints.answers_go_on());
  for (int i = 0; i < 8; ++i) kept.checkpoints.learn(1, false, PathEnd::kWhole);  // the same prompt again
  for (int i = 0; i < 8; ++i) kept.checkpoints.learn(kNoBlock, true, PathEnd::kParts);
  CHECK(kept.checkpoints.answers_go_on());
  for (int i = 0; i < 8; ++i) kept.checkpoints.learn(1, false, PathEnd::kTurn);
  CHECK_FALSE(kept.checkpoints.answers_go_on());
  for (int i = 0; i < 100; ++i) kept.checkpoints.learn(kNoBlock, true, PathEnd::kTurn);
  kept.checkpoints.set_last(0);
  CHECK(kept.least() == 0);
  for (int i = 0; i < 100; ++i) kept.checkpoints.learn(kNoBlock, true, PathEnd::kLeaf);
  kept.checkpoints.set_last(0);
  CHECK(kept.least() == 1);
}

TEST_CASE("the next turn goes on in its checkpoint where records are scarce") {
  const KvPoolSize sizes[] = {blocks(64, 2), states(3, 4)};
  KvSpace kv(sizes, PrefixCacheKind::kRadix);
  Row other, a, again, b;
  begin(kv, other, text(30, 100));
  step(kv, other, 29, {28}, 29, CheckpointKind::kPrompt);
  kv.release(other.tables);
  begin(kv, a, text(9));
  step(kv, a, 8, {8}, 8, CheckpointKind::kAnswer);
  step(kv, a, 9);
  kv.release(a.tables);
  CHECK(kv.num_cached(1) == 2);
  const BlockId newest = kv.match(kIdentity, text(8)).others[0].parts[0].block;
  Row idle;
  begin(kv, idle, text(3, 200));  // the last empty record
  step(kv, idle, 2);
  const auto begins_in_place = [&](Row& row, const Tokens& tokens) {
    begin(kv, row, tokens);
    CHECK(row.computed == 8);
    return row.tables[1].blocks[0] == newest;
  };
  SECTION("of a text that goes on") {
    Tokens next = text(9);
    for (int32_t token = 300; token < 310; ++token) next.push_back(token);
    CHECK(begins_in_place(b, next));
    CHECK(b.tables[1].source == kNoBlock);
    CHECK(kv.match(kIdentity, text(30, 100)).num_tokens(2) == 28);
    kv.release(b.tables);  // before it has run: it is the checkpoint again
    CHECK(kv.match(kIdentity, text(8)).num_tokens(2) == 8);
    CHECK(kv.num_cached(1) == 2);
  }
  SECTION("not of the same text once more, for which others may come, too") {
    CHECK_FALSE(begins_in_place(again, text(9)));
    CHECK(again.tables[1].source == newest);
    CHECK(kv.match(kIdentity, text(30, 100)).num_tokens(2) == 0);
  }
  SECTION("not where several have begun") {
    kv.release(idle.tables);
    begin(kv, again, text(9));
    step(kv, again, 9);
    kv.release(again.tables);
    begin(kv, idle, text(3, 200));
    step(kv, idle, 2);
    Tokens next = text(9);
    for (int32_t token = 300; token < 310; ++token) next.push_back(token);
    CHECK_FALSE(begins_in_place(b, next));
  }
  kv.forget_moves();
  for (Row* row : {&idle, &again, &b})
    if (!row->tables.empty()) kv.release(row->tables);
  CHECK(books(kv, {}) == "");
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
