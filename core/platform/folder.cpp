#include "core/platform/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/platform/descriptor.h"

namespace llmrt {
namespace {

constexpr const char* kLockName = "lock";

Error failed(const char* what, const std::string& name) {
  return make_error(ErrorCode::kIo, "{} {}: {}", what, name, std::strerror(errno));
}

class SystemFile final : public FolderFile {
 public:
  SystemFile(std::string name, int fd) : name_(std::move(name)), file_(fd) {}

  Status read(uint64_t offset, std::span<std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = ::pread(file_.fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return failed("cannot read", name_);
      if (count == 0)
        return make_error(ErrorCode::kCorruptFile, "cannot read {}: expected {} more bytes", name_, bytes.size());
      offset += static_cast<uint64_t>(count);
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return {};
  }
  Status write(uint64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(file_.fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count == 0) errno = ENOSPC;
      if (count <= 0) return failed("cannot write", name_);
      offset += static_cast<uint64_t>(count);
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return {};
  }
  Status cut(uint64_t num_bytes) override {
    if (::ftruncate(file_.fd, static_cast<off_t>(num_bytes)) != 0) return failed("cannot cut", name_);
    return {};
  }
  Result<uint64_t> num_bytes() override {
    struct stat info;
    if (::fstat(file_.fd, &info) != 0) return failed("cannot look at", name_);
    return static_cast<uint64_t>(info.st_size);
  }
  Status sync() override {
    if (::fdatasync(file_.fd) != 0) return failed("cannot write", name_);
    return {};
  }
  void note_use() override {
    const timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    ::futimens(file_.fd, now);
  }

 private:
  const std::string name_;
  Descriptor file_;
};

class SystemFolder final : public Folder {
 public:
  SystemFolder(int folder, int lock) : folder_(folder), lock_(lock) {}

  Result<std::vector<FolderEntry>> list(size_t entries_max) override {
    // A descriptor of its own: its place in the folder is its own too.
    Descriptor own(::openat(folder_.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DIR* stream = own.fd < 0 ? nullptr : ::fdopendir(own.fd);
    if (stream == nullptr) return failed("cannot list", "the folder");
    own.release();
    std::vector<FolderEntry> entries;
    for (size_t num_seen = 0; num_seen < entries_max; ++num_seen) {
      const dirent* entry = ::readdir(stream);
      if (entry == nullptr) break;
      struct stat info;
      if (::fstatat(folder_.fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) continue;
      if (entry->d_name == std::string_view(kLockName)) continue;
      entries.push_back({entry->d_name, static_cast<uint64_t>(info.st_size),
                         int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec});
    }
    ::closedir(stream);
    return entries;
  }
  Result<std::unique_ptr<FolderFile>> open(const std::string& name, bool create) override {
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (create ? O_CREAT | O_EXCL : 0);
    Descriptor file(::openat(folder_.fd, name.c_str(), flags, 0600));
    struct stat info;
    if (file.fd < 0 || ::fstat(file.fd, &info) != 0) return failed("cannot open", name);
    if (!S_ISREG(info.st_mode)) return make_error(ErrorCode::kIo, "cannot open {}: expected a regular file", name);
    return std::unique_ptr<FolderFile>(std::make_unique<SystemFile>(name, file.release()));
  }
  Status remove(const std::string& name) override {
    if (::unlinkat(folder_.fd, name.c_str(), 0) != 0) return failed("cannot remove", name);
    return {};
  }
  Status replace(const std::string& name, std::span<const std::byte> bytes) override {
    const std::string made_name = name + kNewEnd;
    ::unlinkat(folder_.fd, made_name.c_str(), 0);  // what a crash left
    Result<std::unique_ptr<FolderFile>> made = open(made_name, /*create=*/true);
    if (!made) return made.error();
    if (Status status = (*made)->write(0, bytes); !status) return status;
    if (Status status = (*made)->sync(); !status) return status;
    if (::renameat(folder_.fd, made_name.c_str(), folder_.fd, name.c_str()) != 0) return failed("cannot replace", name);
    return {};
  }

 private:
  Descriptor folder_, lock_;
};

Status make_folders(const std::string& path) {
  std::error_code error;
  const std::filesystem::path above = std::filesystem::path(path).parent_path();
  if (!above.empty()) std::filesystem::create_directories(above, error);
  if (error) return make_error(ErrorCode::kIo, "cannot make folder {}: {}", above.string(), error.message());
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return failed("cannot make folder", path);
  return {};
}

}  // namespace

Result<std::unique_ptr<Folder>> open_locked_folder(const std::string& path) {
  if (Status status = make_folders(path); !status) return status.error();
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.fd < 0) return failed("cannot open folder", path);
  Descriptor lock(::openat(folder.fd, kLockName, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (lock.fd < 0) return failed("cannot open the lock of folder", path);
  if (::flock(lock.fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return failed("cannot lock folder", path);
    return make_error(ErrorCode::kOverloaded, "folder {}: another program has it open; one at a time may use it", path);
  }
  std::signal(SIGXFSZ, SIG_IGN);
  return std::unique_ptr<Folder>(std::make_unique<SystemFolder>(folder.release(), lock.release()));
}

}  // namespace llmrt
