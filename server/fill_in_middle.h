// The prompt of a text that is to be written between two others. Pure; not for an I/O thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "server/fields.h"
#include "server/parse_context.h"
#include "server/served_model.h"

namespace llmrt::server {

// Another part of the client's sources.
struct SourceChunk {
  std::string_view file_name, text;
};

struct FillIn {
  std::vector<int32_t> prefix, suffix;
  std::vector<SourceChunk> extra = {};  // the most important last
  uint32_t answer_tokens = 1;           // to leave room for, beside `extra`
};

// Whether the vocabulary has the tokens; if not, fields.failed() and `name` is named.
bool check_fill_in(Fields& fields, const ServedModel& model, std::string_view name);

// bos where the vocabulary asks for it, the extra chunks, then prefix, suffix and the mark of the middle. As many of
// the last chunks as fit are taken, whole; *is_cut: some were not. Prefix and suffix are never cut: fields.failed()
// where they do not fit, naming `name`.
std::vector<int32_t> fill_in_prompt(Fields& fields, const ServedModel& model, const ParseContext& context,
                                    std::string_view name, const FillIn& wanted, bool add_bos, bool* is_cut);

}  // namespace llmrt::server
