// Texts of clients to tokens, no further than the context reaches. Pure; not for an I/O thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "server/fields.h"
#include "server/parse_context.h"
#include "server/served_model.h"

namespace llmrt::server {

// Empty and fields.failed(), naming `name`, where the text has more tokens than the context: it is not read further
// than that. Likewise when the client goes meanwhile. `model` has a tokenizer.
std::vector<int32_t> encode_prompt(Fields& fields, const ServedModel& model, const ParseContext& context,
                                   std::string_view name, std::string_view text, bool add_bos);
// The same of a text in which special tokens are read as what they spell, and without what begins a text.
std::vector<int32_t> encode_plain(Fields& fields, const ServedModel& model, const ParseContext& context,
                                  std::string_view name, std::string_view text);
// So, too, but no error where it has more than `tokens_max` tokens: then it is more tokens than that.
std::vector<int32_t> encode_up_to(const ServedModel& model, const ParseContext& context, std::string_view text,
                                  size_t tokens_max);
std::vector<int32_t> encode_rendered(Fields& fields, const ServedModel& model, const ParseContext& context,
                                     std::string_view name, std::span<const TextPiece> pieces);

}  // namespace llmrt::server
