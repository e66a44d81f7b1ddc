#include "core/platform/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace llmrt {

Result<PrivateFile> open_private_file(const std::string& path, OpenFor purpose) {
  const int flags = purpose == OpenFor::kAppending ? O_APPEND : O_TRUNC;
  PrivateFile file;
  file.descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
  struct stat status;
  if (file.descriptor < 0 || ::fstat(file.descriptor, &status) != 0) {
    const int error = errno;
    if (file.descriptor >= 0) ::close(file.descriptor);
    return make_error(ErrorCode::kIo, "{}", std::strerror(error));
  }
  file.others_may_read = S_ISREG(status.st_mode) && (status.st_mode & (S_IRGRP | S_IROTH)) != 0;
  return file;
}

}  // namespace llmrt
