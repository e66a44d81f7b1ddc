// A body of multipart/form-data (RFC 7578) as it arrives, in pieces of any size: what a part holds goes to a sink at
// once, so memory is bounded by the head of a part, however large the body is. Not thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace llmrt::server {

// Names are as they were sent, without control characters: never a path.
struct PartHead {
  std::string name;
  std::optional<std::string> filename;  // of a part that is a file
};

// An error ends the reading, and is its result.
class PartSink {
 public:
  virtual ~PartSink() = default;
  virtual Status begin(const PartHead& head) = 0;
  virtual Status add(std::string_view bytes) = 0;
  virtual Status end() = 0;
};

class MultipartReader {
 public:
  static constexpr size_t kBoundaryBytesMax = 70;  // RFC 2046
  static constexpr size_t kHeadBytesMax = 4096;    // of a part
  static constexpr size_t kPartsMax = 32;

  // Whether it may be a boundary: 1 to 70 of the characters of RFC 2046, the last no space.
  static bool is_boundary(std::string_view text);

  // `boundary`: is_boundary. `sink` outlives this.
  MultipartReader(std::string_view boundary, PartSink* sink);

  // invalid_argument with what is wrong, or the sink's error; nothing may follow an error.
  Status feed(std::string_view bytes);
  // The end of the body: invalid_argument where its last boundary has not come.
  Status finish() const;

 private:
  enum class Place { kPreamble, kBehindBoundary, kHead, kBody, kEpilogue };

  // Takes what it can from held_ behind *at; true: there may be more to take.
  Result<bool> step(size_t* at);
  Result<bool> read_until_boundary(size_t* at);
  Result<bool> read_boundary_end(size_t* at);
  Result<bool> read_head(size_t* at);

  const std::string delimiter_;  // with the line end before it
  PartSink* const sink_;
  Place place_ = Place::kPreamble;
  std::string held_;  // of the body, not yet taken
  size_t num_parts_ = 0;
};

}  // namespace llmrt::server
