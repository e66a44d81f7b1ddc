// The tokens by which models of code are told what stands before and behind the text they are to write
// ("fill in the middle"; Bavarian et al. 2022, arXiv 2207.14255). Pure.
#pragma once

#include <optional>

namespace llmrt {

struct Vocabulary;

struct FimTokens {
  int prefix = -1, suffix = -1, middle = -1;
  int repo = -1, file = -1;   // before a repository's name, before a file's; -1: none
  bool suffix_first = false;  // suffix, prefix, and no mark of the middle (Codestral)
};

// By the ids that the model file names, else by the texts that families of models give them. Nothing where a mark is
// missing.
std::optional<FimTokens> find_fim_tokens(const Vocabulary& vocabulary);

}  // namespace llmrt
