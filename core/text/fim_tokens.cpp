#include "core/text/fim_tokens.h"

#include <string_view>

#include "core/text/tokenizer.h"

namespace llmrt {
namespace {

struct Family {
  std::string_view prefix, suffix, middle, repo, file;
};
// Qwen2.5-Coder and others; StarCoder, SmolLM, Granite; the same with hyphens; DeepSeek-Coder; GLM-4.5; CodeLlama as
// Hugging Face and as SentencePiece spell it; Codestral.
constexpr Family kFamilies[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<reponame>", "<filename>"},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "", ""},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", "", ""},
    {"<PRE>", "<SUF>", "<MID>", "", ""},
    {"▁<PRE>", "▁<SUF>", "▁<MID>", "", ""},
    {"[PREFIX]", "[SUFFIX]", "", "", ""},
};

void find(std::string_view token, std::string_view text, size_t id, int* found) {
  if (*found < 0 && !text.empty() && token == text) *found = static_cast<int>(id);
}

}  // namespace

std::optional<FimTokens> find_fim_tokens(const Vocabulary& vocabulary) {
  const FimTokens& named = vocabulary.fim;
  if (named.prefix >= 0 && named.suffix >= 0 && named.middle >= 0) return named;
  std::optional<FimTokens> best;
  FimTokens found[std::size(kFamilies)];
  // Next to no token of a vocabulary begins as a mark does, and this runs at each start.
  bool begins_mark[256] = {};
  for (const Family& family : kFamilies) {
    for (const std::string_view mark : {family.prefix, family.suffix, family.middle, family.repo, family.file})
      if (!mark.empty()) begins_mark[static_cast<unsigned char>(mark[0])] = true;
  }
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view token = vocabulary.tokens[id];
    if (token.empty() || !begins_mark[static_cast<unsigned char>(token[0])]) continue;
    for (size_t i = 0; i < std::size(kFamilies); ++i) {
      find(token, kFamilies[i].prefix, id, &found[i].prefix);
      find(token, kFamilies[i].suffix, id, &found[i].suffix);
      find(token, kFamilies[i].middle, id, &found[i].middle);
      find(token, kFamilies[i].repo, id, &found[i].repo);
      find(token, kFamilies[i].file, id, &found[i].file);
    }
  }
  for (size_t i = 0; i < std::size(kFamilies) && !best; ++i) {
    found[i].suffix_first = kFamilies[i].middle.empty();
    const bool has_middle = found[i].suffix_first || found[i].middle >= 0;
    if (found[i].prefix >= 0 && found[i].suffix >= 0 && has_middle) best = found[i];
  }
  return best;
}

}  // namespace llmrt
