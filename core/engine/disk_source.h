// Where the disk tier has its files, for tests that have them elsewhere than in the file system and want to say when
// something is read or written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/status.h"
#include "core/platform/folder.h"

namespace llmrt {

class DiskSource {
 public:
  virtual ~DiskSource() = default;
  virtual Result<std::unique_ptr<Folder>> open(const std::string& path) = 0;
  // How much of its work the disk tier does before the next tick (DiskTier::work): it has no thread.
  virtual uint32_t next_jobs() = 0;
};

}  // namespace llmrt
