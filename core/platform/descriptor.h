// A file descriptor of this process, closed with its owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace llmrt {

// Not copied; -1 stands for none.
struct Descriptor {
  explicit Descriptor(int from) : fd(from) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  // Whoever asked closes it from now on.
  int release() { return std::exchange(fd, -1); }

  int fd;
};

}  // namespace llmrt
