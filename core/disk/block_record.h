// A block of keys and values, or a record of states, as it lies in a segment file:
//   header (80 bytes), tokens (4 bytes each), payload.
// Little-endian. The header has a checksum of its own, so that a file can be walked without reading payloads, and one
// of tokens and payload. The first word alone is outside both: it is overwritten where it stands when a record is not
// to be found again. Pure functions; nothing read from a file is trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/base/sha256.h"

namespace llmrt {

// What every block of a KV group has in a file.
struct RecordShape {
  uint32_t num_tokens = 0;
  uint64_t payload_bytes = 0;

  uint64_t body_bytes() const { return uint64_t{num_tokens} * 4 + payload_bytes; }
};

struct RecordHeader {
  static constexpr uint32_t kLive = 0x4b564231, kDead = 0x4b564230;

  uint32_t state = kLive;
  uint32_t kv_group = 0;
  uint32_t num_tokens = 0;
  uint32_t reserved = 0;
  uint64_t payload_bytes = 0;
  uint64_t root = 0;  // of the text (KvSpace::root)
  Digest key = {};
  uint64_t body_checksum = 0;
  uint64_t header_checksum = 0;

  bool is_live() const { return state == kLive; }
};
inline constexpr uint64_t kRecordHeaderBytes = sizeof(RecordHeader);
static_assert(kRecordHeaderBytes == 80);

// XXH3 (64 bits).
uint64_t checksum_of(std::span<const std::byte> bytes);

// Fills in the checksums, and lays the header down in front of the body: tokens and payload, which stand behind the
// header's bytes in `record` already.
void seal_record(RecordHeader header, std::span<std::byte> record);
// Nothing: the bytes are no header, or one that does not fit any of the shapes (by KV group).
std::optional<RecordHeader> read_header(std::span<const std::byte> bytes, std::span<const RecordShape> shapes);
// Whether the body is the one that the header was made for.
bool is_intact(const RecordHeader& header, std::span<const std::byte> body);
// Whether the body begins with these tokens.
bool has_tokens(std::span<const std::byte> body, std::span<const int32_t> tokens);

// The beginning of a segment file.
struct SegmentHeader {
  static constexpr uint64_t kMagic = 0x314745535f564b4c;  // LKV_SEG1
  static constexpr uint32_t kVersion = 1;

  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t reserved = 0;
  Digest identity = {};  // of model, configuration and program: what makes keys and values beside the tokens
  uint64_t checksum = 0;
};
inline constexpr uint64_t kSegmentHeaderBytes = sizeof(SegmentHeader);
static_assert(kSegmentHeaderBytes == 56);

SegmentHeader make_segment_header(const Digest& identity);
enum class SegmentKind { kOurs, kForeign, kCorrupt };
SegmentKind kind_of_segment(std::span<const std::byte> bytes, const Digest& identity);

}  // namespace llmrt
