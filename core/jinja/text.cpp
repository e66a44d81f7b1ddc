#include "core/jinja/text.h"

namespace llmrt::jinja {

void Text::append(std::string_view bytes, bool from_template) {
  if (bytes.empty()) {
    return;
  }
  if (bytes_.empty()) {
    held_.grow(kOverheadBytes + bytes.size());
    first_from_template_ = from_template;
  } else if (from_template != (first_from_template_ != (flips_.size() % 2 == 1))) {
    held_.grow(sizeof(uint32_t) + bytes.size());
    flips_.push_back(static_cast<uint32_t>(bytes_.size()));
  } else {
    held_.grow(bytes.size());
  }
  bytes_.append(bytes);
}

void Text::append(const Text& other, size_t begin, size_t end) {
  other.visit_runs(begin, end, [&](std::string_view bytes, bool from_template) { append(bytes, from_template); });
}

void Text::append_repeated(const Text& other, size_t count) {
  if (!other.flips_.empty() || other.empty()) {
    for (size_t i = 0; i < count && !other.empty(); ++i) {
      append(other);
    }
    return;
  }
  std::string repeated;
  repeated.reserve(other.size() * count);
  if (other.size() == 1) {
    repeated.assign(count, other.bytes_[0]);
  }
  for (size_t i = 0; i < count && other.size() > 1; ++i) {
    repeated += other.bytes_;
  }
  append(repeated, other.first_from_template_);
}

Text Text::substr(size_t begin, size_t end) const {
  Text out;
  out.append(*this, begin, end);
  return out;
}

}  // namespace llmrt::jinja
