// The adapters' pool: each rule by hand, then 200 adapters through a pool for 8, with seeds: what is written is put
// into an array of bytes as a device would, and each hold finds its adapter's numbers there, whatever else goes on.
#include "core/adapter/adapter_pool.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <map>
#include <random>

using namespace llmrt;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr uint64_t kPage = kAdapterPageBytes;
constexpr TimeNs kSecond = 1'000'000'000;
constexpr uint32_t kGroups = 6;

// An adapter whose runs take so many pages each, of the groups 0, 1, ...; its bytes are made of its number.
std::shared_ptr<const AdapterImage> image_of(uint32_t number, const std::vector<uint32_t>& pages) {
  auto image = std::make_shared<AdapterImage>();
  std::memcpy(image->digest.data(), &number, sizeof number);
  for (size_t i = 0; i < pages.size(); ++i) {
    AdapterRun run;
    run.group = static_cast<WeightGroupId>(i);
    run.offset = image->bytes.size();
    run.size = pages[i] * kPage - kAdapterUnitBytes;  // the last page is not full
    run.entry.rank = 8 * (number + 1);
    run.entry.num_parts = 1;
    run.entry.b_offset[0] = 2;
    run.entry.row_end[0] = number + 1;
    image->runs.push_back(run);
    std::vector<uint32_t> words(run.size / sizeof(uint32_t));
    for (size_t j = 0; j < words.size(); ++j) words[j] = static_cast<uint32_t>(number * 1'000'003 + i * 40'009 + j);
    const auto bytes = std::as_bytes(std::span(words));
    image->bytes.insert(image->bytes.end(), bytes.begin(), bytes.end());
  }
  return image;
}

AdapterPoolLimits limits_of(uint32_t num_pages, uint32_t slots_max) {
  const uint64_t table = (uint64_t{slots_max} * kGroups * sizeof(AdapterEntry) + kPage - 1) / kPage * kPage;
  return {.bytes = table + num_pages * kPage, .slots_max = slots_max, .num_groups = kGroups, .patience_ns = kSecond};
}

// The device's side: bytes, and the check that a slot names an adapter's numbers.
class FakeDevice {
 public:
  explicit FakeDevice(const AdapterPoolLimits& limits) : limits_(limits), bytes_(limits.bytes, std::byte{0xee}) {}

  void write(std::span<const AdapterWrite> writes, uint64_t bytes_max) {
    uint64_t sum = 0;
    for (const AdapterWrite& write : writes) {
      REQUIRE(write.pool_offset % kAdapterUnitBytes == 0);
      REQUIRE(write.bytes.size() % kAdapterUnitBytes == 0);
      REQUIRE(write.pool_offset + write.bytes.size() <= bytes_.size());
      std::ranges::copy(write.bytes, bytes_.begin() + static_cast<std::ptrdiff_t>(write.pool_offset));
      sum += write.bytes.size();
    }
    REQUIRE(sum <= bytes_max);
  }
  std::string check(AdapterSlot slot, const AdapterImage& image) const {
    std::vector<AdapterEntry> row(kGroups);
    std::memcpy(row.data(), bytes_.data() + slot * kGroups * sizeof(AdapterEntry), kGroups * sizeof(AdapterEntry));
    size_t i = 0;
    for (uint32_t group = 0; group < kGroups; ++group) {
      const bool is_changed = i < image.runs.size() && image.runs[i].group == static_cast<WeightGroupId>(group);
      if (!is_changed) {
        if (row[group].rank != 0) return fmt::format("group {} is changed", group);
        continue;
      }
      const AdapterRun& run = image.runs[i++];
      if (row[group].rank != run.entry.rank || row[group].row_end[0] != run.entry.row_end[0])
        return fmt::format("group {}: another entry", group);
      if (row[group].b_offset[0] - row[group].a_offset != 2) return fmt::format("group {}: B is elsewhere", group);
      const uint64_t at = row[group].a_offset * kAdapterUnitBytes;
      if (at + run.size > bytes_.size() ||
          !std::ranges::equal(image.run_bytes(run), std::span(bytes_).subspan(at, run.size)))
        return fmt::format("group {}: other numbers", group);
    }
    return "";
  }

 private:
  AdapterPoolLimits limits_;
  std::vector<std::byte> bytes_;
};

// Gives out all that is to be written.
void settle(AdapterPool& pool, TimeNs now = 0) {
  while (!pool.next_writes(UINT64_MAX, now).empty()) {
  }
  REQUIRE(pool.audit() == "");
}
bool holds(AdapterPool& pool, AdapterTicket ticket, TimeNs now = 0) {
  const auto held = pool.try_hold(ticket, now);
  REQUIRE(held.ok());
  return *held;
}

}  // namespace

TEST_CASE("an adapter is written, its table row last, and held only then") {
  const AdapterPoolLimits limits = limits_of(8, 2);
  AdapterPool pool(limits);
  FakeDevice device(limits);
  const auto image = image_of(7, {2, 1});
  const AdapterTicket ticket = *pool.want(image, 0);
  CHECK_FALSE(holds(pool, ticket));
  constexpr uint64_t kPiece = 10'000;
  uint64_t written = 0;
  while (!holds(pool, ticket)) {
    const auto writes = pool.next_writes(kPiece, 0);
    REQUIRE_FALSE(writes.empty());
    for (const AdapterWrite& write : writes) {
      const bool is_table = write.pool_offset < kPage;
      if (is_table) CHECK(written >= image->bytes.size());
      written += write.bytes.size();
    }
    device.write(writes, kPiece);
    REQUIRE(pool.audit() == "");
  }
  CHECK(written == image->bytes.size() + kGroups * sizeof(AdapterEntry));
  CHECK(pool.figures().bytes_written == written);
  CHECK(device.check(pool.slot_of(ticket), *image) == "");
  CHECK(pool.next_writes(kPiece, 0).empty());
  CHECK(holds(pool, *pool.want(image, 0)));
  CHECK(pool.figures().num_hits == 1);
  CHECK(pool.figures().num_misses == 1);
}

TEST_CASE("the longest unused adapter goes, only when room is needed, and none that is held") {
  AdapterPool pool(limits_of(9, 3));
  std::vector<AdapterTicket> tickets;
  for (uint32_t i = 0; i < 3; ++i) tickets.push_back(*pool.want(image_of(i, {3}), 0));
  settle(pool);
  for (const AdapterTicket ticket : tickets) REQUIRE(holds(pool, ticket));
  pool.drop(tickets[1]);
  pool.drop(tickets[0]);
  CHECK(pool.is_resident(image_of(0, {3})->digest));
  const AdapterTicket next = *pool.want(image_of(3, {3}), 0);
  settle(pool);
  CHECK(holds(pool, next));
  CHECK_FALSE(pool.is_resident(image_of(1, {3})->digest));  // it was let go first
  CHECK(pool.is_resident(image_of(0, {3})->digest));
  CHECK(pool.figures().num_evictions == 1);
  // Two of three are held: six pages are not there, and nobody is thrown out in vain.
  const AdapterTicket large = *pool.want(image_of(4, {6}), 0);
  settle(pool);
  CHECK_FALSE(holds(pool, large));
  CHECK(pool.is_resident(image_of(0, {3})->digest));
  pool.drop(next);
  settle(pool);
  CHECK(holds(pool, large));
}

TEST_CASE("nobody is evicted for pages that are enough, but not side by side") {
  AdapterPool pool(limits_of(6, 4));
  std::vector<AdapterTicket> tickets;
  for (uint32_t i = 0; i < 3; ++i) tickets.push_back(*pool.want(image_of(i, {2}), 0));
  settle(pool);
  for (const AdapterTicket ticket : tickets) REQUIRE(holds(pool, ticket));
  pool.drop(tickets[0]);
  pool.drop(tickets[2]);  // the one in the middle is held
  const AdapterTicket wide = *pool.want(image_of(9, {4}), 0);
  settle(pool);
  CHECK_FALSE(holds(pool, wide));
  CHECK(pool.figures().num_evictions == 0);
  const AdapterTicket split = *pool.want(image_of(10, {2, 2}), 0);
  pool.drop(wide);
  settle(pool);
  CHECK(holds(pool, split));
  CHECK(pool.figures().num_evictions == 2);
}

TEST_CASE("what can never fit is refused at once, with the bytes that there are") {
  AdapterPool pool(limits_of(4, 2));
  const auto error = pool.want(image_of(1, {3, 2}), 0);
  REQUIRE_FALSE(error.ok());
  CHECK(error.error().code == ErrorCode::kNeverFits);
  CHECK_THAT(error.error().message, ContainsSubstring(fmt::format("expected at most {} bytes", 4 * kPage)) &&
                                        ContainsSubstring(fmt::format("found {}", 5 * kPage)));
  REQUIRE(pool.pin(image_of(2, {2}), 0).ok());
  settle(pool);
  CHECK_FALSE(pool.want(image_of(3, {3}), 0).ok());
  CHECK_FALSE(pool.check_fits(*image_of(3, {3})).ok());
  CHECK(pool.check_fits(*image_of(2, {2})).ok());  // it is there
  CHECK(pool.want(image_of(3, {2}), 0).ok());
  CHECK_FALSE(pool.pin(image_of(4, {1}), 0).ok());  // it would take the room of one that waits
  CHECK(pool.audit() == "");
  AdapterPool none(limits_of(0, 0));
  CHECK_FALSE(none.want(image_of(1, {1}), 0).ok());
  CHECK(none.audit() == "");
}

TEST_CASE("a pinned adapter stays while others come and go, and goes when it is unpinned") {
  AdapterPool pool(limits_of(6, 3));
  const auto pinned = image_of(1, {2});
  REQUIRE(pool.pin(pinned, 0).ok());
  REQUIRE(pool.pin(pinned, 0).ok());
  settle(pool);
  for (uint32_t i = 2; i < 20; ++i) {
    const AdapterTicket ticket = *pool.want(image_of(i, {2, 1}), 0);
    settle(pool);
    REQUIRE(holds(pool, ticket));
    pool.drop(ticket);
  }
  CHECK(pool.is_resident(pinned->digest));
  CHECK(holds(pool, *pool.want(pinned, 0)));
  pool.unpin(pinned->digest);
  CHECK(pool.audit() == "");
}

TEST_CASE("pages that pinned adapters cut apart are told of, not waited for") {
  AdapterPool pool(limits_of(6, 4));
  std::vector<AdapterTicket> tickets;
  for (uint32_t i = 0; i < 3; ++i) tickets.push_back(*pool.want(image_of(i, {2}), 0));
  settle(pool);
  for (const AdapterTicket ticket : tickets) REQUIRE(holds(pool, ticket));
  REQUIRE(pool.pin(image_of(1, {2}), 0).ok());  // in the middle
  const AdapterTicket wide = *pool.want(image_of(9, {4}), 0);
  settle(pool);
  CHECK_FALSE(holds(pool, wide));  // others hold the rest
  for (const AdapterTicket ticket : tickets) pool.drop(ticket);
  settle(pool);
  const auto refused = pool.try_hold(wide, 0);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kNeverFits);
  pool.drop(wide);
  CHECK(pool.audit() == "");
  CHECK(pool.figures().num_tickets == 1);  // the pin's
}

TEST_CASE("others pass one that waits for room until its patience is over, then it comes next") {
  AdapterPool pool(limits_of(6, 4));
  const auto busy = image_of(1, {4}), large = image_of(2, {5}), small = image_of(3, {1}), other = image_of(4, {1});
  const AdapterTicket first = *pool.want(busy, 0);
  settle(pool);
  REQUIRE(holds(pool, first));
  const AdapterTicket waiting = *pool.want(large, 0);
  settle(pool);
  const AdapterTicket passes = *pool.want(small, 0), again = *pool.want(busy, 0);
  settle(pool);
  CHECK(holds(pool, passes));  // there were free pages
  CHECK(holds(pool, again));   // the adapter is there
  CHECK_FALSE(holds(pool, waiting));
  const TimeNs later = kSecond;
  const AdapterTicket late_small = *pool.want(other, later), late_busy = *pool.want(busy, later);
  settle(pool, later);
  CHECK_FALSE(pool.is_resident(other->digest));
  CHECK_FALSE(holds(pool, late_busy, later));
  REQUIRE(pool.pin(small, later).ok());
  const AdapterTicket of_pinned = *pool.want(small, later);
  CHECK(holds(pool, of_pinned, later));  // to wait would help nobody
  pool.drop(of_pinned);
  pool.unpin(small->digest);
  pool.pause(first);
  CHECK(holds(pool, first, later));  // older than the one that waits
  for (const AdapterTicket ticket : {first, passes, again}) pool.drop(ticket);
  settle(pool, later);
  CHECK(holds(pool, waiting, later));
  CHECK_FALSE(holds(pool, late_busy, later));  // its adapter went, and waits in turn
  CHECK(pool.figures().num_waiting == 1);
  CHECK(holds(pool, late_small, later));
  pool.drop(waiting);
  pool.drop(late_small);
  settle(pool, later);
  CHECK(holds(pool, late_busy, later));
}

TEST_CASE("an adapter that was loaded for somebody stays until that ticket has held it") {
  AdapterPool pool(limits_of(2, 1));
  const AdapterTicket a = *pool.want(image_of(1, {1}), 0), b = *pool.want(image_of(2, {1}), 0);
  settle(pool);
  settle(pool);
  CHECK_FALSE(holds(pool, b));
  CHECK(holds(pool, a));
  pool.drop(a);
  settle(pool);
  CHECK(holds(pool, b));
}

TEST_CASE("a request that yields makes room for an older one, and comes back in its turn") {
  AdapterPool pool(limits_of(1, 1));
  const auto a = image_of(1, {1}), b = image_of(2, {1});
  const AdapterTicket first = *pool.want(a, 0);
  settle(pool);
  REQUIRE(holds(pool, first));
  const AdapterTicket older = *pool.want(b, 0), younger = *pool.want(a, 0);
  REQUIRE(holds(pool, younger));
  pool.drop(first);
  settle(pool);
  CHECK_FALSE(holds(pool, older));
  pool.pause(younger);
  settle(pool);
  CHECK(holds(pool, older));
  CHECK_FALSE(holds(pool, younger));
  pool.drop(older);
  settle(pool);
  CHECK(holds(pool, younger));
}

TEST_CASE("tickets end in any state, and leave nothing") {
  AdapterPool pool(limits_of(4, 2));
  const AdapterTicket waiting = *pool.want(image_of(1, {4}), 0), behind = *pool.want(image_of(2, {4}), 0);
  (void)pool.next_writes(kPage, 0);  // the first is half written
  pool.drop(waiting);
  pool.drop(behind);
  CHECK(pool.audit() == "");
  settle(pool);
  CHECK(pool.is_resident(image_of(1, {4})->digest));
  CHECK(pool.figures().num_tickets == 0);
  CHECK(pool.figures().num_waiting == 0);
  pool.discard(image_of(2, {4})->digest, 0);
  pool.discard(image_of(1, {4})->digest, 0);
  CHECK(pool.figures().num_free_pages == 4);
  CHECK(pool.audit() == "");
}

namespace {

// Requests of 200 adapters come, hold for a while, yield, and go, at times without ever having held.
class PoolSimulation {
 public:
  explicit PoolSimulation(uint64_t seed)
      : random_(seed), limits_(limits_of(kPages, kSlots)), pool_(limits_), device_(limits_) {
    for (uint32_t i = 0; i < 200; ++i) {
      std::vector<uint32_t> pages(1 + random_() % kGroups);
      for (uint32_t& count : pages) count = static_cast<uint32_t>(1 + random_() % 3);
      images_.push_back(image_of(i, pages));
    }
  }

  void run(int num_steps) {
    for (int step = 0; step < num_steps; ++step) {
      now_ += static_cast<TimeNs>(random_() % (kSecond / 8));
      if (step < num_steps * 3 / 4 && requests_.size() < 24 && random_() % 3 != 0) arrive();
      for (size_t i = 0; i < requests_.size(); ++i)
        if (move(requests_[i])) requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(i--));
      if (random_() % 16 == 0) pool_.discard(images_[random_() % images_.size()]->digest, now_);
      const uint64_t bytes_max = kAdapterUnitBytes + random_() % (4 * kPage);
      device_.write(pool_.next_writes(bytes_max, now_), bytes_max);
      REQUIRE(pool_.audit() == "");
      if (requests_.empty()) continue;
      const Request& request = requests_[random_() % requests_.size()];
      if (request.holds) REQUIRE(device_.check(pool_.slot_of(request.ticket), *images_[request.adapter]) == "");
    }
    for (int step = 0; !requests_.empty(); ++step) {
      REQUIRE(step < 100'000);
      now_ += kSecond / 16;
      for (size_t i = 0; i < requests_.size(); ++i)
        if (move(requests_[i])) requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(i--));
      device_.write(pool_.next_writes(8 * kPage, now_), 8 * kPage);
      REQUIRE(pool_.audit() == "");
    }
    const AdapterPoolFigures figures = pool_.figures();
    CHECK(figures.num_holds == 0);
    CHECK(figures.num_tickets == 0);
    CHECK(figures.num_waiting == 0);
    CHECK(figures.num_evictions > 20);
    CHECK(figures.num_hits > 0);
    CHECK(longest_wait_ns < kPatienceAndHolds);
  }

  TimeNs longest_wait_ns = 0;

 private:
  static constexpr uint32_t kPages = 64, kSlots = 8;
  static constexpr TimeNs kHoldMax = 2 * kSecond;
  // Those in front of a request, at most 23, each wait for their patience and the longest hold.
  static constexpr TimeNs kPatienceAndHolds = 24 * (kSecond + 2 * kHoldMax);

  struct Request {
    AdapterTicket ticket;
    size_t adapter;
    TimeNs arrival_ns, end_ns = 0;
    bool holds = false, gives_up = false;
  };

  void arrive() {
    // Half of all are for few adapters, which stay busy.
    const size_t adapter = random_() % 2 == 0 ? random_() % 4 : random_() % images_.size();
    const auto ticket = pool_.want(images_[adapter], now_);
    REQUIRE(ticket.ok());
    requests_.push_back({*ticket, adapter, now_, 0, false, random_() % 8 == 0});
  }
  // True: it is gone.
  bool move(Request& request) {
    if (request.holds && (now_ >= request.end_ns || request.gives_up)) {
      pool_.drop(request.ticket);
      return true;
    }
    if (request.holds && random_() % 32 == 0) {
      pool_.pause(request.ticket);
      request.holds = false;
      request.arrival_ns = now_;
      return false;
    }
    if (request.holds) return false;
    if (request.gives_up && random_() % 16 == 0) {
      pool_.drop(request.ticket);
      return true;
    }
    const auto held = pool_.try_hold(request.ticket, now_);
    REQUIRE(held.ok());
    if (!*held) return false;
    request.holds = true;
    request.end_ns = now_ + static_cast<TimeNs>(random_() % kHoldMax);
    longest_wait_ns = std::max(longest_wait_ns, now_ - request.arrival_ns);
    return false;
  }

  std::mt19937_64 random_;
  AdapterPoolLimits limits_;
  AdapterPool pool_;
  FakeDevice device_;
  std::vector<std::shared_ptr<const AdapterImage>> images_;
  std::vector<Request> requests_;
  TimeNs now_ = 0;
};

}  // namespace

TEST_CASE("200 adapters through a pool for 8: books balance, numbers are right, nobody starves") {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    INFO("seed " << seed);
    PoolSimulation(seed).run(600);
  }
}

TEST_CASE("an adapter that is always in use does not keep others out") {
  AdapterPool pool(limits_of(4, 1));
  const auto busy = image_of(1, {1}), other = image_of(2, {1});
  std::vector<AdapterTicket> running;
  std::optional<AdapterTicket> waiting;
  TimeNs now = 0;
  for (int step = 0; step < 200; ++step, now += kSecond / 10) {
    running.push_back(*pool.want(busy, now));  // each runs for three steps
    if (step == 5) waiting = *pool.want(other, now);
    settle(pool, now);
    for (const AdapterTicket ticket : running) (void)holds(pool, ticket, now);
    if (running.size() > 3) {
      pool.drop(running.front());
      running.erase(running.begin());
    }
    if (waiting && holds(pool, *waiting, now)) {
      CHECK(now <= kSecond * 5 / 10 + kSecond + kSecond * 5 / 10);
      return;
    }
  }
  FAIL("it waited for ever");
}
