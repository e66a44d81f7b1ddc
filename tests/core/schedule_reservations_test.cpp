// What admission counts on: promises, the watermark and the lengths of past answers. Blocks of 4 tokens.
#include <catch2/catch_test_macros.hpp>

#include "core/schedule/reservations.h"
#include "schedule_parts.h"

using namespace llmrt;
using test::request_of;

namespace {

SchedulerConfig config_of(uint32_t num_blocks, OnExhaustion on_exhaustion = OnExhaustion::kPreempt) {
  SchedulerConfig config;
  config.kv_pools = {{num_blocks, 4}};
  config.watermark = 0;
  config.reserve_output_tokens = 8;
  config.on_exhaustion = on_exhaustion;
  return config;
}

struct Room {
  explicit Room(SchedulerConfig from) : config(std::move(from)) {}

  // Runs with `reserved` positions, of which blocks for `computed` are taken.
  Sequence& run(uint32_t reserved, uint32_t computed) {
    owned.push_back(test::sequence_of(request_of(100 + owned.size())));
    Sequence& sequence = *owned.back();
    sequence.move_to(RequestState::kPrefilling);
    running.admit(sequence);
    sequence.residency.reserved_tokens = reserved;
    sequence.residency.tables = kv.make_tables(reserved);
    REQUIRE(kv.grow(sequence.residency.tables, computed));
    return sequence;
  }
  bool fits(Sequence& sequence) {
    PrefixMatch match;
    return reservations.fits(sequence, &match, running);
  }

  SchedulerConfig config;
  KvSpace kv{config.kv_pools};
  Running running{8, 0};
  Reservations reservations{config, kv};
  std::vector<std::unique_ptr<Sequence>> owned;
};

}  // namespace

TEST_CASE("a sequence reserves its tokens and the expected output, or all that it may ever need") {
  Room expects(config_of(8)), reserves_all(config_of(8, OnExhaustion::kQueue));
  Sequence brief(request_of(1, 6, 3)), wordy(request_of(2, 6, 100));
  CHECK(expects.reservations.positions(brief) == 8);  // 6 + 3, the last is never computed
  CHECK(expects.reservations.positions(wordy) == 14);
  CHECK(reserves_all.reservations.positions(wordy) == 105);
  wordy.tokens.push_back(7);  // it goes on after a preemption
  CHECK(expects.reservations.positions(wordy) == 15);
}

TEST_CASE("what answers of the same route and class needed is reserved once enough of them are known") {
  SchedulerConfig config = config_of(8);
  config.learns_output = true;
  Room room(config);
  Sequence sequence(request_of(1, 6, 1000)), other(request_of(2, 6, 1000, RequestClass::kBatch));
  for (int i = 0; i < 99; ++i) room.reservations.learn(sequence.request, 60);
  room.reservations.learn(sequence.request, 0);  // no answer, no lesson
  CHECK(room.reservations.positions(sequence) == 6 + 8);
  room.reservations.learn(sequence.request, 60);
  CHECK(room.reservations.positions(sequence) == 6 + 64);
  CHECK(room.reservations.positions(other) == 6 + 8);
}

TEST_CASE("beside others a sequence fits in what promises and watermark leave") {
  SchedulerConfig config = config_of(10);
  config.watermark = 0.1;  // one block
  Room room(config);
  room.run(/*reserved=*/16, /*computed=*/4);  // 1 block taken, 3 promised
  room.reservations.count(room.running.rows());
  Sequence fits(request_of(1, 12, 9)), larger(request_of(2, 16, 9));
  CHECK(room.fits(fits));          // 20 positions: 5 of 9 - 3 - 1
  CHECK_FALSE(room.fits(larger));  // 24: 6
  CHECK(larger.found.blocks_needed == 6);
  CHECK(room.reservations.is_known_short(larger, room.running));
  CHECK_FALSE(room.reservations.is_known_short(fits, room.running));
  room.run(4, 4);  // another was admitted: what it shares may have changed
  CHECK_FALSE(room.reservations.is_known_short(larger, room.running));
}

TEST_CASE("alone in the pool a sequence needs room for what it has, no more") {
  SchedulerConfig config = config_of(4);
  config.watermark = 0.5;
  Room room(config);
  Sequence sequence(request_of(1, 16, 100)), larger(request_of(2, 17, 100));
  CHECK(room.fits(sequence));
  CHECK_FALSE(room.fits(larger));
}

TEST_CASE("a promise shrinks as its sequence grows, and those admitted since the count are added") {
  Room room(config_of(10));
  Sequence& first = room.run(16, 4);
  room.reservations.count(room.running.rows());
  const Sequence& second = room.run(16, 4);
  room.reservations.promise(second);
  Sequence waits(request_of(1, 8, 9));
  CHECK_FALSE(room.fits(waits));  // 4 of 8 - 6
  CHECK(room.reservations.missing_blocks(waits) == std::vector<uint64_t>{2});
  CHECK(room.reservations.yielded_blocks(0, first) == 4);
  REQUIRE(room.kv.grow(first.residency.tables, 12));
  room.reservations.count(room.running.rows());
  CHECK_FALSE(room.fits(waits));  // 4 of 6 - 4
  first.residency.reserved_tokens = 12;
  room.reservations.count(room.running.rows());
  CHECK(room.reservations.missing_blocks(waits) == std::vector<uint64_t>{1});
}

TEST_CASE("a copied block that is not held by anyone is left out where it would cost the last free one") {
  Room room(config_of(4));
  Sequence sequence(request_of(1, 16, 1));
  PrefixMatch match;
  match.partial_block = 0;
  match.partial_tokens = 2;
  CHECK(room.reservations.fits(sequence, &match, room.running));
  CHECK(match.partial_tokens == 0);
  Sequence smaller(request_of(2, 12, 1));
  match.partial_block = 0;
  match.partial_tokens = 2;
  CHECK(room.reservations.fits(smaller, &match, room.running));
  CHECK(match.partial_tokens == 2);
}

TEST_CASE("the error tells what is needed, free and kept") {
  SchedulerConfig config = config_of(10, OnExhaustion::kReject);
  config.watermark = 0.1;
  Room room(config);
  room.run(16, 4);
  room.reservations.count(room.running.rows());
  Sequence sequence(request_of(1, 12, 15));
  CHECK(room.reservations.no_room(sequence).message ==
        "no room now: 7 KV blocks of 4 are needed, 9 are free, 4 of them kept");
}
