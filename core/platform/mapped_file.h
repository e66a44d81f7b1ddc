// A read-only file in memory. The only door to the file system for model files; POSIX inside the .cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/base/status.h"

namespace llmrt {

// The mapping lives as long as the object; the span is valid from any thread. The file must not shrink meanwhile.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size) : path_(std::move(path)), data_(data), size_(size) {}
  std::string path_;
  const std::byte* data_;
  size_t size_;
};

}  // namespace llmrt
