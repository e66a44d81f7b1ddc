#include "core/text/jinja/text.h"

namespace llmrt::jinja {

void Text::append(std::string_view bytes, bool from_template) {
  if (bytes.empty()) {
    return;
  }
  if (bytes_.empty()) {
    first_from_template_ = from_template;
  } else if (from_template != (first_from_template_ != (flips_.size() % 2 == 1))) {
    flips_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  bytes_.append(bytes);
}

void Text::append(const Text& other, size_t begin, size_t end) {
  other.visit_runs(begin, end, [&](std::string_view bytes, bool from_template) { append(bytes, from_template); });
}

Text Text::substr(size_t begin, size_t end) const {
  Text out;
  out.append(*this, begin, end);
  return out;
}

}  // namespace llmrt::jinja
