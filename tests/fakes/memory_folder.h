// Files in memory behind the interface of a folder (core/platform/folder.h): they outlive the folder, as files outlive
// a process, and fail on demand.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/platform/folder.h"

namespace llmrt::test {

struct MemoryFiles {
  struct File {
    std::vector<std::byte> bytes;
    int64_t used_ns = 0;
  };
  std::map<std::string, File> files;
  int64_t now_ns = 0;
  uint64_t bytes_max = ~uint64_t{0};         // of all: the disk is full then
  uint32_t fail_writes = 0, fail_reads = 0;  // so many more of them fail

  uint64_t num_bytes() const {
    uint64_t sum = 0;
    for (const auto& [name, file] : files) sum += file.bytes.size();
    return sum;
  }
};

class MemoryFolder final : public Folder {
 public:
  explicit MemoryFolder(std::shared_ptr<MemoryFiles> files) : files_(std::move(files)) {}

  Result<std::vector<FolderEntry>> list(size_t entries_max) override {
    std::vector<FolderEntry> entries;
    for (const auto& [name, file] : files_->files)
      if (entries.size() < entries_max) entries.push_back({name, file.bytes.size(), file.used_ns});
    return entries;
  }
  Result<std::unique_ptr<FolderFile>> open(const std::string& name, bool create) override {
    if (create == files_->files.contains(name)) return failed();
    if (create) files_->files[name].used_ns = ++files_->now_ns;
    return std::unique_ptr<FolderFile>(std::make_unique<File>(files_, name));
  }
  Status remove(const std::string& name) override {
    if (files_->files.erase(name) == 0) return failed();
    return {};
  }
  Status replace(const std::string& name, std::span<const std::byte> bytes) override {
    Result<std::unique_ptr<FolderFile>> made = open(name + kNewEnd, /*create=*/true);
    if (!made) return made.error();
    if (Status status = (*made)->write(0, bytes); !status) return status;
    auto node = files_->files.extract(name + kNewEnd);
    files_->files[name] = std::move(node.mapped());
    return {};
  }

 private:
  static Error failed() { return make_error(ErrorCode::kIo, "the disk fails"); }

  class File final : public FolderFile {
   public:
    File(std::shared_ptr<MemoryFiles> files, std::string name) : files_(std::move(files)), name_(std::move(name)) {}

    Status read(uint64_t offset, std::span<std::byte> bytes) override {
      if (files_->fail_reads > 0) {
        --files_->fail_reads;
        return failed();
      }
      const auto& own = file().bytes;
      if (offset > own.size() || own.size() - offset < bytes.size())
        return make_error(ErrorCode::kCorruptFile, "the file ends");
      std::copy_n(own.begin() + static_cast<ptrdiff_t>(offset), bytes.size(), bytes.begin());
      return {};
    }
    // One that fails leaves half of it.
    Status write(uint64_t offset, std::span<const std::byte> bytes) override {
      auto& own = file().bytes;
      const uint64_t end = offset + bytes.size();
      const uint64_t added = end > own.size() ? end - own.size() : 0;
      const bool is_full = files_->num_bytes() + added > files_->bytes_max;
      const bool fails = is_full || files_->fail_writes > 0;
      if (files_->fail_writes > 0) --files_->fail_writes;
      if (fails) bytes = bytes.first(bytes.size() / 2);
      if (offset + bytes.size() > own.size()) own.resize(offset + bytes.size());
      std::ranges::copy(bytes, own.begin() + static_cast<ptrdiff_t>(offset));
      file().used_ns = ++files_->now_ns;
      if (fails) return failed();
      return {};
    }
    Status cut(uint64_t num_bytes) override {
      file().bytes.resize(num_bytes);
      return {};
    }
    Result<uint64_t> num_bytes() override { return file().bytes.size(); }
    Status sync() override { return {}; }
    void note_use() override { file().used_ns = ++files_->now_ns; }

   private:
    MemoryFiles::File& file() { return files_->files.at(name_); }

    const std::shared_ptr<MemoryFiles> files_;
    const std::string name_;
  };

  const std::shared_ptr<MemoryFiles> files_;
};

}  // namespace llmrt::test
