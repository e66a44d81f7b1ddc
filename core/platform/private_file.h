// Files with what clients wrote: nobody but their owner reads those that are made here.
#pragma once

#include <string>

#include "core/base/status.h"

namespace llmrt {

struct PrivateFile {
  int descriptor = -1;           // the caller closes it
  bool others_may_read = false;  // it was there before, with a wider mode, which it keeps
};

enum class OpenFor { kAppending, kWriting };  // kWriting: what it held is gone

// io_error with the system's reason.
Result<PrivateFile> open_private_file(const std::string& path, OpenFor purpose);

}  // namespace llmrt
