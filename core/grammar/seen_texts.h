// Texts that were there before, as a set that grows: its copies share what is in it. Sorted runs, each at least twice
// as long as the next (a logarithmic method: Bentley and Saxe 1980), so a copy is a few pointers and adding takes
// amortised O(log n).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace llmrt {

class SeenTexts {
 public:
  bool empty() const { return runs_.empty(); }
  void add(std::string text);
  bool contains(std::string_view text) const;
  // Whether one of them begins so.
  bool has_beginning(std::string_view beginning) const;
  // Valid while this set, or a copy of it, has got no more.
  std::vector<const std::string*> all() const;

 private:
  using Run = std::vector<std::string>;
  std::vector<std::shared_ptr<const Run>> runs_;
};

}  // namespace llmrt
