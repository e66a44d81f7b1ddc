#include "core/platform/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "core/platform/descriptor.h"

namespace llmrt {

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  // Not blocking, so that a pipe without a writer is refused below and not waited for.
  // The mapping itself does not need the descriptor.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) {
    const int error = errno;
    const auto code = error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
    return make_error(code, "cannot open file: {}: {}", path, std::strerror(error));
  }
  struct stat info;
  if (::fstat(file.fd, &info) != 0)
    return make_error(ErrorCode::kIo, "cannot read file size: {}: {}", path, std::strerror(errno));
  if (!S_ISREG(info.st_mode))
    return make_error(ErrorCode::kInvalidArgument, "cannot map file: {}: expected a regular file", path);

  const auto size = static_cast<size_t>(info.st_size);
  const std::byte* data = nullptr;
  if (size > 0) {  // mmap refuses an empty range; the parser says what an empty file lacks
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
    if (address == MAP_FAILED) return make_error(ErrorCode::kIo, "cannot map file: {}: {}", path, std::strerror(errno));
    data = static_cast<const std::byte*>(address);
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(path, data, size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace llmrt
