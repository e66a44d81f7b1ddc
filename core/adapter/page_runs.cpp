#include "core/adapter/page_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/base/check.h"

namespace llmrt {

PageRuns::PageRuns(uint32_t num_pages) : num_pages_(num_pages), num_free_(num_pages) {
  if (num_pages > 0) free_.emplace(0, num_pages);
}

std::optional<PageRun> PageRuns::take(uint32_t count) {
  const auto found = std::ranges::find_if(free_, [count](const auto& run) { return run.second >= count; });
  if (count == 0 || found == free_.end()) return {};
  const auto [first, size] = *found;
  free_.erase(found);
  if (size > count) free_.emplace(first + count, size - count);
  num_free_ -= count;
  return PageRun{first, count};
}

std::optional<std::vector<PageRun>> PageRuns::take_all(std::span<const uint32_t> counts) {
  std::vector<PageRun> runs;
  for (const uint32_t count : counts) {
    const auto run = take(count);
    if (!run) {
      for (const PageRun& taken : runs) give(taken);
      return {};
    }
    runs.push_back(*run);
  }
  return runs;
}

void PageRuns::give(const PageRun& run) {
  LLMRT_CHECK(run.count > 0 && run.first < num_pages_ && run.count <= num_pages_ - run.first, "a run of the range");
  uint32_t first = run.first, count = run.count;
  auto next = free_.lower_bound(first);
  LLMRT_CHECK(next == free_.end() || next->first >= first + count, "pages that are given back were taken");
  if (next != free_.end() && next->first == first + count) {
    count += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    LLMRT_CHECK(before->first + before->second <= first, "pages that are given back were taken");
    if (before->first + before->second == first) {
      first = before->first;
      count += before->second;
      free_.erase(before);
    }
  }
  free_.emplace(first, count);
  num_free_ += run.count;
}

std::string PageRuns::audit(std::span<const PageRun> taken) const {
  std::vector<PageRun> all(taken.begin(), taken.end());
  uint64_t num_free = 0;
  uint32_t last_end = 0;
  for (const auto& [first, count] : free_) {
    if (num_free > 0 && first <= last_end) return fmt::format("the free run at page {} touches the one before", first);
    all.push_back({first, count});
    num_free += count;
    last_end = first + count;
  }
  if (num_free != num_free_) return fmt::format("expected {} free pages, found {}", num_free_, num_free);
  std::ranges::sort(all, {}, &PageRun::first);
  uint32_t at = 0;
  for (const PageRun& run : all) {
    if (run.first != at) return fmt::format("expected a run at page {}, found the next at {}", at, run.first);
    at += run.count;
  }
  return at == num_pages_ ? "" : fmt::format("expected {} pages in all, found {}", num_pages_, at);
}

}  // namespace llmrt
