#include "core/chat/mark_scanner.h"

namespace llmrt {

MarkScanner::Found MarkScanner::push(Unit unit, const LiveMarks& live, UnitSource* source) {
  if (held_.empty() && !live.may_begin(unit)) return {.kind = Found::Kind::kData, .data = unit};
  held_ += unit;
  bool is_prefix = false;
  const LiveMarks::Entry* exact = nullptr;
  for (const LiveMarks::Entry& entry : live.entries()) {
    if (!entry.units.starts_with(held_)) continue;
    if (entry.units.size() == held_.size()) exact = &entry;
    is_prefix |= entry.units.size() > held_.size();
  }
  if (exact) best_ = {.kind = Found::Kind::kMark, .mark = exact->mark, .index = exact->index, .units = held_};
  if (is_prefix) return {.kind = Found::Kind::kHeld};
  return release(source);
}

MarkScanner::Found MarkScanner::release(UnitSource* source) {
  Found found = std::exchange(best_, {.kind = Found::Kind::kHeld});
  const Units held = std::exchange(held_, {});
  if (found.kind != Found::Kind::kMark) found = {.kind = Found::Kind::kData, .data = held[0]};
  source->put_back(held.substr(found.kind == Found::Kind::kMark ? found.units.size() : 1));
  return found;
}

}  // namespace llmrt
