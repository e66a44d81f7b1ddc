// A repetition of a part that is not empty takes a byte a time at least, so within n bytes it is never above n times:
// a bound above that is not met, and a least number above that is not reached, whatever they are. A positive expression
// has a text behind every beginning, so that bounds are met later says nothing about the beginning.
#include "core/grammar/regex_reach.h"

#include <algorithm>
#include <vector>

namespace llmrt {
using Operator = RegexPool::Form::Operator;

// Parts before what they are parts of, without recursion.
RegexId RegexReach::within(RegexPool* pool, RegexId root) {
  if (!pool->is_positive(root)) return root;
  std::vector<RegexId> open = {root};
  while (!open.empty()) {
    const RegexId id = open.back();
    if (within_.contains(id)) {
      open.pop_back();
      continue;
    }
    const RegexPool::Form form = pool->form(id);
    const size_t num_open = open.size();
    for (const RegexId part : form.parts) {
      if (!within_.contains(part)) open.push_back(part);
    }
    if (open.size() == num_open) within_[id] = rewritten(pool, id, form);
  }
  return pool->failed() ? root : within_[root];
}

RegexId RegexReach::rewritten(RegexPool* pool, RegexId a, const RegexPool::Form& form) const {
  switch (form.is) {
    case Operator::kConcat:
      return pool->concat(within_.at(form.parts[0]), within_.at(form.parts[1]));
    case Operator::kEither: {
      std::vector<RegexId> parts;
      for (const RegexId part : form.parts) parts.push_back(within_.at(part));
      return pool->either(parts);
    }
    case Operator::kRepeat:
      return pool->repeat(within_.at(form.parts[0]), std::min(form.min, bytes_ + 1),
                          form.max >= bytes_ ? RegexPool::kUnbounded : form.max);
    default:
      return a;
  }
}

}  // namespace llmrt
