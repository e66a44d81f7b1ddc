// The least number of tokens that a text can become, from the lengths of the vocabulary's tokens alone: a text that is
// much too long is known to be so without being encoded. Built once, then read from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace llmrt {

class CoverBound {
 public:
  CoverBound();
  // A byte that may become nothing; all others belong to exactly one token. To be called before add().
  void add_dropped(uint8_t byte);
  // Every token, as it stands in a text.
  void add(std::string_view token);
  // The length of a beginning of `text` that surely takes more than `tokens` tokens; text.size() where none is known
  // to. Linear in what it returns.
  size_t cut(std::string_view text, size_t tokens) const;
  // The most bytes that `tokens` tokens can stand for; the greatest number where bytes are dropped.
  size_t bytes_max(size_t tokens) const;

 private:
  std::vector<uint16_t> longest_;  // of the tokens that begin with these two bytes
  size_t longest_of_all_ = 1;
  std::array<bool, 256> is_dropped_{};
  bool drops_ = false;
};

}  // namespace llmrt
