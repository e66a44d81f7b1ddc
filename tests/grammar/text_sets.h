// Languages as sets of their short texts: what expressions and grammars are held against.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace llmrt::test {

using Texts = std::set<std::string>;

// Of these letters, at most so long, the shorter first.
inline std::vector<std::string> all_texts(std::string_view letters, size_t length_max) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts[i];
    if (text.size() == length_max) continue;
    for (const char c : letters) texts.push_back(text + c);
  }
  return texts;
}

// Longer ones are left out.
inline Texts concat(const Texts& a, const Texts& b, size_t length_max) {
  Texts all;
  for (const auto& x : a) {
    for (const auto& y : b) {
      if (x.size() + y.size() <= length_max) all.insert(x + y);
    }
  }
  return all;
}

// Between min and max times; with an empty text inside, more repetitions add nothing new behind length_max of them.
inline Texts repeat(const Texts& part, uint32_t min, uint32_t max, size_t length_max) {
  Texts all, power = {""};
  for (uint32_t i = 0; i <= std::min<uint32_t>(max, min + static_cast<uint32_t>(length_max) + 1); ++i) {
    if (i >= min) all.insert(power.begin(), power.end());
    power = concat(power, part, length_max);
  }
  return all;
}

}  // namespace llmrt::test
