#include "core/grammar/seen_texts.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace llmrt {

void SeenTexts::add(std::string text) {
  Run run;
  run.push_back(std::move(text));
  while (!runs_.empty() && runs_.back()->size() <= run.size()) {
    Run merged;
    std::ranges::merge(*runs_.back(), run, std::back_inserter(merged));
    run = std::move(merged);
    runs_.pop_back();
  }
  runs_.push_back(std::make_shared<const Run>(std::move(run)));
}

bool SeenTexts::contains(std::string_view text) const {
  return std::ranges::any_of(runs_, [&](const auto& run) {
    const auto it = std::lower_bound(run->begin(), run->end(), text);
    return it != run->end() && *it == text;
  });
}

bool SeenTexts::has_beginning(std::string_view beginning) const {
  return std::ranges::any_of(runs_, [&](const auto& run) {
    const auto it = std::lower_bound(run->begin(), run->end(), beginning);
    return it != run->end() && it->starts_with(beginning);
  });
}

std::vector<const std::string*> SeenTexts::all() const {
  std::vector<const std::string*> out;
  for (const auto& run : runs_) {
    for (const std::string& text : *run) out.push_back(&text);
  }
  return out;
}

}  // namespace llmrt
