// tokenizer.json of a Hugging Face folder as GGUF's tokenizer.ggml.* metadata: byte-level BPE whose steps are those of
// a pre-tokenizer that core/text knows, or SentencePiece's BPE with byte fallback. Every part that changes tokens is
// read or refused by name. What GGUF has no key for is under "llmrt.": the merges of pieces, how a space is put in
// front, and the ends of an answer beyond the second (core/model/README.md).
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/weights/canonical_metadata.h"
#include "core/weights/json_tree.h"

namespace llmrt {

inline constexpr JsonBounds kTokenizerJsonBounds = {64u << 20, 1u << 22, 24};

// The folder's texts beside it; null where the file is not there.
struct HfTokenizerTexts {
  const JsonTree* tokenizer = nullptr;          // tokenizer.json
  const JsonTree* tokenizer_config = nullptr;   // names of special tokens, an older chat template
  const JsonTree* generation_config = nullptr;  // ids of special tokens
  const JsonTree* config = nullptr;             // the same, where that has none
  // Added tokens whose ids are beyond the embedding's rows are those of images, in a file that models without share.
  bool leaves_out_added_beyond_rows = false;
};

// `vocab_size`: the rows of the embedding; ids that tokenizer.json leaves out become unused tokens. Errors:
// corrupt_file, unsupported.
Status read_hf_tokenizer(const HfTokenizerTexts& texts, uint64_t vocab_size, CanonicalMetadata& metadata);

}  // namespace llmrt
