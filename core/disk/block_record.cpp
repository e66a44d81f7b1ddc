#include "core/disk/block_record.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/check.h"

namespace llmrt {
namespace {

static_assert(std::endian::native == std::endian::little);

// The checksum of a header from its byte `begin` on, up to the checksum itself, which stands last. A record leaves out
// its state.
template <typename T>
uint64_t own_checksum(const T& header, size_t begin) {
  return checksum_of(std::as_bytes(std::span(&header, 1)).subspan(begin, sizeof(T) - sizeof(uint64_t) - begin));
}

}  // namespace

uint64_t checksum_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

void seal_record(RecordHeader header, std::span<std::byte> record) {
  LLMRT_CHECK(record.size() == kRecordHeaderBytes + uint64_t{header.num_tokens} * 4 + header.payload_bytes,
              "a record is as long as its header says");
  header.body_checksum = checksum_of(record.subspan(kRecordHeaderBytes));
  header.header_checksum = own_checksum(header, sizeof header.state);
  std::memcpy(record.data(), &header, sizeof header);
}

std::optional<RecordHeader> read_header(std::span<const std::byte> bytes, std::span<const RecordShape> shapes) {
  RecordHeader header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.state != RecordHeader::kLive && header.state != RecordHeader::kDead) return std::nullopt;
  if (header.header_checksum != own_checksum(header, sizeof header.state)) return std::nullopt;
  if (header.kv_group >= shapes.size()) return std::nullopt;
  const RecordShape& shape = shapes[header.kv_group];
  if (header.num_tokens != shape.num_tokens || header.payload_bytes != shape.payload_bytes) return std::nullopt;
  return header;
}

bool is_intact(const RecordHeader& header, std::span<const std::byte> body) {
  return checksum_of(body) == header.body_checksum;
}

bool has_tokens(std::span<const std::byte> body, std::span<const int32_t> tokens) {
  const auto wanted = std::as_bytes(tokens);
  return body.size() >= wanted.size() && std::ranges::equal(body.first(wanted.size()), wanted);
}

SegmentHeader make_segment_header(const Digest& identity) {
  SegmentHeader header{.identity = identity};
  header.checksum = own_checksum(header, 0);
  return header;
}

SegmentKind kind_of_segment(std::span<const std::byte> bytes, const Digest& identity) {
  SegmentHeader header;
  if (bytes.size() < sizeof header) return SegmentKind::kCorrupt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != SegmentHeader::kMagic) return SegmentKind::kCorrupt;
  if (header.version != SegmentHeader::kVersion) return SegmentKind::kForeign;
  if (header.checksum != own_checksum(header, 0)) return SegmentKind::kCorrupt;
  return header.identity == identity ? SegmentKind::kOurs : SegmentKind::kForeign;
}

}  // namespace llmrt
