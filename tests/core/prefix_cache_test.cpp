// Both prefix caches, alone and over a pool. Method: trees by hand; then seeded random calls beside a model that keeps
// every block's whole text and looks through all of them.
#include "core/kv/prefix_cache.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <random>

#include "core/kv/kv_space.h"

using namespace llmrt;
using enum PrefixCacheKind;

namespace {

using Tokens = std::vector<int32_t>;

constexpr uint32_t kBlockTokens = 3;
const Digest kIdentity = Sha256().add_text("one").finish();
const Digest kOther = Sha256().add_text("another").finish();

uint32_t common_tokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// Every block's identity and the whole text up to its end.
struct Model {
  struct Entry {
    Digest identity;
    Tokens text;
  };
  std::map<BlockId, Entry> entries;

  BlockId find(const Digest& identity, std::span<const int32_t> text) const {
    for (const auto& [block, entry] : entries)
      if (entry.identity == identity && std::ranges::equal(entry.text, text)) return block;
    return kNoBlock;
  }
  bool has_children(BlockId block) const {
    const Entry& parent = entries.at(block);
    return std::ranges::any_of(entries, [&](const auto& item) {
      const Entry& entry = item.second;
      return entry.identity == parent.identity && entry.text.size() == parent.text.size() + kBlockTokens &&
             common_tokens(entry.text, parent.text) == parent.text.size();
    });
  }
  void check(const PrefixMatch& match, const Digest& identity, std::span<const int32_t> tokens, bool partial) const {
    size_t num_full = 0;
    for (; (num_full + 1) * kBlockTokens <= tokens.size(); ++num_full) {
      const BlockId block = find(identity, tokens.first((num_full + 1) * kBlockTokens));
      if (block == kNoBlock) break;
      REQUIRE(match.blocks.size() > num_full);
      REQUIRE(match.blocks[num_full] == block);
    }
    REQUIRE(match.blocks.size() == num_full);
    uint32_t most = 0;
    for (const auto& [block, entry] : entries) {
      if (!partial || entry.identity != identity || entry.text.size() != (num_full + 1) * kBlockTokens) continue;
      const uint32_t common = common_tokens(entry.text, tokens);
      if (common <= num_full * kBlockTokens) continue;
      most = std::max<uint32_t>(most, common - static_cast<uint32_t>(num_full) * kBlockTokens);
      if (block == match.partial_block) REQUIRE(common == num_full * kBlockTokens + match.partial_tokens);
    }
    REQUIRE(match.partial_tokens == most);
    REQUIRE((match.partial_block == kNoBlock) == (most == 0));
  }
};

Tokens random_tokens(size_t size, std::mt19937& random) {
  Tokens tokens(size);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 2);
  return tokens;
}

}  // namespace

TEST_CASE("the tree finds full blocks, then the common part of the next one") {
  const auto cache = make_prefix_cache(kRadix, {8, 4});
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(cache->match(kIdentity, text).num_tokens(4) == 0);
  CHECK(cache->insert(kIdentity, kNoBlock, std::span(text).first(4), 6) == 6);
  CHECK(cache->insert(kIdentity, 6, std::span(text).last(4), 2) == 2);
  CHECK(cache->insert(kIdentity, 6, Tokens{5, 6, 9, 9}, 3) == 3);

  PrefixMatch match = cache->match(kIdentity, text);
  CHECK(match.blocks == std::vector<BlockId>{6, 2});
  CHECK(match.partial_tokens == 0);
  match = cache->match(kIdentity, Tokens{1, 2, 3, 4, 5, 6, 9, 8, 1});
  CHECK(match.blocks == std::vector<BlockId>{6});
  CHECK(match.partial_block == 3);
  CHECK(match.partial_tokens == 3);
  match = cache->match(kIdentity, std::span(text).first(7));  // one token is left: the last block is no full hit
  CHECK(match.blocks == std::vector<BlockId>{6});
  CHECK(match.partial_block == 2);
  CHECK(match.partial_tokens == 3);
  CHECK(cache->match(kIdentity, Tokens{1, 2}).num_tokens(4) == 2);
  CHECK(cache->match(kIdentity, Tokens{2, 2}).num_tokens(4) == 0);
  CHECK(cache->match(kOther, text).num_tokens(4) == 0);
}

TEST_CASE("the block that was there first stands for its tokens") {
  const PrefixCacheKind kind = GENERATE(kRadix, kHashed);
  const auto cache = make_prefix_cache(kind, {4, 2});
  CHECK(cache->insert(kIdentity, kNoBlock, Tokens{1, 2}, 0) == 0);
  CHECK(cache->insert(kIdentity, kNoBlock, Tokens{1, 2}, 1) == 0);
  CHECK(cache->insert(kOther, kNoBlock, Tokens{1, 2}, 1) == 1);
  CHECK_FALSE(cache->contains(2));
  CHECK(cache->size() == 2);
  cache->erase(0);
  CHECK(cache->match(kIdentity, Tokens{1, 2}).blocks.empty());
  CHECK(cache->match(kOther, Tokens{1, 2}).blocks == std::vector<BlockId>{1});
}

TEST_CASE("random inserts, erases and matches agree with a look through all texts") {
  const PrefixCacheKind kind = GENERATE(kRadix, kHashed);
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed, static_cast<int>(kind));
  std::mt19937 random(seed);
  constexpr uint32_t kBlocks = 40;
  const auto cache = make_prefix_cache(kind, {kBlocks, kBlockTokens});
  Model model;
  for (int step = 0; step < 6000; ++step) {
    const BlockId block = random() % kBlocks;
    const auto there = model.entries.find(block);
    if (there != model.entries.end() && random() % 2 == 0) {
      if (model.has_children(block)) {
        if (kind == kRadix) REQUIRE(cache->has_children(block));
      } else {
        cache->erase(block);
        model.entries.erase(block);
      }
    } else if (there == model.entries.end()) {
      const BlockId parent = random() % kBlocks;
      const bool is_first = !model.entries.contains(parent);
      Model::Entry entry = is_first ? Model::Entry{random() % 2 ? kIdentity : kOther, {}} : model.entries[parent];
      const Tokens tokens = random_tokens(kBlockTokens, random);
      entry.text.insert(entry.text.end(), tokens.begin(), tokens.end());
      const BlockId found = model.find(entry.identity, entry.text);
      const BlockId kept = cache->insert(entry.identity, is_first ? kNoBlock : parent, tokens, block);
      REQUIRE(kept == (found == kNoBlock ? block : found));
      if (kept == block) model.entries[block] = entry;
    }
    const Tokens tokens = random_tokens(random() % 12, random);
    model.check(cache->match(kIdentity, tokens), kIdentity, tokens, kind == kRadix);
    REQUIRE(cache->size() == model.entries.size());
    REQUIRE(cache->contains(block) == model.entries.contains(block));
    const Status status = cache->check();
    REQUIRE(status.ok());
  }
}

namespace {

// One sequence over a KvSpace that writes as the device would, and what each place of the pool then holds.
struct Writer {
  Tokens tokens;
  std::vector<BlockTable> tables;
  const Digest* identity = &kIdentity;
  bool is_forgotten = false;  // since it began
};

// What a place holds: everything that its keys depend on.
struct Cell {
  Digest identity;
  Tokens text;
  bool is_forgotten = false;
  bool operator==(const Cell&) const = default;
};

class Pool {
 public:
  Pool(PrefixCacheKind kind, uint32_t num_blocks)
      : kv(std::vector<KvPoolSize>{{num_blocks, kBlockTokens}}, kind), cells(num_blocks * kBlockTokens) {}

  // Runs the tokens as far as the pool allows; false when it has no room.
  bool run(Writer& writer, Tokens tokens) {
    writer.tokens = std::move(tokens);
    writer.tables = kv.make_tables(64);
    writer.is_forgotten = false;
    const PrefixMatch match = kv.match(*writer.identity, std::span(writer.tokens).first(writer.tokens.size() - 1));
    kv.share(writer.tables, match);
    uint32_t computed = static_cast<uint32_t>(match.blocks.size()) * kBlockTokens;
    for (uint32_t p = 0; p < computed; ++p) REQUIRE(cells[place(writer, p)] == expected(writer, p));
    if (match.partial_tokens > 0) {
      for (uint32_t i = 0; i < match.partial_tokens; ++i) {
        REQUIRE(cells[match.partial_block * kBlockTokens + i] == expected(writer, computed + i));
      }
    }
    num_hit += computed + match.partial_tokens;
    return extend(writer, computed, static_cast<uint32_t>(writer.tokens.size()));
  }
  bool extend(Writer& writer, uint32_t begin, uint32_t end) {
    if (!kv.grow(writer.tables, end)) return false;
    for (uint32_t p = begin; p < end; ++p) {
      REQUIRE(p / kBlockTokens >= writer.tables[0].num_cached);  // shared blocks are not written
      if (p % kBlockTokens == 0)
        std::fill_n(cells.begin() + static_cast<ptrdiff_t>(place(writer, p)), kBlockTokens, Cell());
      cells[place(writer, p)] = expected(writer, p);
      cells[place(writer, p)].is_forgotten = writer.is_forgotten;
    }
    kv.keep(writer.tables, *writer.identity, std::span(writer.tokens).first(end));
    return true;
  }
  size_t place(const Writer& writer, uint32_t position) const {
    return writer.tables[0].blocks[position / kBlockTokens] * kBlockTokens + position % kBlockTokens;
  }
  Cell expected(const Writer& writer, uint32_t position) const {
    return {*writer.identity, Tokens(writer.tokens.begin(), writer.tokens.begin() + position + 1), false};
  }

  // All that begins as this writer does, whoever holds it.
  void forget(const Writer& writer, std::span<Writer> writers) {
    if (kv.root(writer.tables) == 0) return;
    const auto begins_alike = [&](const Digest& identity, std::span<const int32_t> text) {
      return identity == *writer.identity && text.size() >= kBlockTokens &&
             common_tokens(text, writer.tokens) >= kBlockTokens;
    };
    const uint64_t root = kv.root(writer.tables);
    for (size_t i = 0; i < cells.size(); ++i) {  // also the first places of such a block
      const Cell& last = cells[i / kBlockTokens * kBlockTokens + kBlockTokens - 1];
      if (begins_alike(last.identity, last.text)) cells[i].is_forgotten = true;
    }
    for (Writer& other : writers)
      if (begins_alike(*other.identity, other.tokens)) other.is_forgotten = true;
    kv.forget(root);
  }

  KvSpace kv;
  std::vector<Cell> cells;
  uint64_t num_hit = 0;
};

}  // namespace

TEST_CASE("freed blocks stay matchable until overwritten, the end of a text is lost before its beginning") {
  const PrefixCacheKind kind = GENERATE(kRadix, kHashed);
  Pool pool(kind, 6);
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  Writer a, b, c;
  REQUIRE(pool.run(a, text));
  pool.kv.release(a.tables);
  CHECK(pool.kv.num_free(0) == 6);
  CHECK(pool.kv.num_cached(0) == 3);
  CHECK(pool.kv.match(kIdentity, text).blocks.size() == 3);
  REQUIRE(pool.run(b, {10, 11, 12, 13, 14, 15, 16, 17, 18}));  // the three that hold nothing
  CHECK(pool.kv.match(kIdentity, text).blocks.size() == 3);
  REQUIRE(pool.run(c, {20, 21, 22}));
  CHECK(pool.kv.match(kIdentity, text).blocks.size() == 2);
  pool.kv.release(b.tables);
  pool.kv.release(c.tables);
  CHECK(pool.kv.num_free(0) == 6);
  CHECK(pool.kv.num_cached(0) == 6);
}

TEST_CASE("what was used last is lost last") {
  Pool pool(GENERATE(kRadix, kHashed), 4);
  Writer writer;
  for (const Tokens& text : {Tokens{1, 1, 1, 0}, Tokens{2, 2, 2, 0}, Tokens{1, 1, 1, 3}}) {
    REQUIRE(pool.run(writer, text));
    pool.kv.release(writer.tables);
  }
  CHECK(pool.num_hit == 3);
  REQUIRE(pool.run(writer, {3, 3, 3, 4, 4, 4, 5, 5, 5}));
  CHECK(pool.kv.match(kIdentity, Tokens{2, 2, 2}).blocks.empty());
  CHECK(pool.kv.match(kIdentity, Tokens{1, 1, 1}).blocks.size() == 1);
}

TEST_CASE("two that compute the same end up in one block, and the device is told") {
  Pool pool(GENERATE(kRadix, kHashed), 8);
  Writer a, b;
  a.tokens = b.tokens = {1, 2, 3, 4, 5, 6};
  for (Writer* writer : {&a, &b}) {  // neither finds the other
    writer->tables = pool.kv.make_tables(6);
    REQUIRE(pool.kv.grow(writer->tables, 6));
    writer->tables[0].num_sent = 2;
  }
  CHECK(pool.kv.num_free(0) == 4);
  REQUIRE(pool.extend(a, 0, 6));
  REQUIRE(pool.extend(b, 0, 6));
  CHECK(a.tables[0].blocks == b.tables[0].blocks);
  CHECK(a.tables[0].num_sent == 2);
  CHECK(b.tables[0].num_sent == 0);
  CHECK(pool.kv.num_free(0) == 6);
  const KvSpace::Holder both[] = {{a.tables, 6}, {b.tables, 6}};
  CHECK(pool.kv.check_books(both).ok());
}

TEST_CASE("what cannot be trusted is forgotten, but for what others hold") {
  Pool pool(GENERATE(kRadix, kHashed), 8);
  Writer a, b;
  REQUIRE(pool.run(a, {1, 1, 1, 2, 2, 2}));
  REQUIRE(pool.run(b, {1, 1, 1, 3, 3, 3}));
  pool.kv.release(b.tables, /*forget=*/true);
  CHECK(pool.kv.match(kIdentity, Tokens{1, 1, 1, 3, 3, 3}).blocks.size() == 1);
  pool.kv.release(a.tables, /*forget=*/true);
  CHECK(pool.kv.num_cached(0) == 0);
  CHECK(pool.kv.num_free(0) == 8);
  CHECK(pool.kv.check_books({}).ok());
}

TEST_CASE("what begins like a text that cannot be trusted goes at once, and where it is held, when it is let go") {
  Pool pool(GENERATE(kRadix, kHashed), 12);
  std::array<Writer, 4> writers;
  auto& [spoilt, child, other, again] = writers;
  REQUIRE(pool.run(spoilt, {1, 1, 1, 2, 2, 2}));
  REQUIRE(pool.run(child, {1, 1, 1, 3, 3, 3}));
  REQUIRE(pool.run(other, {4, 4, 4, 3, 3, 3}));
  pool.kv.release(child.tables);
  pool.kv.release(other.tables);
  CHECK(pool.kv.num_cached(0) == 3);
  CHECK(pool.kv.match(spoilt.tables, 6).blocks.size() == 2);
  pool.forget(spoilt, writers);
  CHECK(pool.kv.match(spoilt.tables, 6).num_tokens(kBlockTokens) == 0);
  CHECK(pool.kv.num_cached(0) == 2);
  CHECK(pool.kv.match(kIdentity, Tokens{1, 1, 1, 3, 3, 3}).num_tokens(kBlockTokens) == 0);
  CHECK(pool.kv.match(kIdentity, Tokens{4, 4, 4, 3, 3, 3}).blocks.size() == 2);

  // The same text is computed anew, beside what is still held and still grows.
  REQUIRE(pool.run(again, {1, 1, 1, 2, 2, 2}));
  for (const int32_t token : {5, 5, 5}) {
    spoilt.tokens.push_back(token);
    const uint32_t size = static_cast<uint32_t>(spoilt.tokens.size());
    REQUIRE(pool.extend(spoilt, size - 1, size));
  }
  CHECK(pool.kv.match(kIdentity, spoilt.tokens).blocks == again.tables[0].blocks);
  const KvSpace::Holder both[] = {{spoilt.tables, 9}, {again.tables, 6}};
  CHECK(pool.kv.check_books(both).ok());
  pool.kv.release(spoilt.tables);
  CHECK(pool.kv.num_cached(0) == 2);
  CHECK(pool.kv.num_free(0) == 10);
  pool.kv.release(again.tables);
  CHECK(pool.kv.num_cached(0) == 4);
  CHECK(pool.kv.check_books({}).ok());
}

TEST_CASE("whatever sequences do, a hit holds what was computed for these tokens, and the books balance") {
  const PrefixCacheKind kind = GENERATE(kRadix, kHashed);
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed, static_cast<int>(kind));
  std::mt19937 random(seed);
  Pool pool(kind, 24);
  std::vector<Writer> writers(6);
  for (int step = 0; step < 4000; ++step) {
    Writer& writer = writers[random() % writers.size()];
    const bool runs = !writer.tables.empty() && !writer.tables[0].blocks.empty();
    if (!runs) {
      writer.identity = random() % 4 ? &kIdentity : &kOther;
      if (!pool.run(writer, random_tokens(1 + random() % 14, random))) pool.kv.release(writer.tables);
    } else if (random() % 16 == 0) {
      pool.forget(writer, writers);
    } else if (random() % 2 == 0) {
      pool.kv.release(writer.tables, random() % 8 == 0);
    } else if (writer.tokens.size() < 20) {
      const uint32_t size = static_cast<uint32_t>(writer.tokens.size());
      writer.tokens.push_back(static_cast<int32_t>(random() % 2));
      if (!pool.extend(writer, size, size + 1)) pool.kv.release(writer.tables);
    }
    std::vector<KvSpace::Holder> holders;
    for (const Writer& each : writers)
      if (!each.tables.empty()) holders.push_back({each.tables, static_cast<uint32_t>(each.tokens.size())});
    const Status books = pool.kv.check_books(holders);
    INFO((books.ok() ? "" : books.error().message));
    REQUIRE(books.ok());
  }
  CHECK(pool.num_hit > 1000);
  for (Writer& writer : writers)
    if (!writer.tables.empty()) pool.kv.release(writer.tables);
  CHECK(pool.kv.num_free(0) == 24);
}
