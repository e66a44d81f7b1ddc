#include "core/router/near_names.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace llmrt {
namespace {

constexpr size_t kBytesMax = 128;  // of a name that are compared

std::string folded(std::string_view text) {
  std::string out(text.substr(0, kBytesMax));
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// Levenshtein's: insertions, deletions and substitutions of bytes.
size_t typos_between(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<std::string> near_names(std::string_view name, const std::vector<std::string>& names, size_t count) {
  const std::string wanted = folded(name);
  std::vector<std::pair<size_t, size_t>> found;  // rank, index
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string known = folded(names[i]);
    if (wanted.size() >= 2 &&
        (known.find(wanted) != known.npos || (known.size() >= 2 && wanted.find(known) != wanted.npos))) {
      found.emplace_back(known.starts_with(wanted) ? 0 : 1, i);
      continue;
    }
    const size_t typos = typos_between(wanted, known);
    if (typos <= std::max<size_t>(2, known.size() / 3)) found.emplace_back(1 + typos, i);
  }
  std::ranges::sort(found);
  std::vector<std::string> near;
  for (const auto& [rank, i] : found)
    if (near.size() < count) near.push_back(names[i]);
  return near;
}

}  // namespace llmrt
