// The signature of a thought, which clients send back beside it: a MAC (HMAC-SHA256, RFC 2104) under a key that is
// drawn once a process. Thoughts that come back are taken whatever it says; it is there since clients expect one. One
// owner.
#pragma once

#include <string>
#include <string_view>

#include "core/base/sha256.h"

namespace llmrt::server {

class ThoughtSignature {
 public:
  ThoughtSignature();
  void add(std::string_view text);
  // 64 hexadecimal digits, of everything added; then it is at its beginning again.
  std::string take();

 private:
  Sha256 inner_;
};

}  // namespace llmrt::server
