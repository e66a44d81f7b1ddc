// A safety hook: it reads each branch's text as it comes and may stop the branch, which then ends with the finish
// reason "policy" ("content_filter" in the API). A worked example: tests/fakes/deny_list.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace llmrt {

// What a filter says of a token. The bytes are counted from the end of the text so far, this token's included.
struct PolicyVerdict {
  bool stops = false;
  uint32_t cut_bytes = 0;   // with stops: not shown
  uint32_t hold_bytes = 0;  // else: not shown yet, as what they belong to is not decided
};

// One for each branch, called with its tokens in order on the engine's thread: no blocking, and microseconds.
class PolicyFilter {
 public:
  virtual ~PolicyFilter() = default;
  // `bytes`: what the token adds to the text. Not called after it stopped. Cut or held are at most the bytes so far.
  virtual PolicyVerdict advance(int32_t token, std::string_view bytes) = 0;
};

// What a request holds: makes a filter for each of its branches. Immutable, any thread; outlives its filters.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::unique_ptr<PolicyFilter> begin() const = 0;
};

}  // namespace llmrt
