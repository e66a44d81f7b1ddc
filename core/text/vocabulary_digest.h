// What tells whether two models mean the same by a token id: SHA-256 over the tokens as stored, in their order, and
// which of them are special. Unused ones at the end are left out, as models of one family pad their vocabularies
// differently; merges and scores make ids of a text, and no difference to what an id means.
#pragma once

#include "core/base/sha256.h"
#include "core/text/tokenizer.h"

namespace llmrt {

Digest vocabulary_digest(const Vocabulary& vocabulary);

}  // namespace llmrt
