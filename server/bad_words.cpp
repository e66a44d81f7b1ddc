#include "server/bad_words.h"

#include <algorithm>
#include <span>
#include <string>

namespace llmrt::server {
namespace {

constexpr EncodeOptions kPlain = {.parse_special = false, .add_bos = false};

// A tokenizer that puts a space before every text is asked for the word behind a line end.
std::vector<int32_t> without_space(const Tokenizer& tokenizer, const std::string& word) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  if (vocabulary.model != "llama" || !vocabulary.add_space_prefix) return tokenizer.encode(word, kPlain);
  const std::vector<int32_t> line_end = tokenizer.encode("\n", kPlain);
  std::vector<int32_t> ids = tokenizer.encode("\n" + word, kPlain);
  if (ids.size() <= line_end.size() || !std::ranges::equal(line_end, std::span(ids).first(line_end.size()))) return {};
  ids.erase(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(line_end.size()));
  return ids;
}

std::vector<int32_t> with_space(const Tokenizer& tokenizer, const std::string& word) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const bool has_space = vocabulary.model == "llama" && vocabulary.add_space_prefix;
  return tokenizer.encode(has_space ? word : " " + word, kPlain);
}

}  // namespace

std::vector<std::vector<int32_t>> spellings(const Tokenizer& tokenizer, std::string_view word) {
  const std::string text(word);
  std::vector<std::vector<int32_t>> found;
  for (const std::vector<int32_t>& ids : {without_space(tokenizer, text), with_space(tokenizer, text)})
    if (!ids.empty() && std::ranges::find(found, ids) == found.end()) found.push_back(ids);
  return found;
}

}  // namespace llmrt::server
