#include "core/text/vocabulary_digest.h"

namespace llmrt {

Digest vocabulary_digest(const Vocabulary& vocabulary) {
  const auto type_of = [&](size_t id) { return vocabulary.types.empty() ? TokenType::kNormal : vocabulary.types[id]; };
  size_t num_used = vocabulary.tokens.size();
  while (num_used > 0 && type_of(num_used - 1) == TokenType::kUnused) --num_used;
  Sha256 hash;
  hash.add(uint64_t{num_used});
  for (size_t id = 0; id < num_used; ++id) hash.add_text(vocabulary.tokens[id]).add(type_of(id) == TokenType::kControl);
  return hash.finish();
}

}  // namespace llmrt
