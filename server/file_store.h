// Clients' files and their batches in a folder of this machine. A record is a small JSON file that is replaced whole,
// what a file holds lies beside it, and both are named by ids of ours alone:
//
//     lock                      held while a server uses the folder
//     file-<32 digits>.json     of a file
//     file-<32 digits>.data     what it holds, or the answers of a batch that is not over
//     batch_<32 digits>.json    of a batch
//
// After a crash the records are as they were; data without a record and without a batch that writes it is removed.
// Everything that a key owns is out of the sight of the others. Thread-safe; calls may wait for the disk.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/log/log.h"
#include "core/platform/folder.h"
#include "server/server_figures.h"
#include "server/stored_records.h"

namespace llmrt::server {

class FileStore;

// The data of an id, which grows at its end; one owner. What it takes counts against the store's bound.
class GrowingFile {
 public:
  GrowingFile(const GrowingFile&) = delete;

  // All or nothing. never_fits: the store is full; io_error.
  Status append(std::string_view bytes);
  // What was appended outlives a loss of power.
  Status sync();
  uint64_t bytes() const { return bytes_; }

 private:
  friend class FileStore;
  GrowingFile(FileStore* store, std::unique_ptr<FolderFile> file, uint64_t bytes)
      : store_(store), file_(std::move(file)), bytes_(bytes) {}

  FileStore* const store_;
  const std::unique_ptr<FolderFile> file_;
  uint64_t bytes_;
};

// A part of a list, as OpenAI's API pages it.
struct ListQuery {
  std::string after = {};  // an id; empty: from the first
  size_t limit = 20;
  bool is_ascending = false;  // the newest last
  std::string purpose = {};   // of files; empty: any
};
template <typename Record>
struct ListPage {
  std::vector<Record> records;
  bool has_more = false;
};

// A batch that is not over.
struct OpenBatch {
  std::string id, owner;
  BatchState state;
  int64_t expires_at;
};

class FileStore {
 public:
  static constexpr size_t kFilesMax = 10'000, kBatchesMax = 4096;
  static constexpr uint64_t kFileBytesMax = uint64_t{512} << 20;  // of one that a client sends

  struct Settings {
    std::string folder;                   // made where it is not there
    uint64_t bytes_max = 0;               // of all data
    std::function<int64_t()> now_s = {};  // empty: the system's clock
  };
  // io_error; invalid_argument where another process uses the folder. What is left out of it is told in the log.
  static Result<std::unique_ptr<FileStore>> open(Settings settings, Log& log);
  FileStore(const FileStore&) = delete;

  int64_t now_s() const { return settings_.now_s(); }
  uint64_t used_bytes() const { return used_bytes_; }
  FileFigures figures() const;
  uint64_t bytes_max() const { return settings_.bytes_max; }

  // ---- data: of any id that make_file_id() gave
  static std::string make_file_id();
  std::string data_path(std::string_view id) const;
  Result<std::unique_ptr<FolderFile>> open_data(std::string_view id) const;
  // Goes on at the end of what is there, behind the first `keep` bytes of it.
  Result<std::unique_ptr<GrowingFile>> grow(const std::string& id, uint64_t keep = 0);
  void drop_data(const std::string& id);

  // ---- files
  // Whose data is there, whole. Sets its number. never_fits: it is a client's, and there are too many.
  Result<StoredFile> add_file(StoredFile file);
  std::optional<StoredFile> find_file(std::string_view owner, std::string_view id) const;
  // invalid_argument: `after` is none of them.
  Result<ListPage<StoredFile>> list_files(std::string_view owner, const ListQuery& query) const;
  // not_found; invalid_argument: a batch that is not over reads it.
  Status remove_file(std::string_view owner, std::string_view id);

  // ---- batches
  // Sets its id and number. never_fits: there are too many that are not over; else the oldest makes room, of the key
  // that has most. not_found: its input.
  Result<StoredBatch> add_batch(StoredBatch batch);
  std::optional<StoredBatch> find_batch(std::string_view owner, std::string_view id) const;
  Result<ListPage<StoredBatch>> list_batches(std::string_view owner, const ListQuery& query) const;
  // `change` makes of it what it is now, or an error, which changes nothing. not_found.
  Result<StoredBatch> change_batch(std::string_view owner, std::string_view id,
                                   const std::function<Status(StoredBatch&)>& change);
  // In memory alone: it is counted again behind a restart.
  void count_line(std::string_view batch_id, bool is_completed);
  // The oldest first.
  std::vector<OpenBatch> open_batches() const;

  // Removes files whose time has come, but those that a batch reads.
  void remove_expired();

 private:
  friend class GrowingFile;
  template <typename Record>
  struct Table {
    std::map<uint64_t, Record> by_number;
    std::map<std::string, uint64_t, std::less<>> numbers;  // by id

    void insert(Record record);
    void erase(uint64_t number);
    const Record* find(std::string_view id) const;
    Result<ListPage<Record>> list(std::string_view owner, const ListQuery& query) const;
  };

  FileStore(Settings settings, std::unique_ptr<Folder> folder)
      : settings_(std::move(settings)), folder_(std::move(folder)) {}
  Status load(Log& log);
  template <typename Record>
  void load_record(const std::string& id, Result<Record> (*read)(const boost::json::object&), Table<Record>* table,
                   Log& log);
  Result<boost::json::object> read_record(const std::string& id) const;
  void load_data(const std::vector<FolderEntry>& entries, Log& log);
  std::string record_path(std::string_view id) const;
  template <typename Record>
  Status write_record(const Record& record);
  bool reserve(uint64_t bytes);
  // Locked:
  bool is_read(std::string_view file_id) const;
  void remove_locked(uint64_t number);
  bool make_room_for_batch();

  Settings settings_;
  const std::unique_ptr<Folder> folder_;
  std::atomic<uint64_t> used_bytes_ = 0;
  mutable std::mutex mutex_;
  Table<StoredFile> files_;
  Table<StoredBatch> batches_;
  uint64_t next_number_ = 1;
  uint64_t lines_completed_ = 0, lines_failed_ = 0;  // since the store was opened
  bool has_corrupt_records_ = false;
};

}  // namespace llmrt::server
