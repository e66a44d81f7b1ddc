// Several KV groups in seeded random runs, over a device made of text digests: every key that a token reads and every
// state that a step starts from must be those of the sequence's own text.
#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <map>
#include <random>
#include <set>

#include "kv_rows.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

// What a place holds: in group g, the digest of group and text up to there.
using Content = uint64_t;
Content content_of(uint32_t group, std::span<const int32_t> tokens) {
  Content word = 0;
  const Digest digest = Sha256().add(group).add_all(tokens).finish();
  std::copy_n(digest.begin(), sizeof word, reinterpret_cast<uint8_t*>(&word));
  return word;
}

// Executes plans as a device does, and checks what each token reads.
struct Device {
  struct Pool {
    KvPoolSize shape;
    std::vector<Content> cells, host;
  };
  struct Forward {
    std::vector<std::vector<BlockId>> tables;
    Tokens tokens;
    uint32_t start, end;
    Places places;
  };
  std::vector<Pool> pools;
  std::vector<Forward> forwards;
  std::vector<BlockMove> own_copies;  // group 0's, which the scheduler writes

  Device(std::span<const KvPoolSize> sizes, uint32_t num_host_blocks) {
    for (size_t g = 0; g < sizes.size(); ++g) {
      const size_t cells = sizes[g].kind == CacheKind::kState ? 1 : sizes[g].block_tokens;
      pools.push_back({sizes[g], std::vector<Content>(sizes[g].num_blocks * cells),
                       std::vector<Content>((g == 0 ? num_host_blocks : sizes[g].num_host_blocks) * cells)});
    }
  }

  void move(const BlockMove& move, std::vector<Content> Pool::*from, std::vector<Content> Pool::*to) {
    Pool& pool = pools[move.kv_group];
    const size_t cells = pool.shape.kind == CacheKind::kState ? 1 : pool.shape.block_tokens;
    const size_t used = pool.shape.kind == CacheKind::kState ? 1 : move.num_tokens;
    for (size_t i = 0; i < used; ++i) (pool.*to)[move.target * cells + i] = (pool.*from)[move.source * cells + i];
  }

  void run(const KvSpace& kv) {
    std::map<std::pair<uint32_t, BlockId>, int> targets;
    for (const BlockMove& m : kv.stores()) move(m, &Pool::cells, &Pool::host);
    for (const BlockMove& m : kv.loads()) move(m, &Pool::host, &Pool::cells);
    for (const BlockMove& m : kv.copies()) ++targets[{m.kv_group, m.target}];
    for (const BlockMove& m : kv.loads()) ++targets[{m.kv_group, m.target}];
    for (const auto& [target, count] : targets) REQUIRE(count == 1);
    for (const BlockMove& m : kv.copies()) {
      for (const BlockMove& other : kv.copies())
        REQUIRE_FALSE((other.kv_group == m.kv_group && other.target == m.source));
      move(m, &Pool::cells, &Pool::cells);
    }
    for (const BlockMove& m : own_copies) move(m, &Pool::cells, &Pool::cells);
    own_copies.clear();
    std::set<std::pair<uint32_t, BlockId>> records;
    for (const Forward& forward : forwards)
      for (uint32_t g = 0; g < pools.size(); ++g) read_state(g, forward, &records);
    for (const Forward& forward : forwards)  // all rows write, then all read
      for (uint32_t g = 0; g < pools.size(); ++g) write(g, forward, &records);
    for (const Forward& forward : forwards)
      for (uint32_t g = 0; g < pools.size(); ++g) read(g, forward);
    forwards.clear();
  }

  // Its own record, or one that it begins from and that no row writes.
  void read_state(uint32_t group, const Forward& forward, std::set<std::pair<uint32_t, BlockId>>* records) {
    if (pools[group].shape.kind != CacheKind::kState) return;
    BlockId from = forward.tables[group].at(0);
    for (const RecordPlace& place : forward.places) {
      if (place.kv_group != group || place.position != forward.start) continue;
      from = place.record;
      records->emplace(group, from);
    }
    if (forward.start > 0)
      REQUIRE(pools[group].cells[from] == content_of(group, std::span(forward.tokens).first(forward.start)));
  }
  void write(uint32_t group, const Forward& forward, std::set<std::pair<uint32_t, BlockId>>* records) {
    Pool& pool = pools[group];
    const std::span tokens(forward.tokens);
    if (pool.shape.kind == CacheKind::kState) {
      const auto write_record = [&](BlockId record, uint32_t position) {
        REQUIRE(records->emplace(group, record).second);
        pool.cells[record] = content_of(group, tokens.first(position));
      };
      for (const RecordPlace& place : forward.places)
        if (place.kv_group == group && place.position > forward.start) {
          REQUIRE((place.position <= forward.end && place.position % pool.shape.block_tokens == 0));
          write_record(place.record, place.position);
        }
      write_record(forward.tables[group].at(0), forward.end);
      return;
    }
    for (uint32_t p = forward.start; p < forward.end; ++p)
      pool.cells[cell(group, forward, p)] = content_of(group, tokens.first(p + 1));
  }
  void read(uint32_t group, const Forward& forward) {
    const KvPoolSize& shape = pools[group].shape;
    if (shape.kind == CacheKind::kState) return;
    const uint32_t first = shape.window > 0 && forward.start + 1 > shape.window ? forward.start + 1 - shape.window : 0;
    for (uint32_t p = first; p < forward.end; ++p)
      REQUIRE(pools[group].cells[cell(group, forward, p)] == content_of(group, std::span(forward.tokens).first(p + 1)));
  }
  size_t cell(uint32_t group, const Forward& forward, uint32_t position) const {
    const uint32_t block_tokens = pools[group].shape.block_tokens;
    const BlockId block = forward.tables[group].at(position / block_tokens);
    REQUIRE(block != kNoBlock);
    return size_t{block} * block_tokens + position % block_tokens;
  }
};

struct Run {
  KvSpace kv;
  Device device;
  std::mt19937_64 random;
  std::vector<Row> rows = std::vector<Row>(4);
  uint64_t num_reused = 0, num_saved = 0, num_begun = 0;  // num_begun: with the saved ones

  Run(std::span<const KvPoolSize> sizes, PrefixCacheKind kind, uint32_t num_host_blocks, uint64_t seed)
      : kv(sizes, kind, {num_host_blocks, num_host_blocks == 0 ? 0u : 6u}),
        device(sizes, num_host_blocks),
        random(seed) {}

  // Texts with few beginnings.
  Tokens random_text() {
    Tokens tokens(2 + random() % 30);
    const int32_t kind = static_cast<int32_t>(random() % 3);
    for (uint32_t i = 0; i < tokens.size(); ++i)
      tokens[i] =
          i % 8 == 7 && random() % 4 == 0 ? static_cast<int32_t>(random() % 3) : kind * 100 + static_cast<int32_t>(i);
    return tokens;
  }

  bool fits(const PrefixMatch& match, uint32_t num_tokens) const {
    for (uint32_t g = 0; g < kv.num_groups(); ++g)
      if (kv.blocks_for(g, num_tokens) - std::min(kv.blocks_for(g, num_tokens), kv.num_live(match, g)) + 1 >
          kv.num_free(g))
        return false;
    return true;
  }

  void admit(Row& row) {
    row.tokens = random_text();
    PrefixMatch match = kv.match(kIdentity, std::span(row.tokens).first(row.tokens.size() - 1));
    const Row& other = rows[random() % rows.size()];
    const bool has_run = !other.tables.empty() && other.tables[0].num_tokens == other.computed;
    const bool forks = has_run && random() % 3 == 0;
    if (forks) {
      PrefixMatch held = kv.match(other.tables, other.computed);
      if (held.num_tokens(kv.block_tokens()) > 0) {
        row.tokens.assign(other.tokens.begin(), other.tokens.begin() + held.num_tokens(kv.block_tokens()));
        for (const int32_t token : random_text()) row.tokens.push_back(token);
        match = std::move(held);
      }
    }
    if (!forks) match.drop_partial();
    if (!fits(match, static_cast<uint32_t>(row.tokens.size()))) return;
    row.tables = kv.make_tables(128);
    kv.share(row.tables, match);
    if (!match.host_blocks.empty()) kv.load(row.tables, match);
    row.computed = match.num_tokens(kv.block_tokens());
    num_reused += row.computed;
    if (match.partial_tokens > 0) {
      copies.push_back({&row, match.partial_block, match.partial_tokens});
      kv.pin(match.partial_block);
    }
    kv.keep(row.tables, kIdentity, std::span(row.tokens).first(row.computed - match.partial_tokens));
    if (match.partial_tokens > 0) REQUIRE(kv.grow(row.tables, row.computed + 1));  // before rows that run take it
  }

  struct Copy {
    Row* row;
    BlockId source;
    uint32_t num_tokens;
  };
  std::vector<Copy> copies;

  void plan() {
    for (Row& row : rows) {
      if (row.tables.empty() && random() % 2 == 0) admit(row);
    }
    std::vector<std::pair<Row*, uint32_t>> taken;
    for (Row& row : rows) {
      if (row.tables.empty()) continue;
      const bool must_run = std::ranges::any_of(copies, [&](const Copy& c) { return c.row == &row; });
      if (!must_run && random() % 4 == 0) continue;
      const uint32_t rest = static_cast<uint32_t>(row.tokens.size()) - row.computed;
      const uint32_t count = std::min<uint32_t>(rest, 1 + random() % 9);
      const uint32_t end = std::min(row.computed + count, kv.capacity_tokens(row.tables));
      if (end <= row.computed || !kv.grow(row.tables, end)) {
        REQUIRE_FALSE(must_run);
        continue;
      }
      taken.emplace_back(&row, end);
    }
    for (const auto& [row, end] : taken) {
      const uint32_t start = row->computed;
      for (const Copy& copy : copies) {
        if (copy.row != row) continue;
        const BlockId target = row->tables[0].blocks[(start - 1) / kv.block_tokens()];
        // As the scheduler's own copies: after the loads, before anything is computed.
        device.own_copies.push_back({copy.source, target, 0, copy.num_tokens});
        kv.unpin(copy.source);
      }
      Device::Forward forward{{}, row->tokens, start, end, {}};
      for (const BlockTable& table : row->tables) forward.tables.push_back(table.blocks);
      // As if the last token were still to be drawn, now and then.
      const uint32_t known = random() % 3 == 0 ? end - 1 : end, place = kv.place_tokens();
      const bool saves = place > 0 && random() % 2 == 0, draws = random() % 2 == 0;
      const uint32_t last = saves ? end - end % place : 0, before = last > place ? last - place : 0;
      const CheckpointKind kind = draws ? CheckpointKind::kAnswer : static_cast<CheckpointKind>(random() % 3);
      if (before > start && !draws)
        forward.places = write(kv, *row, end, {before, last}, known, kind);
      else if (last > start)
        forward.places = write(kv, *row, end, {last}, known, kind);
      else
        forward.places = write(kv, *row, end, {}, known);
      num_saved += static_cast<uint64_t>(
          std::ranges::count_if(forward.places, [&](const RecordPlace& p) { return p.position > start; }));
      num_begun += forward.places.size();
      device.forwards.push_back(std::move(forward));
    }
    copies.clear();
    device.run(kv);
    kv.forget_moves();
    for (Row& row : rows)
      if (!row.tables.empty() && (row.computed == row.tokens.size() || random() % 10 == 0)) leave(row);
    check();
  }

  void leave(Row& row) {
    kv.set_worth_storing(row.tables, random() % 3 > 0);
    kv.release(row.tables, random() % 8 == 0);
    if (random() % 40 == 0) {
      const PrefixMatch match = kv.match(kIdentity, row.tokens);
      if (!match.blocks.empty()) kv.forget(kv.root(match.blocks[0]));
    }
    row = {};
  }

  void check() {
    std::vector<KvSpace::Holder> holders;
    for (const Row& row : rows)
      if (!row.tables.empty()) holders.push_back({row.tables, row.computed});
    const Status status = kv.check_books(holders);
    INFO((status ? "" : status.error().message));
    REQUIRE(status.ok());
  }
};

}  // namespace

TEST_CASE("every token reads its own text in all groups") {
  const uint64_t seed = GENERATE(range(1, 13));
  CAPTURE(seed);
  std::mt19937_64 dice(seed);
  const uint32_t window = 3 + dice() % 9;
  const std::vector<KvPoolSize> all[] = {
      {blocks(40, 4), blocks(24, 2, window, 20)},
      {blocks(40, 2), blocks(16, 4, window, 20), states(8, 4, 6)},
      {blocks(48, 4), states(7, 4, 6), blocks(48, 4), blocks(24, 8, window, 10)},
  };
  const PrefixCacheKind kinds[] = {PrefixCacheKind::kRadix, PrefixCacheKind::kHashed, PrefixCacheKind::kOff};
  for (const std::vector<KvPoolSize>& sizes : all) {
    for (const PrefixCacheKind kind : kinds) {
      CAPTURE(sizes.size(), static_cast<int>(kind));
      const bool has_host = kind != PrefixCacheKind::kOff && dice() % 2 == 0;
      Run run(sizes, kind, has_host ? 24 : 0, dice());
      for (int i = 0; i < 400; ++i) run.plan();
      for (Row& row : run.rows)
        if (!row.tables.empty()) run.leave(row);
      run.check();
      for (uint32_t g = 0; g < run.kv.num_groups(); ++g) CHECK(run.kv.num_free(g) == run.kv.num_blocks(g));
      CHECK(run.num_reused > 0);
      const bool keeps_states = kind != PrefixCacheKind::kOff && run.kv.place_tokens() > 0;
      CHECK((run.num_saved > 0) == keeps_states);
      CHECK((run.num_begun > run.num_saved) == keeps_states);
    }
  }
}
