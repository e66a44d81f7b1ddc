// What a file's vocabulary leaves out or gets wrong, although it can be used: mended where it is certain what the model
// was trained with, and told in any case.
#pragma once

#include <string>
#include <vector>

#include "core/text/tokenizer.h"
#include "core/weights/metadata.h"

namespace llmrt {

// Types of turn tokens that the chat template spells, or that begin or end a text, become control where they are
// normal. Each warning is a line that names key, token, what is assumed and what that may do.
std::vector<std::string> check_vocabulary(const Metadata& metadata, Vocabulary* vocabulary);

}  // namespace llmrt
