#include "server/prompt_tokens.h"

#include "server/api_request.h"

namespace llmrt::server {
namespace {

std::vector<int32_t> checked(Fields& fields, const ServedModel& model, std::string_view name,
                             std::vector<int32_t> tokens, bool is_cut) {
  if (tokens.size() <= model.context_max) return tokens;
  fields.fail(too_long(model, std::string(name), tokens.size(), is_cut, 0));
  return {};
}

}  // namespace

std::vector<int32_t> encode_prompt(Fields& fields, const ServedModel& model, std::string_view name,
                                   std::string_view text, bool add_bos) {
  EncodeOptions options;
  options.add_bos = add_bos;
  return checked(fields, model, name, model.tokenizer->encode(text, options), false);
}

std::vector<int32_t> encode_rendered(Fields& fields, const ServedModel& model, std::string_view name,
                                     std::span<const TextPiece> pieces) {
  // The template itself writes what begins a text; nothing is added to it.
  return checked(fields, model, name, model.tokenizer->encode_pieces(pieces, /*add_bos=*/false), false);
}

}  // namespace llmrt::server
