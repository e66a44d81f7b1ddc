// Aim: the keys that a prefix cache tells of are what its match finds, whatever has happened to it.
// Method: seeded random runs of a KvSpace beside a set of keys and a map that follows every call; after each step all
// texts of the run are looked up in both.
#include "core/kv/prefix_digests.h"

#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <map>
#include <random>

#include "core/kv/block_index.h"
#include "kv_rows.h"
#include "tests/fakes/memory_blocks.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

// Checks the order of what is told, and keeps what a subscriber would know.
struct Follower final : PrefixListener {
  struct Known {
    Tokens text;  // up to the block's end
    bool on_device = false, on_host = false;
  };
  std::map<Digest, Known> blocks;
  std::map<Digest, Digest> identities;  // of first blocks
  uint64_t num_gone = 0, num_stored = 0;

  void kept(const PrefixBlock& block) override {
    Tokens text;
    if (!block.is_first) {
      const auto parent = blocks.find(block.before);
      REQUIRE(parent != blocks.end());
      REQUIRE(parent->second.on_device);
      text = parent->second.text;
    }
    text.insert(text.end(), block.tokens.begin(), block.tokens.end());
    REQUIRE(block.key == chain_key(block.before, block.tokens));
    Known& known = blocks[block.key];
    REQUIRE_FALSE(known.on_device);
    known.on_device = true;
    known.text = text;
  }
  void stored(const Digest& key) override {
    Known& known = blocks[key];
    REQUIRE_FALSE(known.on_host);
    known.on_host = true;
    ++num_stored;
  }
  void gone(PrefixTier tier, const Digest& key) override {
    const auto it = blocks.find(key);
    REQUIRE(it != blocks.end());
    bool& is_there = tier == PrefixTier::kDevice ? it->second.on_device : it->second.on_host;
    REQUIRE(is_there);
    is_there = false;
    if (!it->second.on_device && !it->second.on_host) blocks.erase(it);
    ++num_gone;
  }
};

struct KeyedRun {
  Follower follower;
  PrefixDigests digests;
  MemoryBlocks disk;
  KvSpace kv;
  std::mt19937_64 random;
  std::vector<Row> rows = std::vector<Row>(4);
  std::vector<Digest> row_identities = std::vector<Digest>(4);
  std::vector<std::pair<Digest, Tokens>> texts;  // all that were ever asked for
  const Digest identities[2] = {kIdentity, Sha256().add_text("another").finish()};

  KeyedRun(std::span<const KvPoolSize> sizes, PrefixCacheKind kind, uint32_t num_host_blocks, bool has_disk,
           uint64_t seed)
      : kv(sizes, kind, {num_host_blocks, num_host_blocks == 0 ? 0u : 6u}, has_disk ? &disk : nullptr), random(seed) {
    kv.listen(&follower);
    kv.listen(&digests);
  }

  Tokens random_text() {
    Tokens tokens(2 + random() % 40);
    const int32_t kind = static_cast<int32_t>(random() % 3);
    for (uint32_t i = 0; i < tokens.size(); ++i)
      tokens[i] =
          i % 8 == 7 && random() % 4 == 0 ? static_cast<int32_t>(random() % 3) : kind * 100 + static_cast<int32_t>(i);
    return tokens;
  }

  void admit(size_t idx) {
    Row& row = rows[idx];
    const Digest& identity = row_identities[idx] = identities[random() % 4 == 0];
    row.tokens = random_text();
    texts.emplace_back(identity, row.tokens);
    const auto num_tokens = static_cast<uint32_t>(row.tokens.size());
    const auto known = std::span(row.tokens).first(num_tokens - 1);
    if (kv.has_disk() && random() % 2 == 0) kv.read_from_disk(identity, known);
    PrefixMatch match = kv.match(identity, known);
    match.drop_partial();
    for (uint32_t g = 0; g < kv.num_groups(); ++g)
      if (kv.blocks_for(g, num_tokens) + 1 > kv.num_free(g) + kv.num_live(match, g)) return;
    row.tables = kv.make_tables(128);
    kv.share(row.tables, match);
    if (!match.host_blocks.empty()) kv.load(row.tables, match);
    row.computed = match.num_tokens(kv.block_tokens());
    kv.keep(row.tables, identity, std::span(row.tokens).first(row.computed), true);
  }

  void step() {
    if (kv.has_disk()) kv.poll_disk();
    for (size_t i = 0; i < rows.size(); ++i)
      if (rows[i].tables.empty() && random() % 2 == 0) admit(i);
    for (size_t i = 0; i < rows.size(); ++i) {
      Row& row = rows[i];
      const auto num_tokens = static_cast<uint32_t>(row.tokens.size());
      if (row.tables.empty() || row.computed == num_tokens) continue;
      const uint32_t end = std::min(
          {num_tokens, static_cast<uint32_t>(row.computed + 1 + random() % 9), kv.capacity_tokens(row.tables)});
      if (end <= row.computed || !kv.grow(row.tables, end)) continue;
      Places places;
      kv.begin_states(row.tables, row.computed, &places);
      const uint32_t place = kv.place_tokens(), last = place > 0 ? end - end % place : 0;
      const bool saves = last > row.computed;
      row.computed = end;
      kv.keep(row.tables, row_identities[i], std::span(row.tokens).first(end), true);
      if (saves) kv.save_states(row.tables, last, CheckpointKind::kPassage, &places);
      kv.advance(row.tables, end);
    }
    if (kv.has_disk()) kv.save(2);
    kv.forget_moves();
    kv.step_is_complete();
    disk.work(random() % 4);
    for (Row& row : rows)
      if (!row.tables.empty() && (row.computed == row.tokens.size() || random() % 10 == 0)) leave(row);
    if (random() % 60 == 0) {
      const auto& [identity, tokens] = texts[random() % texts.size()];
      const PrefixMatch match = kv.match(identity, tokens);
      if (!match.blocks.empty()) kv.forget(kv.root(match.blocks[0]));
    }
    check();
  }

  void leave(Row& row) {
    kv.set_worth_storing(row.tables, random() % 3 > 0);
    kv.release(row.tables, random() % 8 == 0);
    row = {};
  }

  // What match finds, without what other groups lack, is what keys say, from the first block on.
  void check() {
    const uint32_t block_tokens = kv.block_tokens();
    for (size_t i = texts.size() > 40 ? texts.size() - 40 : 0; i < texts.size(); ++i) {
      const auto& [identity, tokens] = texts[i];
      uint32_t num_known = 0;
      Digest key = identity;
      for (; (num_known + 1) * block_tokens <= tokens.size(); ++num_known) {
        key = chain_key(key, std::span(tokens).subspan(num_known * block_tokens, block_tokens));
        REQUIRE(digests.contains(key) == follower.blocks.contains(key));
        if (!digests.contains(key)) break;
      }
      REQUIRE(kv.match(identity, tokens).num_path == num_known);
    }
    REQUIRE(digests.size() == follower.blocks.size());
    // Nothing is told of that could not be found: there are no more blocks on the device than the pool keeps.
    const auto num_on_device = std::ranges::count_if(follower.blocks, [](const auto& b) { return b.second.on_device; });
    REQUIRE(num_on_device <= kv.num_blocks(0));
  }
};

}  // namespace

TEST_CASE("a set of keys has what match finds, after any steps, evictions, moves and texts that are forgotten") {
  const uint64_t seed = GENERATE(range(1, 13));
  CAPTURE(seed);
  std::mt19937_64 dice(seed);
  const std::vector<KvPoolSize> all[] = {
      {blocks(24, 4)},
      {blocks(40, 4), blocks(24, 2, 3 + dice() % 9, 20)},
      {blocks(48, 4), states(7, 4, 6), blocks(48, 4, 0, 10)},
  };
  for (const std::vector<KvPoolSize>& sizes : all) {
    for (const PrefixCacheKind kind : {PrefixCacheKind::kRadix, PrefixCacheKind::kHashed}) {
      const uint32_t num_host_blocks = dice() % 3 == 0 ? 0 : 12;
      const bool has_disk = num_host_blocks > 0 && dice() % 2 == 0;
      CAPTURE(sizes.size(), static_cast<int>(kind), num_host_blocks, has_disk);
      KeyedRun run(sizes, kind, num_host_blocks, has_disk, dice());
      for (int i = 0; i < 300; ++i) run.step();
      CHECK(run.follower.num_gone > 50);
      CHECK((run.follower.num_stored > 0) == (num_host_blocks > 0));
      CHECK(run.digests.size() > 5);
    }
  }
}

TEST_CASE("a listener changes nothing of a run, and a radix cache has keys for it without a host tier") {
  const KvPoolSize size = blocks(4, 2);
  KvSpace kv({&size, 1}, PrefixCacheKind::kRadix);
  PrefixDigests digests;
  kv.listen(&digests);
  Row row;
  begin(kv, row, text(6));
  step(kv, row, 6);
  Digest key = kIdentity;
  for (int i = 0; i < 3; ++i) {
    key = chain_key(key, text(2, 1 + 2 * i));
    CHECK(digests.contains(key));
  }
  CHECK(digests.size() == 3);
  kv.release(row.tables);
  CHECK(digests.size() == 3);
  Row other;
  begin(kv, other, text(4, 50));
  step(kv, other, 4);
  CHECK_FALSE(digests.contains(key));  // the end of the text went for it
  CHECK(digests.size() == 4);
  kv.release(other.tables, /*forget=*/true);
  CHECK(digests.size() == 2);
}

TEST_CASE("a short key is the first 64 bits, in the order in which digests are written") {
  Digest key = {};
  key[0] = 1;
  key[7] = 2;
  CHECK(short_key(key) == 0x0100000000000002u);
}
