#include "core/disk/segment_store.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>

#include "core/base/check.h"

namespace llmrt {
namespace {

constexpr uint64_t kSegmentBytesMax = 256u << 20;
constexpr uint64_t kSegmentsMin = 16;
constexpr uint64_t kSkippedWrites = 63;  // after one that failed
constexpr uint32_t kReadsToNote = 256;   // of a file, until the file system is told of its use again
constexpr std::string_view kSuffix = ".kv";

std::string segment_name(uint64_t id) {
  return fmt::format("{:016x}{}", id, kSuffix);
}

// Nothing: the file is none of ours.
std::optional<uint64_t> segment_id(std::string_view name) {
  uint64_t id = 0;
  const char* end = name.data() + 16;
  if (name.size() != 16 + kSuffix.size() || !name.ends_with(kSuffix)) return std::nullopt;
  const auto [stop, error] = std::from_chars(name.data(), end, id, 16);
  if (error != std::errc() || stop != end || id == 0 || segment_name(id) != name) return std::nullopt;
  return id;
}

}  // namespace

uint64_t SegmentLimits::record_bytes_max() const {
  uint64_t most = 0;
  for (const RecordShape& shape : shapes) most = std::max(most, kRecordHeaderBytes + shape.body_bytes());
  return most;
}

uint64_t SegmentLimits::segment_bytes() const {
  return std::max(std::min(bytes_max / kSegmentsMin, kSegmentBytesMax), kSegmentHeaderBytes + record_bytes_max());
}

uint64_t SegmentLimits::least_bytes() const {
  return 4 * (kSegmentHeaderBytes + record_bytes_max());
}

SegmentStore::SegmentStore(std::unique_ptr<Folder> folder, SegmentLimits limits)
    : folder_(std::move(folder)), limits_(std::move(limits)), buffer_(limits_.record_bytes_max()) {
  LLMRT_CHECK(limits_.bytes_max >= limits_.least_bytes(), "a disk tier holds a few blocks");
  stats_.is_on = true;
  stats_.bytes_max = limits_.bytes_max;
  Result<std::vector<FolderEntry>> entries = folder_->list();
  if (!entries) {
    ++stats_.bad_read;
    return;
  }
  std::ranges::sort(*entries, {}, &FolderEntry::used_ns);
  for (const FolderEntry& entry : *entries) {
    const std::optional<uint64_t> id = segment_id(entry.name);
    if (!id) continue;
    segments_[*id] = {.num_bytes = entry.num_bytes, .used = ++num_uses_};
    stats_.bytes_used += entry.num_bytes;
    last_id_ = std::max(last_id_, *id);
    to_scan_.push_back(*id);
  }
}

// ---- the start -----------------------------------------------------------------------------------------------------

bool SegmentStore::scan_next() {
  while (!to_scan_.empty()) {
    const uint64_t id = to_scan_.back();
    to_scan_.pop_back();
    const auto segment = segments_.find(id);
    if (segment == segments_.end()) continue;  // it had to make room
    scan(id, segment->second);
    break;
  }
  return !to_scan_.empty();
}

void SegmentStore::scan(uint64_t id, Segment& segment) {
  segment.is_scanned = true;
  FolderFile* file = file_of(id);
  std::array<std::byte, kSegmentHeaderBytes> bytes;
  if (segment.num_bytes < bytes.size()) {
    count(&DiskStats::bad_truncated);
    segment.used = 0;
    return;
  }
  SegmentKind kind = SegmentKind::kCorrupt;
  const bool is_read = file != nullptr && file->read(0, bytes).ok();
  if (is_read) kind = kind_of_segment(bytes, limits_.identity);
  if (kind == SegmentKind::kOurs) return scan_records(id, segment, *file);
  count(!is_read                        ? &DiskStats::bad_read
        : kind == SegmentKind::kForeign ? &DiskStats::bad_foreign
                                        : &DiskStats::bad_corrupt);
  segment.used = 0;
}

// Lengths are those of the shapes, so each step goes on by more than a header.
void SegmentStore::scan_records(uint64_t id, Segment& segment, FolderFile& file) {
  uint64_t offset = kSegmentHeaderBytes;
  while (segment.num_bytes - offset >= kRecordHeaderBytes) {
    std::array<std::byte, kRecordHeaderBytes> bytes;
    const bool is_read = file.read(offset, bytes).ok();
    const std::optional<RecordHeader> header = is_read ? read_header(bytes, limits_.shapes) : std::nullopt;
    if (!header) {
      count(is_read ? &DiskStats::bad_corrupt : &DiskStats::bad_read);
      return;
    }
    const uint64_t end = offset + kRecordHeaderBytes + limits_.shapes[header->kv_group].body_bytes();
    if (end > segment.num_bytes) break;
    if (header->is_live()) {
      std::lock_guard lock(mutex_);
      if (index_.try_emplace(header->key, Place{id, offset, header->root}).second) segment.keys.push_back(header->key);
      stats_.blocks = index_.size();
    }
    offset = end;
  }
  segment.may_grow = true;
  if (offset == segment.num_bytes) return;
  // The process ended while it wrote.
  count(&DiskStats::bad_truncated);
  segment.may_grow = file.cut(offset).ok();
  if (!segment.may_grow) return;
  std::lock_guard lock(mutex_);
  stats_.bytes_used -= segment.num_bytes - offset;
  segment.num_bytes = offset;
}

// ---- blocks --------------------------------------------------------------------------------------------------------

bool SegmentStore::contains(const Digest& key) const {
  std::lock_guard lock(mutex_);
  return index_.contains(key);
}

void SegmentStore::put(const DiskBlock& block, Parts parts) {
  if (contains(block.key)) return;
  if (writes_to_skip_ > 0) {
    --writes_to_skip_;
    return count(&DiskStats::dropped_disk);
  }
  const RecordShape& shape = limits_.shapes[block.kv_group];
  const std::span record(buffer_.data(), kRecordHeaderBytes + shape.body_bytes());
  LLMRT_CHECK(block.tokens.size() == shape.num_tokens, "a block that is full");
  std::byte* at = record.data() + kRecordHeaderBytes;
  std::memcpy(at, block.tokens.data(), block.tokens.size() * 4);
  at += block.tokens.size() * 4;
  for (const std::span<std::byte>& part : parts) at = std::ranges::copy(part, at).out;
  LLMRT_CHECK(at == record.data() + record.size(), "the parts of a block make its payload");
  seal_record({.kv_group = block.kv_group,
               .num_tokens = shape.num_tokens,
               .payload_bytes = shape.payload_bytes,
               .root = block.root,
               .key = block.key},
              record);
  if (append(block).ok()) return;
  count(&DiskStats::dropped_disk);
  writes_to_skip_ = kSkippedWrites;
}

// The record in the buffer.
Status SegmentStore::append(const DiskBlock& block) {
  const uint64_t num_bytes = kRecordHeaderBytes + limits_.shapes[block.kv_group].body_bytes();
  Result<uint64_t> id = segment_to_grow(num_bytes);
  if (!id) return id.error();
  Segment& segment = segments_.at(*id);
  const uint64_t offset = segment.num_bytes;
  FolderFile* file = file_of(*id);
  Status status = file ? file->write(offset, std::span(buffer_).first(num_bytes))
                       : Status(make_error(ErrorCode::kIo, "segment {} is gone", *id));
  if (!status) {
    segment.may_grow = file && file->cut(offset).ok();
    if (!segment.may_grow) active_ = 0;
    return status;
  }
  use(segment);
  segment.keys.push_back(block.key);
  segment.num_bytes += num_bytes;
  std::lock_guard lock(mutex_);
  index_[block.key] = {*id, offset, block.root};
  stats_.blocks = index_.size();
  stats_.bytes_used += num_bytes;
  stats_.bytes_written += num_bytes;
  ++stats_.blocks_written;
  return {};
}

// A segment that takes so many bytes more, within the bounds of one and of all.
Result<uint64_t> SegmentStore::segment_to_grow(uint64_t num_bytes) {
  const auto has_room = [&](const Segment& segment) {
    return segment.may_grow && segment.num_bytes + num_bytes <= limits_.segment_bytes();
  };
  if (active_ == 0) {  // what the process before has begun
    const auto newest = segments_.find(last_id_);
    if (newest != segments_.end() && newest->second.is_scanned && has_room(newest->second)) active_ = last_id_;
  }
  const auto active = segments_.find(active_);
  const bool goes_on = active != segments_.end() && has_room(active->second);
  if (!goes_on) active_ = 0;
  if (!make_room(num_bytes + (goes_on ? 0 : kSegmentHeaderBytes)))
    return make_error(ErrorCode::kIo, "no file could be removed");
  if (goes_on) return active_;

  const uint64_t id = last_id_ + 1;
  Result<std::unique_ptr<FolderFile>> file = folder_->open(segment_name(id), /*create=*/true);
  if (!file) return file.error();
  last_id_ = id;
  const SegmentHeader header = make_segment_header(limits_.identity);
  if (Status status = (*file)->write(0, std::as_bytes(std::span(&header, 1))); !status) {
    (void)folder_->remove(segment_name(id));
    return status.error();
  }
  segments_[id] = {.num_bytes = kSegmentHeaderBytes, .is_scanned = true, .may_grow = true};
  open_id_ = id;
  open_file_ = *std::move(file);
  std::lock_guard lock(mutex_);
  stats_.bytes_used += kSegmentHeaderBytes;
  return active_ = id;
}

bool SegmentStore::make_room(uint64_t num_bytes) {
  while (stats_.bytes_used + num_bytes > limits_.bytes_max) {
    const uint64_t id = segment_to_evict();
    if (id == 0) return false;
    const size_t num_before = segments_.size();
    remove_segment(id);
    if (segments_.size() == num_before) return false;
  }
  return true;
}

uint64_t SegmentStore::segment_to_evict() const {
  uint64_t oldest = 0;
  for (const auto& [id, segment] : segments_)
    if (id != active_ && (oldest == 0 || segment.used < segments_.at(oldest).used)) oldest = id;
  return oldest;
}

void SegmentStore::remove_segment(uint64_t id) {
  if (open_id_ == id) {
    open_id_ = 0;
    open_file_.reset();
  }
  Status removed = folder_->remove(segment_name(id));
  if (!removed) return count(&DiskStats::bad_read);
  const auto segment = segments_.find(id);
  std::lock_guard lock(mutex_);
  for (const Digest& key : segment->second.keys) {
    const auto entry = index_.find(key);
    if (entry == index_.end() || entry->second.segment != id) continue;
    index_.erase(entry);
    ++stats_.blocks_evicted;
  }
  stats_.blocks = index_.size();
  stats_.bytes_used -= segment->second.num_bytes;
  segments_.erase(segment);
}

bool SegmentStore::get(const DiskBlock& block, Parts parts) {
  const auto entry = index_.find(block.key);  // this thread alone changes it
  if (entry == index_.end()) return false;
  const Place place = entry->second;
  const RecordShape& shape = limits_.shapes[block.kv_group];
  const std::span record(buffer_.data(), kRecordHeaderBytes + shape.body_bytes());
  FolderFile* file = file_of(place.segment);
  Status status = file ? file->read(place.offset, record) : Status(make_error(ErrorCode::kIo, "no file"));
  const auto fail = [&](uint64_t DiskStats::*counter) {
    count(counter);
    drop(block.key, place);
    return false;
  };
  if (!status)
    return fail(status.error().code == ErrorCode::kCorruptFile ? &DiskStats::bad_truncated : &DiskStats::bad_read);
  const std::optional<RecordHeader> header = read_header(record, limits_.shapes);
  if (!header || header->kv_group != block.kv_group || header->key != block.key || !header->is_live())
    return fail(&DiskStats::bad_corrupt);
  const auto body = record.subspan(kRecordHeaderBytes);
  if (!is_intact(*header, body)) return fail(&DiskStats::bad_corrupt);
  if (!has_tokens(body, block.tokens)) return fail(&DiskStats::bad_tokens);
  const std::byte* at = body.data() + uint64_t{shape.num_tokens} * 4;
  for (const std::span<std::byte>& part : parts) {
    std::memcpy(part.data(), at, part.size());
    at += part.size();
  }
  Segment& segment = segments_.at(place.segment);
  use(segment);
  if (segment.num_reads++ % kReadsToNote == 0) file->note_use();
  std::lock_guard lock(mutex_);
  ++stats_.blocks_read;
  stats_.bytes_read += record.size();
  return true;
}

void SegmentStore::erase(const Digest& key) {
  const auto entry = index_.find(key);
  if (entry != index_.end()) drop(key, Place(entry->second));
}

// A file that is not known yet may hold some of it: all are read first.
void SegmentStore::forget(uint64_t root) {
  while (scan_next()) continue;
  std::vector<std::pair<Digest, Place>> gone;
  for (const auto& entry : index_)
    if (entry.second.root == root) gone.push_back(entry);
  for (const auto& [key, place] : gone) drop(key, place);
}

// Where it cannot be marked in the file, the whole file goes: a start must not find it again.
void SegmentStore::drop(const Digest& key, const Place& place) {
  {
    std::lock_guard lock(mutex_);
    index_.erase(key);
    stats_.blocks = index_.size();
  }
  const uint32_t dead = RecordHeader::kDead;
  FolderFile* file = file_of(place.segment);
  if (file && file->write(place.offset, std::as_bytes(std::span(&dead, 1))).ok()) return;
  if (active_ == place.segment) active_ = 0;
  if (segments_.contains(place.segment)) remove_segment(place.segment);
}

DiskStats SegmentStore::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

FolderFile* SegmentStore::file_of(uint64_t id) {
  if (open_id_ == id && open_file_) return open_file_.get();
  open_id_ = 0;
  open_file_.reset();
  Result<std::unique_ptr<FolderFile>> file = folder_->open(segment_name(id), /*create=*/false);
  if (!file) return nullptr;
  open_id_ = id;
  open_file_ = *std::move(file);
  return open_file_.get();
}

void SegmentStore::use(Segment& segment) {
  segment.used = ++num_uses_;
}

void SegmentStore::count(uint64_t DiskStats::*counter) {
  std::lock_guard lock(mutex_);
  ++(stats_.*counter);
}

}  // namespace llmrt
