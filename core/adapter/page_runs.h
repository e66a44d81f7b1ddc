// Which pages of a range are free, as runs: first fit, and neighbours that are free are one run. Books only. One
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace llmrt {

struct PageRun {
  uint32_t first = 0, count = 0;
  bool operator==(const PageRun&) const = default;
};

class PageRuns {
 public:
  explicit PageRuns(uint32_t num_pages);

  // The first run that is large enough gives its first pages. None: no free run is.
  std::optional<PageRun> take(uint32_t count);
  // One run for each count, or none at all.
  std::optional<std::vector<PageRun>> take_all(std::span<const uint32_t> counts);
  // Pages that were taken.
  void give(const PageRun& run);

  uint32_t num_pages() const { return num_pages_; }
  uint32_t num_free() const { return num_free_; }
  // Empty when these runs, with those that are free, are all pages once.
  std::string audit(std::span<const PageRun> taken) const;

 private:
  uint32_t num_pages_, num_free_;
  std::map<uint32_t, uint32_t> free_;  // first page to count; neighbours are joined
};

}  // namespace llmrt
