// The queue of the disk tier and its thread; and the books above it: what is saved, what is read, and what is not.
#include "core/disk/disk_tier.h"

#include <catch2/catch_test_macros.hpp>
#include <chrono>

#include "core/kv/kv_space.h"
#include "tests/fakes/memory_folder.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

constexpr uint32_t kTokens = 2;
constexpr size_t kBlockBytes = 32;
using Tokens = std::vector<int32_t>;

// The host's pool, and a disk below it.
struct Host {
  explicit Host(std::shared_ptr<MemoryFiles> from = std::make_shared<MemoryFiles>(), size_t block_bytes = kBlockBytes)
      : memory(16, std::vector<std::byte>(block_bytes)),
        files(std::move(from)),
        disk(std::make_unique<MemoryFolder>(files),
             {.identity = {}, .shapes = {{kTokens, block_bytes}}, .bytes_max = 64 * (block_bytes + 200)},
             [this](uint32_t, BlockId block) { return std::vector{std::span(memory[block])}; }) {}

  void work() {
    while (disk.work()) continue;
  }
  void fill(BlockId block, uint8_t value) { std::ranges::fill(memory[block], std::byte{value}); }

  std::vector<std::vector<std::byte>> memory;
  std::shared_ptr<MemoryFiles> files;
  DiskTier disk;
};

DiskBlock block_of(uint32_t number, BlockId host_block) {
  return {.kv_group = 0,
          .host_block = host_block,
          .key = Sha256().add(number).finish(),
          .tokens = {static_cast<int32_t>(number), 5},
          .root = 1};
}

}  // namespace

TEST_CASE("writes and reads are done in order, and a write is found while it waits") {
  Host host;
  host.fill(0, 7);
  CHECK(host.disk.write(block_of(1, 0)));
  CHECK(host.disk.contains(block_of(1, 0).key));
  CHECK(host.disk.read(block_of(1, 3)));
  CHECK(host.disk.read(block_of(2, 4)));
  CHECK(host.disk.stats().blocks_queued == 3);
  std::vector<DiskDone> done;
  host.disk.take_done(&done);
  CHECK(done.empty());
  host.work();
  host.disk.take_done(&done);
  REQUIRE(done.size() == 3);
  CHECK((done[0].host_block == 0 && !done[0].is_read));
  CHECK((done[1].host_block == 3 && done[1].is_read && done[1].is_there));
  CHECK((done[2].host_block == 4 && done[2].is_read && !done[2].is_there));
  CHECK(host.memory[3] == host.memory[0]);
  host.disk.erase(block_of(1, 0).key);
  host.work();
  CHECK_FALSE(host.disk.contains(block_of(1, 0).key));
}

TEST_CASE("a full queue drops writes and counts them") {
  Host host(std::make_shared<MemoryFiles>(), 64 << 20);
  uint32_t num_written = 0;
  while (host.disk.write(block_of(num_written, 0))) ++num_written;
  CHECK(num_written == 4);
  CHECK(host.disk.write_room() == 0);
  CHECK(host.disk.stats().dropped_queue == 1);
  CHECK_FALSE(host.disk.contains(block_of(num_written, 0).key));
}

TEST_CASE("the thread does what it is asked for, and at its end what is queued") {
  const auto files = std::make_shared<MemoryFiles>();
  {
    Host host(files);
    host.disk.start_thread();
    for (uint32_t i = 0; i < 10; ++i) {
      host.fill(i, static_cast<uint8_t>(i));
      CHECK(host.disk.write(block_of(i, i)));
    }
    CHECK(host.disk.read(block_of(3, 12)));
    std::vector<DiskDone> done;
    for (int i = 0; i < 5000 && done.size() < 11; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      host.disk.take_done(&done);
    }
    REQUIRE(done.size() == 11);
    CHECK(host.memory[12] == host.memory[3]);
    for (uint32_t i = 10; i < 16; ++i) CHECK(host.disk.write(block_of(i, i)));
  }
  Host next(files);
  next.work();
  CHECK(next.disk.stats().blocks == 16);
}

// ---- the books -----------------------------------------------------------------------------------------------------

namespace {

// One group, a device that is not there: bytes of the host's pool are written by hand where a store would put them.
struct Space {
  explicit Space(Host* from, uint32_t num_blocks = 8)
      : host(*from),
        size{num_blocks, kTokens},
        kv({&size, 1}, PrefixCacheKind::kRadix, {.num_blocks = 16, .stores_max = 16}, &host.disk) {}

  void compute(const Tokens& text, bool may_last) {
    auto tables = kv.make_tables(static_cast<uint32_t>(text.size()));
    REQUIRE(kv.grow(tables, static_cast<uint32_t>(text.size())));
    kv.keep(tables, {}, text, may_last);
    kv.release(tables);
    end_step();
  }
  void end_step() {
    for (const BlockMove& store : kv.stores()) host.fill(store.target, static_cast<uint8_t>(40 + store.source));
    kv.forget_moves();
    kv.step_is_complete();
  }
  void save(std::span<const BlockTable> held = {}, uint32_t num_tokens = 0) {
    kv.save(16);
    end_step();
    host.work();
    kv.poll_disk();
    const KvSpace::Holder holder{held, num_tokens};
    CHECK(kv.check_books({&holder, held.empty() ? 0u : 1u}).ok());
  }

  Host& host;
  KvPoolSize size;
  KvSpace kv;
};

const Tokens kText = {1, 2, 3, 4, 5, 6};

}  // namespace

TEST_CASE("blocks are saved a step after they were computed, each once") {
  Host host;
  Space space(&host);
  space.compute(kText, true);
  CHECK(space.kv.has_saves());
  CHECK(host.disk.stats().blocks_queued == 0);
  space.save();
  CHECK_FALSE(space.kv.has_saves());
  CHECK(host.disk.stats().blocks == 3);
  CHECK(space.kv.host()->num_used() == 3);
  space.compute(kText, true);
  space.save();
  CHECK(host.disk.stats().blocks_written == 3);
}

TEST_CASE("what may not last never goes to the disk") {
  Host host;
  Space space(&host, 3);
  space.compute(kText, false);
  space.save();
  CHECK(host.disk.stats().blocks == 0);
  // Nor when it goes to the host tier.
  auto tables = space.kv.make_tables(6);
  space.kv.share(tables, space.kv.match(Digest{}, kText));
  space.kv.set_worth_storing(tables, true);
  space.kv.release(tables);
  space.compute({9, 9, 9, 9, 9, 9}, false);
  space.save();
  CHECK(space.kv.host()->num_used() == 3);
  CHECK(host.disk.stats().blocks == 0);
}

TEST_CASE("a block that the pool hands out before it was saved is saved then") {
  Host host;
  Space space(&host, 3);
  space.compute(kText, true);
  space.compute({9, 9, 9, 9, 9, 9}, false);
  host.work();
  CHECK(host.disk.stats().blocks == 3);
}

TEST_CASE("the next process reads what a text begins with, and a match finds it") {
  const auto files = std::make_shared<MemoryFiles>();
  {
    Host host(files);
    Space space(&host);
    space.compute(kText, true);
    space.save();
  }
  Host host(files);
  Space space(&host);
  CHECK(space.kv.read_from_disk({}, kText) == DiskBatch{0});  // the files are not known yet
  host.work();
  const Tokens longer = {1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(space.kv.match(Digest{}, longer).num_full() == 0);
  const std::optional<DiskBatch> batch = space.kv.read_from_disk({}, longer);
  REQUIRE((batch && *batch != 0));
  CHECK(space.kv.is_reading(*batch));
  CHECK(space.kv.check_books({}).ok());
  host.work();
  space.kv.poll_disk();
  CHECK_FALSE(space.kv.is_reading(*batch));
  const PrefixMatch match = space.kv.match(Digest{}, longer);
  REQUIRE(match.host_blocks.size() == 3);
  CHECK(space.kv.num_from_disk(match) == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(host.memory[match.host_blocks[i]][0] == std::byte(40 + i));
  CHECK(space.kv.read_from_disk({}, longer) == DiskBatch{0});  // there is no more of it
  auto tables = space.kv.make_tables(8);
  space.kv.load(tables, match);
  CHECK(space.kv.num_from_disk(match) == 0);  // from now on they are the host tier's
  space.kv.release(tables);
  space.end_step();
  CHECK(space.kv.check_books({}).ok());
  // Other tokens, another identity.
  CHECK(space.kv.read_from_disk(Sha256().add(1).finish(), longer) == DiskBatch{0});
  CHECK(space.kv.read_from_disk({}, Tokens{2, 2, 3, 4}) == DiskBatch{0});
}

TEST_CASE("what was forgotten does not come back from a write or a read that was under way") {
  const auto files = std::make_shared<MemoryFiles>();
  Host host(files);
  Space space(&host);
  auto tables = space.kv.make_tables(6);
  REQUIRE(space.kv.grow(tables, 6));
  space.kv.keep(tables, {}, kText, true);
  space.end_step();
  const uint64_t root = space.kv.root(tables);
  SECTION("stored, and the step is not complete") {
    space.kv.save(16);
    space.kv.forget_moves();
    space.kv.forget(root);
    space.kv.step_is_complete();
    host.work();
  }
  SECTION("in the queue of writes") {
    space.kv.save(16);
    space.end_step();
    space.kv.forget(root);
    host.work();
  }
  SECTION("being read") {
    space.save(tables, 6);
    space.kv.forget(root);
    space.kv.release(tables, /*forget=*/true);
    host.work();
    CHECK(space.kv.read_from_disk({}, kText) == DiskBatch{0});
    auto again = space.kv.make_tables(6);
    REQUIRE(space.kv.grow(again, 6));
    space.kv.keep(again, {}, kText, true);
    space.end_step();
    space.save(again, 6);
    space.kv.release(again);
    Host other(files);
    other.work();
    Space next(&other);
    REQUIRE(next.kv.read_from_disk({}, kText) != DiskBatch{0});
    next.kv.forget(root);
    other.work();
    next.kv.poll_disk();
    CHECK(next.kv.match(Digest{}, kText).num_full() == 0);
    CHECK(other.disk.stats().blocks == 0);
    return;
  }
  space.kv.poll_disk();
  space.kv.release(tables, /*forget=*/true);
  CHECK(space.kv.check_books({}).ok());
  CHECK(space.kv.match(Digest{}, kText).num_full() == 0);
  host.work();
  CHECK(host.disk.stats().blocks == 0);
  Host next(files);
  next.work();
  CHECK(next.disk.stats().blocks == 0);
}

TEST_CASE("reads that find no room are asked for later") {
  const auto files = std::make_shared<MemoryFiles>();
  Tokens texts[2];
  {
    Host host(files);
    Space space(&host, 32);
    for (int i = 0; i < 2; ++i) {
      for (int t = 0; t < 20; ++t) texts[i].push_back(100 * i + t);
      space.compute(texts[i], true);
      for (int k = 0; k < 4; ++k) space.save();
    }
    REQUIRE(host.disk.stats().blocks == 20);
  }
  Host host(files);
  host.work();
  Space space(&host, 32);
  const auto first = space.kv.read_from_disk({}, texts[0]);
  REQUIRE((first && *first != 0));
  CHECK_FALSE(space.kv.read_from_disk({}, texts[1]).has_value());
  host.work();
  space.kv.poll_disk();
  const auto second = space.kv.read_from_disk({}, texts[1]);
  CHECK((second && *second != 0));
}
