// The tokens of tokenizer.json by id, with GGUF's types: those of the model and the added ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/keyed_hash.h"
#include "core/base/status.h"
#include "core/weights/canonical_metadata.h"
#include "core/weights/json_tree.h"

namespace llmrt {

class HfVocabulary {
 public:
  // `size`: the rows of the embedding; ids that no token has become unused ones.
  explicit HfVocabulary(uint64_t size) : tokens_(size), types_(size, kUnused) {}

  Status add_vocab(const JsonTree* vocab);
  // `leaves_out_rest`: those whose ids are beyond the rows are left out, else refused.
  Status add_added(const JsonTree* added, bool leaves_out_rest);
  // SentencePiece's: names such as <0x0A> are bytes, all of which must be there, and `unknown` is the unknown token.
  Status set_piece_types(std::string_view unknown);
  // The scores of tokens that merges make: a better merge's is greater. `merges`: "left right", best first.
  void add_scores(const std::vector<std::string>& merges, CanonicalMetadata& metadata) const;

  // -1: none.
  int64_t find_added(std::string_view text) const;
  int64_t find(std::string_view text) const;

  void write(CanonicalMetadata& metadata) &&;

 private:
  static constexpr uint8_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

  Status check_id(const char* place, std::string_view token, const int64_t* id, const std::string& found) const;
  Status add_one(const JsonTree& token, bool leaves_out_rest);

  std::vector<std::string> tokens_;
  std::vector<uint8_t> types_;
  KeyedMap<size_t> added_;
};

// What added tokens of a normalized text may not have; see hf_steps.h. Error: unsupported.
Status check_normalized_added(const JsonTree* added, bool adds_space);

}  // namespace llmrt
