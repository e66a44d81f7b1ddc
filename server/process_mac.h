// A MAC (HMAC-SHA256, RFC 2104) under a key that is drawn once a process and never leaves it: what comes back with it
// was made here. One owner.
#pragma once

#include <string_view>

#include "core/base/sha256.h"

namespace llmrt::server {

class ProcessMac {
 public:
  // What is made for one purpose is of no use for another.
  explicit ProcessMac(std::string_view purpose);
  ProcessMac& add(std::string_view text);
  // Of everything added; then it is at its beginning again.
  Digest take();

 private:
  std::string_view purpose_;  // a literal
  Sha256 inner_;
};

}  // namespace llmrt::server
