// The segment store: blocks are found again, also by the next process; whatever breaks in a file, a block is told as
// missing, counted, and never told wrong. With files in memory, and once with those of the file system.
#include "core/disk/segment_store.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/fakes/memory_folder.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

constexpr uint32_t kTokens = 4;
constexpr size_t kPayload = 48;
constexpr uint64_t kRecord = kRecordHeaderBytes + 4 * kTokens + kPayload;

Digest digest_of(uint64_t number) {
  return Sha256().add(number).finish();
}

DiskBlock block_of(uint32_t number, uint32_t group = 0) {
  DiskBlock block{.kv_group = group, .key = digest_of(number), .root = 1 + number % 3};
  for (uint32_t i = 0; i < kTokens; ++i) block.tokens.push_back(static_cast<int32_t>(100 * number + i));
  return block;
}

std::vector<std::byte> payload_of(uint32_t number, size_t size = kPayload) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(7 * number + 13 * i);
  return bytes;
}

SegmentLimits limits_of(uint64_t num_records, uint64_t identity = 1) {
  SegmentLimits limits{.identity = digest_of(1000 + identity),
                       .shapes = {{kTokens, kPayload}, {kTokens, 2 * kPayload}}};
  limits.bytes_max = std::max(num_records * (kRecord + kSegmentHeaderBytes), limits.least_bytes());
  return limits;
}

struct Store {
  explicit Store(const std::shared_ptr<MemoryFiles>& files, const SegmentLimits& limits = limits_of(1000))
      : store(std::make_unique<MemoryFolder>(files), limits) {
    while (store.scan_next()) continue;
  }

  void put(uint32_t number, uint32_t group = 0) {
    auto bytes = payload_of(number, (1 + group) * kPayload);
    // In two parts, as layers are.
    const std::span<std::byte> parts[] = {std::span(bytes).first(20), std::span(bytes).subspan(20)};
    store.put(block_of(number, group), parts);
  }
  // Whether it is there; what is told is right.
  bool get(uint32_t number, uint32_t group = 0) {
    std::vector<std::byte> bytes((1 + group) * kPayload);
    const std::span<std::byte> parts[] = {std::span(bytes).first(30), std::span(bytes).subspan(30)};
    if (!store.get(block_of(number, group), parts)) return false;
    REQUIRE(bytes == payload_of(number, (1 + group) * kPayload));
    return true;
  }

  SegmentStore store;
};

uint64_t unusable(const DiskStats& stats) {
  return stats.bad_corrupt + stats.bad_truncated + stats.bad_foreign + stats.bad_tokens + stats.bad_read;
}

std::vector<std::byte>& only_file(MemoryFiles& files) {
  REQUIRE(files.files.size() == 1);
  return files.files.begin()->second.bytes;
}

}  // namespace

TEST_CASE("blocks of all groups are found again, by the next process too") {
  const auto files = std::make_shared<MemoryFiles>();
  {
    Store first(files);
    for (uint32_t i = 0; i < 5; ++i) first.put(i, i % 2);
    first.put(2);  // it is there already
    CHECK(first.store.stats().blocks == 5);
    for (uint32_t i = 0; i < 5; ++i) CHECK(first.get(i, i % 2));
    CHECK_FALSE(first.get(9));
  }
  Store second(files);
  CHECK(second.store.stats().blocks == 5);
  CHECK(second.store.stats().bytes_used == files->num_bytes());
  for (uint32_t i = 0; i < 5; ++i) CHECK(second.get(i, i % 2));
  CHECK_FALSE(second.get(1, 0));  // of another group
  second.put(7);
  CHECK(files->files.size() == 1);  // it goes on in the file
  CHECK(Store(files).get(7));
}

TEST_CASE("a flipped bit anywhere in a file costs blocks, and is counted when it matters") {
  const auto original = std::make_shared<MemoryFiles>();
  {
    Store store(original);
    for (uint32_t i = 0; i < 3; ++i) store.put(i);
  }
  const size_t size = only_file(*original).size();
  REQUIRE(size == kSegmentHeaderBytes + 3 * kRecord);
  uint64_t num_lost = 0, num_counted = 0;
  for (size_t bit = 0; bit < 8 * size; ++bit) {
    const auto files = std::make_shared<MemoryFiles>(*original);
    only_file(*files)[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    Store store(files);
    uint32_t found = 0;
    for (uint32_t i = 0; i < 3; ++i) found += store.get(i);
    const bool is_counted = unusable(store.store.stats()) > 0;
    INFO("bit " << bit);
    // One bit of a record's first word makes a dead one of it.
    CHECK((is_counted || found == 2));
    num_lost += found < 3;
    num_counted += is_counted;
    // What is lost can be written anew, and is found then.
    for (uint32_t i = 0; i < 3; ++i) store.put(i);
    for (uint32_t i = 0; i < 3; ++i) CHECK(store.get(i));
  }
  CHECK(num_lost == 8 * size);
  CHECK(num_counted >= num_lost - 3);
}

TEST_CASE("a file that ends anywhere keeps what is whole, and goes on") {
  const auto original = std::make_shared<MemoryFiles>();
  {
    Store store(original);
    for (uint32_t i = 0; i < 3; ++i) store.put(i);
  }
  for (size_t size = 0; size < only_file(*original).size(); ++size) {
    const auto files = std::make_shared<MemoryFiles>(*original);
    only_file(*files).resize(size);
    Store store(files);
    const uint64_t whole = size < kSegmentHeaderBytes ? 0 : (size - kSegmentHeaderBytes) / kRecord;
    INFO(size << " bytes");
    for (uint32_t i = 0; i < 3; ++i) CHECK(store.get(i) == (i < whole));
    const bool ends_right = size >= kSegmentHeaderBytes && (size - kSegmentHeaderBytes) % kRecord == 0;
    CHECK(store.store.stats().bad_truncated == (ends_right ? 0 : 1));
    store.put(8);
    CHECK(store.get(8));
    CHECK(store.store.stats().bytes_used == files->num_bytes());
    CHECK(Store(files).get(8));
  }
}

TEST_CASE("a file that becomes shorter while it is read from is told as truncated") {
  const auto files = std::make_shared<MemoryFiles>();
  Store store(files);
  store.put(1);
  store.put(2);
  only_file(*files).resize(kSegmentHeaderBytes + kRecord + 10);
  CHECK(store.get(1));
  CHECK_FALSE(store.get(2));
  CHECK(store.store.stats().bad_truncated == 1);
  CHECK_FALSE(store.store.contains(digest_of(2)));
}

TEST_CASE("files of another identity or version are not read, and are the first to go") {
  const auto files = std::make_shared<MemoryFiles>();
  Store(files, limits_of(64, 1)).put(1);
  Store other(files, limits_of(64, 2));
  CHECK(other.store.stats().bad_foreign == 1);
  CHECK_FALSE(other.get(1));
  other.put(1);
  CHECK(other.get(1));
  CHECK(files->files.size() == 2);
  Store first(files, limits_of(64, 1));
  CHECK(first.get(1));
  for (uint32_t i = 2; i < 100; ++i) first.put(i);
  CHECK(first.store.stats().bytes_used <= limits_of(64).bytes_max);
  Store again(files, limits_of(64, 2));
  CHECK_FALSE(again.get(1));  // it was foreign to the first one

  auto& bytes = files->files.begin()->second.bytes;
  bytes[8] ^= std::byte{2};  // its version
  CHECK(Store(files, limits_of(64, 1)).store.stats().bad_foreign == 1);
}

TEST_CASE("a record that holds other tokens than its key stands for is not used") {
  const auto files = std::make_shared<MemoryFiles>();
  Store(files).put(1);
  // As nobody writes it: everything agrees but what the key stands for.
  auto& bytes = only_file(*files);
  const std::span record = std::span(bytes).subspan(kSegmentHeaderBytes);
  RecordHeader header = *read_header(record, limits_of(64).shapes);
  header.key = digest_of(2);
  seal_record(header, record);
  Store store(files);
  CHECK(store.store.contains(digest_of(2)));
  CHECK_FALSE(store.get(2));
  CHECK(store.store.stats().bad_tokens == 1);
  CHECK_FALSE(Store(files).store.contains(digest_of(2)));  // nor by the next process
}

TEST_CASE("what is erased or forgotten is not found by the next process") {
  const auto files = std::make_shared<MemoryFiles>();
  {
    Store store(files);
    for (uint32_t i = 0; i < 6; ++i) store.put(i);
    store.store.erase(digest_of(1));
    store.store.forget(1);  // of 0 and 3
  }
  Store store(files);
  for (uint32_t i = 0; i < 6; ++i) CHECK(store.get(i) == (i == 2 || i == 4 || i == 5));
  CHECK(unusable(store.store.stats()) == 0);
  // Where it cannot be marked, the file goes with all that it holds.
  files->fail_writes = 1;
  store.store.erase(digest_of(2));
  CHECK(files->files.empty());
  CHECK_FALSE(store.get(4));
  // Before the files are known, too.
  Store(files).put(3);
  SegmentStore fresh(std::make_unique<MemoryFolder>(files), limits_of(1000));
  fresh.forget(1);
  CHECK_FALSE(Store(files).get(3));
}

TEST_CASE("the files never take more than they may, and what is unused for longest goes first") {
  const auto files = std::make_shared<MemoryFiles>();
  const SegmentLimits limits = limits_of(40);
  {
    Store store(files, limits);
    for (uint32_t i = 0; i < 200; ++i) {
      store.put(i);
      CHECK(files->num_bytes() <= limits.bytes_max);
      CHECK(store.store.stats().bytes_used == files->num_bytes());
      CHECK(store.get(i));
      CHECK(store.get(0));  // used all the time
    }
    CHECK_FALSE(store.get(50));
    CHECK(store.get(190));
    CHECK(store.store.stats().blocks_evicted > 100);
    CHECK(store.store.stats().blocks + store.store.stats().blocks_evicted == 200);
  }
  // With a smaller bound the next process makes room at its first write. The order of use is known.
  SegmentLimits smaller = limits;
  smaller.bytes_max = limits.least_bytes();
  Store store(files, smaller);
  store.put(500);
  CHECK(files->num_bytes() <= smaller.bytes_max);
  CHECK(store.get(500));
}

TEST_CASE("a full disk drops writes, and the tier goes on when there is room") {
  const auto files = std::make_shared<MemoryFiles>();
  Store store(files);
  for (uint32_t i = 0; i < 4; ++i) store.put(i);
  files->bytes_max = files->num_bytes() + 10;
  for (uint32_t i = 4; i < 8; ++i) store.put(i);
  CHECK(store.store.stats().dropped_disk == 4);
  CHECK(files->num_bytes() == kSegmentHeaderBytes + 4 * kRecord);
  for (uint32_t i = 0; i < 8; ++i) CHECK(store.get(i) == (i < 4));
  files->bytes_max = ~uint64_t{0};
  for (uint32_t i = 8; i < 80; ++i) store.put(i);
  CHECK(store.get(79));
  CHECK(Store(files).get(79));
  // A file that cannot be made.
  const auto none = std::make_shared<MemoryFiles>();
  none->bytes_max = 10;
  Store full(none);
  full.put(1);
  CHECK(full.store.stats().dropped_disk == 1);
  CHECK(none->files.empty());
}

TEST_CASE("a disk that cannot be read is counted") {
  const auto files = std::make_shared<MemoryFiles>();
  Store store(files);
  store.put(1);
  store.put(2);
  files->fail_reads = 1;
  CHECK_FALSE(store.get(1));
  CHECK(store.store.stats().bad_read == 1);
  CHECK(store.get(2));
  files->fail_reads = 1;
  Store again(files);
  CHECK(again.store.stats().bad_read == 1);
}

TEST_CASE("a store agrees with a map over random calls, faults and restarts") {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const auto files = std::make_shared<MemoryFiles>();
    const SegmentLimits limits = limits_of(10 + random() % 60);
    auto store = std::make_unique<Store>(files, limits);
    std::vector<bool> erased(40);
    for (int call = 0; call < 400; ++call) {
      const auto number = static_cast<uint32_t>(random() % erased.size());
      switch (random() % 12) {
        case 0:
          store->store.erase(digest_of(number));
          erased[number] = true;
          break;
        case 1:
          files->fail_writes = static_cast<uint32_t>(random() % 3);
          break;
        case 2:
          files->fail_writes = 0;
          store.reset();
          store = std::make_unique<Store>(files, limits);
          break;
        case 3: {
          if (files->files.empty()) break;
          auto& bytes =
              std::next(files->files.begin(), static_cast<ptrdiff_t>(random() % files->files.size()))->second.bytes;
          if (!bytes.empty()) bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << random() % 8);
          break;
        }
        case 4:
        case 5:
        case 6:
          if (store->get(number)) CHECK_FALSE(erased[number]);
          break;
        default:
          store->put(number);
          if (store->store.contains(digest_of(number))) erased[number] = false;
      }
      CHECK(files->num_bytes() <= limits.bytes_max);
    }
  }
}

// ---- files of the file system --------------------------------------------------------------------------------------

namespace {

struct TemporaryFolder {
  TemporaryFolder() {
    path = std::filesystem::temp_directory_path() / ("llmrt_disk_" + std::to_string(::getpid()));
    std::filesystem::remove_all(path);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

mode_t mode_of(const std::filesystem::path& path) {
  struct stat info {};
  REQUIRE(::lstat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

}  // namespace

TEST_CASE("a folder is its owner's, is used by one at a time, and follows no links") {
  const TemporaryFolder folder;
  const auto path = folder.path / "models" / "one";
  Result<std::unique_ptr<Folder>> first = open_locked_folder(path.string());
  REQUIRE(first.ok());
  CHECK(mode_of(path) == 0700);
  const auto second = open_locked_folder(path.string());
  REQUIRE_FALSE(second.ok());
  CHECK(second.error().code == ErrorCode::kOverloaded);
  CHECK(second.error().message.find(path.string()) != std::string::npos);

  std::filesystem::create_symlink("/etc/passwd", path / "0000000000000001.kv");
  std::filesystem::create_directory(path / "0000000000000002.kv");
  CHECK_FALSE((*first)->open("0000000000000001.kv", false).ok());
  CHECK_FALSE((*first)->open("0000000000000002.kv", false).ok());
  CHECK((*first)->list()->empty());
  {
    auto file = (*first)->open("a", true);
    REQUIRE(file.ok());
    CHECK(mode_of(path / "a") == 0600);
    const std::byte bytes[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
    CHECK((*file)->write(4, bytes).ok());
    std::byte read[7] = {};
    CHECK((*file)->read(0, read).ok());
    CHECK(read[6] == std::byte{3});
    CHECK((*file)->read(5, read).error().code == ErrorCode::kCorruptFile);
    CHECK((*file)->cut(5).ok());
    CHECK((*first)->list()->at(0).num_bytes == 5);
    CHECK_FALSE((*first)->open("a", true).ok());
  }
  CHECK((*first)->remove("a").ok());
  const std::byte more[2] = {std::byte{7}, std::byte{8}};
  std::ofstream(path / "b.new") << "what a crash left";
  for (const size_t count : {size_t{2}, size_t{1}}) {
    CHECK((*first)->replace("b", std::span(more).first(count)).ok());
    CHECK(*(*(*first)->open("b", false))->num_bytes() == count);
    CHECK(mode_of(path / "b") == 0600);
    CHECK((*first)->list()->size() == 1);
  }
  CHECK((*first)->list(0)->empty());
  first = make_error(ErrorCode::kIo, "");  // it is let go
  CHECK(open_locked_folder(path.string()).ok());
}

TEST_CASE("a store lives through a limit of file sizes, and its files through the process") {
  const TemporaryFolder folder;
  const auto open = [&] { return *open_locked_folder(folder.path.string()); };
  SegmentLimits limits = limits_of(1000);
  {
    SegmentStore store(open(), limits);
    rlimit old{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
    const rlimit small{kSegmentHeaderBytes + 2 * kRecord + 17, old.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    for (uint32_t i = 0; i < 4; ++i) {
      auto bytes = payload_of(i);
      const std::span<std::byte> parts[] = {bytes};
      store.put(block_of(i), parts);
    }
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
    CHECK(store.stats().blocks == 2);
    CHECK(store.stats().dropped_disk == 2);
  }
  SegmentStore store(open(), limits);
  while (store.scan_next()) continue;
  CHECK(store.stats().blocks == 2);
  CHECK(unusable(store.stats()) == 0);
  std::vector<std::byte> bytes(kPayload);
  const std::span<std::byte> parts[] = {bytes};
  CHECK(store.get(block_of(1), parts));
  CHECK(bytes == payload_of(1));
}
