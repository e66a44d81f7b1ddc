#include "core/study/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/checked_math.h"

namespace llmrt {
namespace {

// One mark a step.
std::string marks_of(const TimelineRequest& request, std::span<const TimelineStep> steps) {
  std::string marks(steps.size(), ' ');
  uint64_t batch = 0;
  size_t behind = request.arrived;  // its last step
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto row = std::ranges::find(steps[i].rows, request.id, &TimelineStep::Row::id);
    if (row == steps[i].rows.end()) continue;
    std::fill(marks.begin() + static_cast<ptrdiff_t>(std::min(behind, i)), marks.begin() + static_cast<ptrdiff_t>(i),
              '.');
    marks[i] = row->is_prompt ? 'P' : '#';
    batch = steps[i].batch;
    behind = i + 1;
  }
  for (size_t i = behind; batch != 0 && i < steps.size() && steps[i].batch == batch; ++i) marks[i] = '-';
  return marks;
}

// The mark that most have; of several the first of them.
char most_of(std::string_view marks) {
  return *std::ranges::max_element(marks, {}, [&](char mark) { return std::ranges::count(marks, mark); });
}

}  // namespace

std::string timeline(std::span<const TimelineRequest> requests, std::span<const TimelineStep> steps,
                     size_t columns_max) {
  const size_t group = std::max<size_t>(1, ceil_div(steps.size(), columns_max));
  std::string text;
  for (const TimelineRequest& request : requests) {
    const std::string marks = marks_of(request, steps);
    std::string line = fmt::format("{:>6} ", request.id);
    for (size_t first = 0; first < marks.size(); first += group)
      line += most_of(std::string_view(marks).substr(first, group));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  if (group > 1) text += fmt::format("       one column: {} steps\n", group);
  return text;
}

}  // namespace llmrt
