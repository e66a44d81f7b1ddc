// Blocks in the segment files of a folder, found by key. Records are appended to one file until it is full, then to the
// next; where room is needed the file that was unused for longest goes, with all that it holds. Which block lies where
// stands in memory alone, and is read from the files again at the start (scan_next).
//
// Whatever cannot be read, is not intact or is not what was asked for is counted, taken out and told as missing: there
// are no errors. A write that fails is counted and undone; the next few are not tried.
//
// Owns the folder. contains() and stats() may be called from any thread, everything else from one.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/disk/block_record.h"
#include "core/disk/block_store.h"
#include "core/platform/folder.h"

namespace llmrt {

struct SegmentLimits {
  Digest identity = {};             // what makes keys and values beside the tokens: files of another one are not read
  std::vector<RecordShape> shapes;  // by KV group
  uint64_t bytes_max = 0;           // of all files

  uint64_t record_bytes_max() const;
  // The most bytes that one file takes. Several files fit, each with several records: bytes_max is at least
  // least_bytes().
  uint64_t segment_bytes() const;
  uint64_t least_bytes() const;
};

class SegmentStore final : public BlockStore {
 public:
  // bytes_max is at least least_bytes(). Files that the folder has are listed now, and read by scan_next. What is
  // beyond bytes_max goes with the next write.
  SegmentStore(std::unique_ptr<Folder> folder, SegmentLimits limits);

  // Reads the headers of one file that is not known yet, the newest first. False: all are known.
  bool scan_next() override;
  bool contains(const Digest& key) const override;
  void put(const DiskBlock& block, Parts parts) override;
  bool get(const DiskBlock& block, Parts parts) override;
  void erase(const Digest& key) override;
  void forget(uint64_t root) override;
  DiskStats stats() const override;

 private:
  struct Place {
    uint64_t segment = 0, offset = 0, root = 0;
  };
  struct Segment {
    uint64_t num_bytes = 0;
    uint64_t used = 0;              // when, in uses of the store; 0: it holds nothing that can be found
    bool is_scanned = false;        // or made by this object
    bool may_grow = false;          // what it holds is whole up to its end
    std::vector<Digest> keys = {};  // of its records
    uint32_t num_reads = 0;         // now and then the file system is told of them
  };
  struct FirstWord {  // a digest is its own hash
    size_t operator()(const Digest& digest) const {
      size_t word;
      std::memcpy(&word, digest.data(), sizeof word);
      return word;
    }
  };

  void scan(uint64_t id, Segment& segment);
  void scan_records(uint64_t id, Segment& segment, FolderFile& file);
  bool make_room(uint64_t num_bytes);
  uint64_t segment_to_evict() const;
  void remove_segment(uint64_t id);
  Status append(const DiskBlock& block);
  Result<uint64_t> segment_to_grow(uint64_t num_bytes);
  FolderFile* file_of(uint64_t id);
  // It is not found any more, now and after a start.
  void drop(const Digest& key, const Place& place);
  void use(Segment& segment);
  void count(uint64_t DiskStats::*counter);

  const std::unique_ptr<Folder> folder_;
  const SegmentLimits limits_;
  std::unordered_map<uint64_t, Segment> segments_;  // by the number in their name
  std::vector<uint64_t> to_scan_;                   // the last goes first
  uint64_t num_uses_ = 0, last_id_ = 0;
  uint64_t active_ = 0;  // where records are added; 0 = none
  uint64_t writes_to_skip_ = 0;
  uint64_t open_id_ = 0;
  std::unique_ptr<FolderFile> open_file_;  // of open_id_
  std::vector<std::byte> buffer_;          // of one record

  mutable std::mutex mutex_;  // of what follows
  std::unordered_map<Digest, Place, FirstWord> index_;
  DiskStats stats_;
};

}  // namespace llmrt
