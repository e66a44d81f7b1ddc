// What a sequence begins with and what it leaves. Blocks of 4 tokens; texts are numbers from 0 up.
#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "core/schedule/prefixes.h"
#include "schedule_parts.h"

using namespace llmrt;

namespace {

SchedulerConfig config_with(PrefixCacheKind cache) {
  SchedulerConfig config;
  config.kv_pools = {{8, 4}};
  config.prefix_cache = cache;
  return config;
}

struct Room {
  explicit Room(PrefixCacheKind cache = PrefixCacheKind::kRadix) : config(config_with(cache)) {}

  std::unique_ptr<Sequence> text(RequestId id, uint32_t num_tokens, std::string salt = {}) {
    Request request = test::request_of(id, num_tokens);
    std::iota(request.prompt.begin(), request.prompt.end(), 0);
    request.cache_salt = std::move(salt);
    auto sequence = test::sequence_of(std::move(request));
    prefixes.set_origin(*sequence);
    return sequence;
  }
  void compute(Sequence& sequence, uint32_t num_tokens) {
    if (!sequence.runs()) test::make_resident(sequence, 0, 1);
    REQUIRE(kv.grow(sequence.residency.tables, num_tokens));
    sequence.progress.computed = num_tokens;
    prefixes.keep_filled(sequence);
  }

  SchedulerConfig config;
  KvSpace kv{config.kv_pools, config.prefix_cache};
  Prefixes prefixes{config, kv};
};

}  // namespace

TEST_CASE("a text begins with the whole blocks that another has computed, and its last token is never among them") {
  Room room;
  const auto first = room.text(1, 8), longer = room.text(2, 11), same = room.text(3, 8);
  room.compute(*first, 8);
  CHECK(room.prefixes.look_up(*longer, {}).num_tokens(4) == 8);
  CHECK(longer->found.is_known);
  CHECK(longer->found.prefix_blocks == 2);
  CHECK(room.prefixes.look_up(*same, {}).num_tokens(4) == 4);  // without a salt no part of the second block
}

TEST_CASE("a block is there for others when its last token is computed and known, and not before") {
  Room room;
  const auto first = room.text(1, 8), asks = room.text(2, 16);
  room.compute(*first, 7);
  CHECK(room.prefixes.look_up(*asks, {}).num_tokens(4) == 4);
  room.compute(*first, 8);
  CHECK(room.prefixes.look_up(*asks, {}).num_tokens(4) == 8);
  room.compute(*first, 12);  // of tokens that are in flight
  CHECK(room.prefixes.look_up(*asks, {}).num_tokens(4) == 8);
}

TEST_CASE("parts of blocks are shared only within one salt, and another salt or adapter shares nothing") {
  Room room;
  const auto first = room.text(1, 8, "s"), same_salt = room.text(2, 8, "s"), other_salt = room.text(3, 8, "t");
  room.compute(*first, 8);
  const PrefixMatch match = room.prefixes.look_up(*same_salt, {});
  CHECK(match.num_tokens(4) == 7);
  CHECK(match.partial_tokens == 3);
  CHECK(room.prefixes.look_up(*other_salt, {}).num_tokens(4) == 0);
  Request request = test::request_of(4, 8);
  request.adapter_id = 1;
  request.cache_salt = std::string("s");
  Sequence adapted(std::move(request));
  adapted.tokens = first->tokens;
  room.prefixes.set_origin(adapted);
  CHECK(adapted.request.cache_salt.empty());  // it is in the identity now
  CHECK(adapted.origin.identity != first->origin.identity);
}

TEST_CASE(
    "what lies before an adapter's invocation is the model's own, what begins there is the adapter's from there on") {
  for (const PrefixCacheKind cache : {PrefixCacheKind::kRadix, PrefixCacheKind::kHashed}) {
    CAPTURE(static_cast<int>(cache));
    Room room(cache);
    const auto text = [&](RequestId id, uint32_t adapter_id, std::optional<uint32_t> start, float scale = 1) {
      Request request = test::request_of(id, 16);
      std::iota(request.prompt.begin(), request.prompt.end(), 0);
      request.adapter_id = adapter_id;
      request.adapter_start = start;
      request.adapter_scale = scale;
      auto sequence = test::sequence_of(std::move(request));
      room.prefixes.set_origin(*sequence);
      return sequence;
    };
    const auto found = [&](const std::unique_ptr<Sequence>& sequence) {
      return room.prefixes.look_up(*sequence, {}).num_tokens(4);
    };
    const auto base = text(1, 0, {}), activated = text(2, 7, 6);
    room.compute(*base, 8);
    CHECK(found(activated) == 4);  // 6 lies in the second block
    room.compute(*activated, 16);
    CHECK(activated->tokens == base->tokens);
    CHECK(found(base) == 8);            // its own
    CHECK(found(text(3, 7, 6)) == 12);  // all but the last token's block
    CHECK(found(text(4, 7, 5)) == 4);
    CHECK(found(text(5, 7, 12)) == 8);
    CHECK(found(text(6, 8, 6)) == 4);
    CHECK(found(text(7, 7, {})) == 0);       // it counts for all
    CHECK(found(text(8, 7, 6, 0.5f)) == 0);  // another factor
  }
}

TEST_CASE("what is taken over is shared or copied, and the copy's source is held") {
  Room room;
  const auto first = room.text(1, 8, "s"), second = room.text(2, 8, "s");
  room.compute(*first, 8);
  test::make_resident(*second, 1, 2);
  room.prefixes.take_over(*second, room.prefixes.look_up(*second, {}));
  REQUIRE(second->residency.tables[0].blocks.size() == 1);
  CHECK(second->residency.tables[0].blocks[0] == first->residency.tables[0].blocks[0]);
  const BlockId source = second->residency.copy_source;
  CHECK(source == first->residency.tables[0].blocks[1]);
  CHECK(second->residency.copy_tokens == 3);
  room.prefixes.give_back(*first, /*forget=*/false, /*is_worth_storing=*/false);
  CHECK(room.kv.num_free(0) == 6);  // the shared one and the source
  room.kv.unpin(source);
  CHECK(room.kv.num_free(0) == 7);
}

TEST_CASE("what is given back stays to be found, unless it is to be forgotten or its first block is in flight") {
  Room room;
  const auto kept = room.text(1, 8), asks = room.text(9, 12);
  room.compute(*kept, 8);
  room.prefixes.give_back(*kept, false, false);
  CHECK(kept->residency.tables[0].blocks.empty());
  CHECK(room.kv.num_free(0) == 8);
  CHECK(room.prefixes.look_up(*asks, {}).num_tokens(4) == 8);

  Room forgets;
  const auto forgotten = forgets.text(1, 8), asks_there = forgets.text(9, 12);
  forgets.compute(*forgotten, 8);
  forgets.prefixes.give_back(*forgotten, true, false);
  CHECK(forgets.prefixes.look_up(*asks_there, {}).num_tokens(4) == 0);
}

TEST_CASE("branches share a prompt without a cache: what a running one has computed") {
  Room room(PrefixCacheKind::kOff);
  Request request = test::request_of(1, 8);
  request.n = 2;
  Sequence first(request, 0);
  request.id = 2;
  Sequence second(request, 1);
  test::make_resident(first, 0, 1);
  REQUIRE(room.kv.grow(first.residency.tables, 6));
  first.progress.computed = 6;
  Sequence* const running[] = {&first};
  CHECK(room.prefixes.look_up(second, running).num_tokens(4) == 6);
  first.progress.computed = 8;
  CHECK(room.prefixes.look_up(second, running).num_tokens(4) == 7);

  REQUIRE(room.kv.grow(first.residency.tables, 11));
  first.tokens.insert(first.tokens.end(), {7, 8, 9});
  first.progress.computed = 11;
  second.tokens.insert(second.tokens.end(), {7, 5, 9});  // an answer of its own, computed once and lost
  CHECK(room.prefixes.look_up(second, running).num_tokens(4) == 9);
}

TEST_CASE("what is spoilt is found no more, nor what begins behind it") {
  Room room;
  const auto spoilt = room.text(1, 8), asks = room.text(2, 12);
  room.compute(*spoilt, 8);
  REQUIRE(spoilt->origin.root != 0);
  room.prefixes.forget_spoilt(spoilt.get(), spoilt->origin.root);
  CHECK(room.prefixes.look_up(*asks, {}).num_tokens(4) == 0);
  room.prefixes.give_back(*spoilt, true, false);
  CHECK(room.kv.num_free(0) == 8);
  CHECK(room.kv.num_cached(0) == 0);
}
