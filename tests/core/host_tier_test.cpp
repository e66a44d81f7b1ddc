// The host tier's books: by hand, then seeded random calls beside a model that keeps texts and the order of use. Then
// below a pool: what is given up is stored, and comes back.
#include "core/kv/host_tier.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <list>
#include <map>
#include <random>

#include "core/kv/kv_space.h"

using namespace llmrt;

namespace {

using Tokens = std::vector<int32_t>;
constexpr uint32_t kBlockTokens = 2;

Digest key_of(const Tokens& tokens) {
  return chain_key(Digest(), tokens);
}

}  // namespace

TEST_CASE("the host tier stores each content once and gives up the longest unused") {
  HostTier tier({2, kBlockTokens});
  const Tokens a = {1, 1}, b = {2, 2}, c = {3, 3};
  const BlockId block_a = tier.insert(key_of(a), a), block_b = tier.insert(key_of(b), b);
  CHECK(block_a != block_b);
  CHECK(tier.find(key_of(a), a) == block_a);
  CHECK(tier.find(key_of(a), b) == kNoBlock);    // a key that stands for other tokens is no hit
  CHECK(tier.insert(key_of(c), c) == kNoBlock);  // both are the targets of this step's stores
  tier.let_go_all();
  CHECK(tier.insert(key_of(a), a) == kNoBlock);  // there already, and now the last used
  CHECK(tier.insert(key_of(c), c) == block_b);
  CHECK(tier.find(key_of(b), b) == kNoBlock);
  tier.let_go_all();
  tier.hold(block_a);
  tier.hold(block_a);  // two loads of one block
  const Tokens d = {4, 4}, e = {5, 5};
  CHECK(tier.insert(key_of(d), d) == block_b);
  CHECK(tier.insert(key_of(e), e) == kNoBlock);
  CHECK(tier.check().ok());
  tier.erase(key_of(a), a);  // held: whoever reads it knows
  CHECK(tier.find(key_of(a), a) == block_a);
  tier.let_go_all();
  tier.erase(key_of(a), a);
  CHECK(tier.find(key_of(a), a) == kNoBlock);
  CHECK(tier.num_used() == 1);
  CHECK(tier.check().ok());
}

TEST_CASE("the host tier agrees with a list in order of use") {
  constexpr uint32_t kBlocks = 5;
  std::mt19937_64 random(7);
  HostTier tier({kBlocks, kBlockTokens});
  std::list<int32_t> by_use;  // the last used at the back
  std::vector<int32_t> held;
  std::map<int32_t, BlockId> places;
  const auto use = [&](int32_t text) {
    by_use.remove(text);
    by_use.push_back(text);
  };
  for (int step = 0; step < 20'000; ++step) {
    const int32_t text = static_cast<int32_t>(random() % 12);
    const Tokens tokens = {text, text};
    const bool known = places.contains(text);
    REQUIRE(tier.find(key_of(tokens), tokens) == (known ? places.at(text) : kNoBlock));
    switch (random() % 4) {
      case 0: {
        const bool full = places.size() == kBlocks;
        const auto oldest =
            std::ranges::find_if(by_use, [&](int32_t other) { return std::ranges::count(held, other) == 0; });
        const BlockId block = tier.insert(key_of(tokens), tokens);
        if (known) {
          REQUIRE(block == kNoBlock);
          if (std::ranges::count(held, text) == 0) use(text);
        } else if (full && oldest == by_use.end()) {
          REQUIRE(block == kNoBlock);
        } else {
          REQUIRE(block != kNoBlock);
          if (full) {
            REQUIRE(block == places.at(*oldest));
            places.erase(*oldest);
            by_use.erase(oldest);
          }
          places[text] = block;
          held.push_back(text);
          use(text);
        }
        break;
      }
      case 1:
        if (!known) break;
        tier.hold(places.at(text));
        held.push_back(text);
        break;
      case 2:
        if (random() % 4 != 0) break;
        tier.let_go_all();
        // Each when it is let go for the last time.
        for (size_t i = 0; i < held.size(); ++i)
          if (std::find(held.begin() + static_cast<ptrdiff_t>(i) + 1, held.end(), held[i]) == held.end()) use(held[i]);
        held.clear();
        break;
      default:
        tier.erase(key_of(tokens), tokens);
        if (!known || std::ranges::count(held, text) > 0) break;
        places.erase(text);
        by_use.remove(text);
    }
    REQUIRE(tier.num_used() == places.size());
    REQUIRE(tier.check().ok());
  }
}

TEST_CASE("what a pool gives up is stored when it is worth it, and is found again") {
  const KvPoolSize size{4, kBlockTokens};
  const Digest identity = Sha256().add_text("one").finish();
  KvSpace kv({&size, 1}, PrefixCacheKind::kRadix, {.num_blocks = 8, .stores_max = 8});
  const Tokens first = {1, 2, 3, 4, 5, 6}, second = {7, 8, 9, 10};

  // Blocks are handed out again, the end of the text first; each is stored in that moment.
  auto tables = kv.make_tables(8);
  REQUIRE(kv.grow(tables, 6));
  kv.keep(tables, identity, first);
  kv.set_worth_storing(tables, true);
  kv.release(tables);
  CHECK(kv.stores().empty());
  REQUIRE(kv.grow(tables, 6));
  CHECK(kv.stores().size() == 2);
  CHECK(kv.match(identity, first).blocks.size() == 1);
  CHECK(kv.match(identity, first).host_blocks.size() == 2);
  kv.forget_moves();

  // Not worth it: it is lost.
  kv.keep(tables, identity, second);
  kv.set_worth_storing(tables, false);
  kv.release(tables);
  REQUIRE(kv.grow(tables, 8));
  CHECK(kv.match(identity, second).num_full() == 0);
  CHECK(kv.match(identity, first).host_blocks.size() == 3);
  kv.release(tables);
  kv.forget_moves();

  // Loaded blocks follow those that are shared, and are known again.
  const PrefixMatch match = kv.match(identity, first);
  kv.share(tables, match);
  kv.load(tables, match);
  CHECK(kv.loads().size() == 3);
  CHECK(tables[0].blocks.size() == 3);
  kv.keep(tables, identity, first);
  CHECK(kv.match(identity, first).blocks == tables[0].blocks);
  const KvSpace::Holder holder{tables, 6};
  CHECK(kv.check_books({&holder, 1}).ok());
  kv.forget_moves();

  // Given up again, they need not be stored again.
  kv.set_worth_storing(tables, true);
  kv.release(tables);
  REQUIRE(kv.grow(tables, 8));
  CHECK(kv.stores().empty());
  CHECK(kv.match(identity, first).host_blocks.size() == 3);
}

TEST_CASE("content that cannot be trusted is forgotten in both tiers") {
  const KvPoolSize size{2, kBlockTokens};
  const Digest identity = {};
  KvSpace kv({&size, 1}, PrefixCacheKind::kHashed, {.num_blocks = 8, .stores_max = 8});
  const Tokens text = {1, 2, 3, 4};
  auto tables = kv.make_tables(4);
  REQUIRE(kv.grow(tables, 4));
  kv.keep(tables, identity, text);
  kv.set_worth_storing(tables, true);
  kv.release(tables);
  REQUIRE(kv.grow(tables, 4));
  kv.release(tables);
  kv.forget_moves();
  const PrefixMatch match = kv.match(identity, text);
  REQUIRE(match.host_blocks.size() == 2);
  kv.load(tables, match);
  kv.keep(tables, identity, text);
  kv.forget_moves();
  kv.release(tables, /*forget=*/true);
  CHECK(kv.match(identity, text).num_full() == 0);
}

TEST_CASE("whatever stands behind a root is forgotten in the host tier too") {
  const KvPoolSize size{3, kBlockTokens};
  const Digest identity = {};
  KvSpace kv({&size, 1}, GENERATE(PrefixCacheKind::kRadix, PrefixCacheKind::kHashed),
             {.num_blocks = 8, .stores_max = 8});
  const Tokens one = {1, 2, 3, 4, 5, 6}, two = {1, 2, 7, 8}, other = {9, 9, 9, 9};
  auto tables = kv.make_tables(6);
  uint64_t root = 0;
  for (const Tokens& text : {one, two, other}) {
    REQUIRE(kv.grow(tables, static_cast<uint32_t>(text.size())));
    kv.keep(tables, identity, text);
    kv.set_worth_storing(tables, true);
    if (root == 0) root = kv.root(tables);
    kv.release(tables);
    REQUIRE(kv.grow(tables, 6));  // all of it goes to the host
    kv.release(tables);
    kv.forget_moves();
  }
  CHECK(kv.host()->num_used() == 6);
  CHECK(kv.match(identity, two).host_blocks.size() == 2);
  kv.forget(root);
  CHECK(kv.host()->num_used() == 2);
  CHECK(kv.match(identity, one).num_full() == 0);
  CHECK(kv.match(identity, other).host_blocks.size() == 2);

  // The first block is there again: what once stood behind it is not.
  REQUIRE(kv.grow(tables, 2));
  kv.keep(tables, identity, std::span(one).first(2));
  CHECK(kv.match(identity, one).num_full() == 1);
  CHECK(kv.match(identity, two).num_full() == 1);
  kv.release(tables);
  CHECK(kv.check_books({}).ok());
}

TEST_CASE("a step stores no more than its inputs hold") {
  const KvPoolSize size{4, kBlockTokens};
  KvSpace kv({&size, 1}, PrefixCacheKind::kRadix, {.num_blocks = 8, .stores_max = 2});
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8};
  auto tables = kv.make_tables(8);
  REQUIRE(kv.grow(tables, 8));
  kv.keep(tables, Digest(), text);
  kv.set_worth_storing(tables, true);
  kv.release(tables);
  REQUIRE(kv.grow(tables, 8));
  CHECK(kv.stores().size() == 2);
}
