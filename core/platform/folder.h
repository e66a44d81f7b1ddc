// A folder of data files that one process writes, and its files: read and written at offsets. The rest of the program
// has no other door to such files; a test has folders in memory that fail on demand (tests/fakes/memory_folder.h).
//
// Errors are io_error with the system's reason, and corrupt_file for a read behind a file's end. One thread at a time
// uses a file; a folder of the system's is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace llmrt {

class FolderFile {
 public:
  virtual ~FolderFile() = default;
  // All of the bytes or an error.
  virtual Status read(uint64_t offset, std::span<std::byte> bytes) = 0;
  // The same. After an error any part of them may have been written.
  virtual Status write(uint64_t offset, std::span<const std::byte> bytes) = 0;
  // What lies behind the first `num_bytes` is gone.
  virtual Status cut(uint64_t num_bytes) = 0;
  virtual Result<uint64_t> num_bytes() = 0;
  // What was written outlives a loss of power.
  virtual Status sync() = 0;
  // The file was used now: FolderEntry::used_ns.
  virtual void note_use() = 0;
};

struct FolderEntry {
  std::string name;
  uint64_t num_bytes = 0;
  int64_t used_ns = 0;  // written, or noted as used; later ones are greater
};

class Folder {
 public:
  virtual ~Folder() = default;
  // Its regular files, in no order; at most so many entries of the folder are looked at.
  virtual Result<std::vector<FolderEntry>> list(size_t entries_max = 65536) = 0;
  // For reading and writing; never follows a link. With `create` the file must not be there yet.
  virtual Result<std::unique_ptr<FolderFile>> open(const std::string& name, bool create) = 0;
  virtual Status remove(const std::string& name) = 0;
  // The file, there or not, holds these bytes alone. A crash or an error leaves what it held before, and maybe a file
  // of its name and kNewEnd.
  virtual Status replace(const std::string& name, std::span<const std::byte> bytes) = 0;
  static constexpr const char* kNewEnd = ".new";
};

// The folder `path`, made where it is not there (and so are those above it), for its owner alone, as are its files. No
// other object, of this process or another, has it open at the same time: else overloaded. It is free again when the
// object goes, however the process ends. From then on a write beyond the process's limit of file sizes is an error, not
// the end of the process.
Result<std::unique_ptr<Folder>> open_locked_folder(const std::string& path);

}  // namespace llmrt
