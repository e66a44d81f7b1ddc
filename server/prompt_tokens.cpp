#include "server/prompt_tokens.h"

#include <algorithm>

#include "server/api_request.h"

namespace llmrt::server {
namespace {

EncodeOptions limited(const ServedModel& model, const ParseContext& context, bool add_bos) {
  EncodeOptions options;
  options.add_bos = add_bos;
  options.tokens_max = model.context_max;
  options.cancelled = context.cancelled;
  return options;
}

std::vector<int32_t> checked(Fields& fields, const ServedModel& model, const ParseContext& context,
                             std::string_view name, std::vector<int32_t> tokens) {
  if (context.is_cancelled())
    fields.fail(client_has_gone());
  else if (tokens.size() > model.context_max)  // by one, where the rest was not read
    fields.fail(too_long(model, std::string(name), tokens.size(), tokens.size() == size_t{model.context_max} + 1, 0));
  else
    return tokens;
  return {};
}

}  // namespace

std::vector<int32_t> encode_prompt(Fields& fields, const ServedModel& model, const ParseContext& context,
                                   std::string_view name, std::string_view text, bool add_bos) {
  return checked(fields, model, context, name, model.tokenizer->encode(text, limited(model, context, add_bos)));
}

std::vector<int32_t> encode_plain(Fields& fields, const ServedModel& model, const ParseContext& context,
                                  std::string_view name, std::string_view text) {
  EncodeOptions options = limited(model, context, /*add_bos=*/false);
  options.parse_special = false;
  return checked(fields, model, context, name, model.tokenizer->encode(text, options));
}

std::vector<int32_t> encode_up_to(const ServedModel& model, const ParseContext& context, std::string_view text,
                                  size_t tokens_max) {
  EncodeOptions options = limited(model, context, /*add_bos=*/false);
  options.parse_special = false;
  options.tokens_max = std::max<size_t>(tokens_max, 1);  // 0 would be no limit
  return model.tokenizer->encode(text, options);
}

std::vector<int32_t> encode_rendered(Fields& fields, const ServedModel& model, const ParseContext& context,
                                     std::string_view name, std::span<const TextPiece> pieces) {
  // The template itself writes what begins a text; nothing is added to it.
  return checked(fields, model, context, name,
                 model.tokenizer->encode_pieces(pieces, limited(model, context, /*add_bos=*/false)));
}

}  // namespace llmrt::server
