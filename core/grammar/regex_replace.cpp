// A homomorphism goes through every operator of regular expressions. This one is injective, since no text begins with
// another one, so it goes through and and not, too, where not is taken among the images.
#include "core/grammar/regex_replace.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace llmrt {
using Operator = RegexPool::Form::Operator;

// Parts before what they are parts of, without recursion.
RegexId ByteReplacer::replace(RegexId root) {
  std::vector<RegexId> open = {root};
  while (!open.empty() && !pool_.failed()) {
    const RegexId id = open.back();
    if (done_.contains(id)) {
      open.pop_back();
      continue;
    }
    const RegexPool::Form form = pool_.form(id);
    const size_t num_open = open.size();
    for (RegexId part : form.parts) {
      if (!done_.contains(part)) open.push_back(part);
    }
    if (open.size() == num_open) done_[id] = {rewritten(id, form), form.is == Operator::kNot};
  }
  return pool_.failed() ? RegexPool::kNothing : of(root);
}

RegexId ByteReplacer::image(const ByteSet& set) {
  ByteSet kept;
  std::vector<RegexId> parts;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (!set[byte]) continue;
    if (texts_[byte].size() == 1 && static_cast<uint8_t>(texts_[byte][0]) == byte) {
      kept.set(byte);
    } else {
      parts.push_back(pool_.literal(texts_[byte]));
    }
  }
  parts.push_back(pool_.bytes(kept));
  return pool_.either(parts);
}

RegexId ByteReplacer::all() {
  if (all_ == RegexPool::kNothing) all_ = pool_.star(image(ByteSet().set()));
  return all_;
}

RegexId ByteReplacer::of(RegexId id) {
  const Done& found = done_.at(id);
  return found.is_complement ? pool_.both(all(), found.texts) : found.texts;
}

RegexId ByteReplacer::rewritten(RegexId id, const RegexPool::Form& form) {
  switch (form.is) {
    case Operator::kNothing:
    case Operator::kEmpty:
    case Operator::kRemainder:
      return id;
    case Operator::kAnything:
      return all();
    case Operator::kBytes:
      return image(form.set);
    case Operator::kText: {
      std::string text;
      for (char c : form.text) text += texts_[static_cast<uint8_t>(c)];
      return pool_.concat(pool_.literal(text), form.parts.empty() ? RegexPool::kEmpty : of(form.parts[0]));
    }
    case Operator::kConcat:
      return pool_.concat(of(form.parts[0]), of(form.parts[1]));
    case Operator::kNot:
      return pool_.complement(of(form.parts[0]));
    case Operator::kRepeat:
      return pool_.repeat(of(form.parts[0]), form.min, form.max);
    case Operator::kEither:
    case Operator::kBoth:
      break;
  }
  const bool is_cut = form.is == Operator::kBoth &&
                      std::ranges::any_of(form.parts, [&](RegexId part) { return !done_.at(part).is_complement; });
  std::vector<RegexId> parts;
  for (RegexId part : form.parts) parts.push_back(is_cut ? done_.at(part).texts : of(part));
  return form.is == Operator::kBoth ? pool_.both(parts) : pool_.either(parts);
}

}  // namespace llmrt
