// A segment file of the disk tier from anywhere: it is read in bounded time, what is told as there has the key's tokens
// and a body that its checksum is for, and the store goes on behind it. The first byte says whether headers get right
// checksums, so that what stands behind them is reached.
#include <cstdlib>
#include <cstring>

#include "core/disk/segment_store.h"
#include "tests/fakes/memory_folder.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

constexpr uint32_t kTokens = 2;
const std::vector<RecordShape> kShapes = {{kTokens, 16}, {kTokens, 24}};

void demand(bool holds) {
  if (!holds) std::abort();
}

// Wherever a record would stand behind records of these shapes.
void seal_all(std::span<std::byte> bytes, const Digest& identity) {
  if (bytes.size() < kSegmentHeaderBytes) return;
  const SegmentHeader header = make_segment_header(identity);
  std::memcpy(bytes.data(), &header, sizeof header);
  for (size_t at = kSegmentHeaderBytes; at + kRecordHeaderBytes <= bytes.size();) {
    RecordHeader record;
    std::memcpy(&record, bytes.data() + at, sizeof record);
    const RecordShape& shape = kShapes[record.kv_group % kShapes.size()];
    const size_t size = kRecordHeaderBytes + shape.body_bytes();
    if (record.num_tokens == shape.num_tokens && record.payload_bytes == shape.payload_bytes &&
        at + size <= bytes.size())
      seal_record(record, bytes.subspan(at, size));
    at += size;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Digest identity = Sha256().add(1).finish();
  const auto files = std::make_shared<MemoryFiles>();
  auto& bytes = files->files["0000000000000001.kv"].bytes;
  for (size_t i = 1; i < size; ++i) bytes.push_back(static_cast<std::byte>(data[i]));
  if (data[0] % 2 == 1) seal_all(bytes, identity);

  std::vector<Digest> keys;
  for (size_t at = kSegmentHeaderBytes; at + kRecordHeaderBytes <= bytes.size(); at += 8)
    if (const auto header = read_header(std::span(bytes).subspan(at), kShapes)) keys.push_back(header->key);
  SegmentStore store(std::make_unique<MemoryFolder>(files), {identity, kShapes, 4096 + 2 * size});
  demand(!store.scan_next());
  demand(store.stats().blocks <= keys.size());
  std::vector<std::byte> payload(24);
  for (const Digest& key : keys) {
    for (uint32_t group = 0; group < kShapes.size(); ++group) {
      const std::span<std::byte> parts[] = {std::span(payload).first(kShapes[group].payload_bytes)};
      const bool was_there = store.contains(key);
      const bool is_there = store.get({.kv_group = group, .key = key, .tokens = {1, 2}}, parts);
      demand(was_there || !is_there);
      demand(is_there == store.contains(key));
    }
  }
  const DiskBlock block{.kv_group = 0, .key = Sha256().add(2).finish(), .tokens = {3, 4}, .root = 9};
  std::ranges::fill(payload, std::byte{7});
  const std::span<std::byte> parts[] = {std::span(payload).first(16)};
  store.put(block, parts);
  std::ranges::fill(payload, std::byte{0});
  demand(store.get(block, parts) && payload[15] == std::byte{7});
  demand(store.stats().bytes_used == files->num_bytes());
  return 0;
}
