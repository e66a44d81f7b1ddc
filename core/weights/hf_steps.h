// The steps around the model in tokenizer.json (normalizer, pre_tokenizer, decoder), recognised as those of a tokenizer
// that core/text has.
#pragma once

#include <string_view>

#include "core/base/status.h"
#include "core/weights/json_tree.h"

namespace llmrt {

// Whether the model is BPE over SentencePiece's pieces, with bytes to fall back to; else it is over bytes.
bool has_byte_fallback(const JsonTree& model);

// The name by which core/text knows the steps of byte-level BPE. Error: unsupported.
Result<std::string_view> find_pre_name(const JsonTree& tokenizer, const JsonTree& model);

// The steps of BPE over pieces: where a space is put in front of the text.
struct HfPieceSteps {
  bool adds_space = false;
  std::string_view space_prefix = "every_piece";  // as llmrt.space_prefix names it
  bool is_normalized = false;  // added tokens with "normalized" are searched for in a text that begins with that space
};
Result<HfPieceSteps> read_piece_steps(const JsonTree& tokenizer, const JsonTree& model);

}  // namespace llmrt
