// A string that knows where each of its bytes comes from: the template, or data that a request brought. Every
// operation that moves bytes keeps their origin, so that the tokenizer can refuse special tokens made of data.
// Inside a rendering, its memory counts against the rendering's limit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/jinja/meter.h"

namespace llmrt::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool from_template) : bytes_(std::move(bytes)), first_from_template_(from_template) {
    held_.grow(bytes_.empty() ? 0 : kOverheadBytes + bytes_.size());
  }
  Text(const Text& other)
      : bytes_(other.bytes_), first_from_template_(other.first_from_template_), flips_(other.flips_) {
    held_.grow(bytes_.empty() ? 0 : kOverheadBytes + bytes_.size() + flips_.size() * sizeof(uint32_t));
  }
  Text(Text&&) noexcept = default;
  Text& operator=(Text other) noexcept {
    bytes_ = std::move(other.bytes_);
    first_from_template_ = other.first_from_template_;
    flips_ = std::move(other.flips_);
    held_ = std::move(other.held_);
    return *this;
  }

  std::string_view bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool is_all_template() const { return first_from_template_ && flips_.empty(); }
  size_t num_runs() const { return flips_.size() + 1; }

  void append(std::string_view bytes, bool from_template);
  void append(const Text& other) { append(other, 0, other.size()); }
  // The bytes [begin, end) of `other`.
  void append(const Text& other, size_t begin, size_t end);
  void append_repeated(const Text& other, size_t count);
  Text substr(size_t begin, size_t end) const;
  Text substr(size_t begin) const { return substr(begin, size()); }

  // Calls visit(std::string_view bytes, bool from_template) for each longest run of one origin, in order.
  template <typename Visit>
  void for_each_run(Visit visit) const {
    visit_runs(0, size(), visit);
  }

 private:
  static constexpr size_t kOverheadBytes = 96;  // of the object itself, as a value

  template <typename Visit>
  void visit_runs(size_t begin, size_t end, Visit visit) const {
    // From the run that holds `begin`: texts are cut into as many pieces as they have runs.
    size_t i = static_cast<size_t>(std::upper_bound(flips_.begin(), flips_.end(), begin) - flips_.begin());
    size_t run_begin = i > 0 ? flips_[i - 1] : 0;
    bool from_template = first_from_template_ != (i % 2 == 1);
    for (; i <= flips_.size() && run_begin < end; ++i) {
      const size_t run_end = i < flips_.size() ? flips_[i] : bytes_.size();
      const size_t from = run_begin > begin ? run_begin : begin;
      const size_t to = run_end < end ? run_end : end;
      if (from < to) {
        visit(std::string_view(bytes_).substr(from, to - from), from_template);
      }
      run_begin = run_end;
      from_template = !from_template;
    }
  }

  std::string bytes_;
  bool first_from_template_ = false;
  std::vector<uint32_t> flips_;  // offsets where the origin changes, strictly inside the text
  Held held_;
};

}  // namespace llmrt::jinja
