// The request of /infill.
#include <algorithm>

#include "server/fill_in_middle.h"
#include "server/known_fields.h"
#include "server/prompt_tokens.h"
#include "server/shared_fields.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

// The text of one of /infill's fields; empty where it is absent.
std::string_view read_source(Fields& fields, const ServedModel& model, std::string_view name) {
  const json::value* value = fields.any(name);
  if (!value) return {};
  if (!value->is_string()) {
    fields.fail(name, fmt::format("expected a string, found {}", describe(*value)));
    return {};
  }
  const std::string_view text(value->get_string());
  return check_text_bytes(fields, model, name, text.size()) ? text : std::string_view();
}

// [{text, filename}, ...]
std::vector<SourceChunk> read_extra(Fields& fields) {
  std::vector<SourceChunk> chunks;
  const json::array* extra = fields.array("input_extra", kInfillChunksMax);
  if (!extra) return chunks;
  for (const json::value& entry : *extra) {
    const json::object* object = entry.if_object();
    const json::value* text = object ? object->if_contains("text") : nullptr;
    const json::value* name = object ? object->if_contains("filename") : nullptr;
    if (!text || !text->is_string() || (name && !name->is_null() && !name->is_string())) {
      fields.fail("input_extra", "expected objects with text and, where it is known, filename, both strings");
      return {};
    }
    const std::string_view file = name && name->is_string() ? std::string_view(name->get_string()) : std::string_view();
    chunks.push_back({file.substr(0, kInfillFileNameMax), std::string_view(text->get_string())});
  }
  return chunks;
}

std::vector<std::string> read_response_fields(Fields& fields) {
  std::vector<std::string> names;
  const json::array* given = fields.array("response_fields", 64);
  if (!given) return names;
  for (const json::value& name : *given) {
    if (!name.is_string() || name.get_string().size() > 128)
      fields.fail("response_fields", "expected strings of at most 128 bytes");
    else
      names.emplace_back(name.get_string());
  }
  return names;
}

// Names of llama.cpp that its editor plugins send with every request, and that change nothing here.
void read_infill_hints(Fields& fields, std::vector<std::string>& ignored) {
  for (const char* name : {"t_max_prompt_ms", "id_slot", "cache_prompt"}) fields.any(name);
  if (const json::value* samplers = fields.any("samplers"); samplers && !is_neutral(Neutral::kEmpty, *samplers))
    add_ignored(ignored, "samplers");
  for (const char* name : {"n_indent", "t_max_predict_ms"}) {
    if (const json::value* value = fields.any(name); value && !is_neutral(Neutral::kZero, *value))
      add_ignored(ignored, name);
  }
}

}  // namespace

ApiResult<ApiRequest> parse_infill(const json::object& body, const ServedModel& model, const ParseContext& context) {
  constexpr int64_t kTokensMax = 1 << 30;
  Fields fields(body);
  SharedFields shared = read_shared(fields, model, context);
  if (shared.form.n != 1) fields.fail("n", fmt::format("expected 1 for this path, found {}", shared.form.n));
  if (shared.form.beams) fields.fail("use_beam_search", "expected false for this path, found true");
  const auto form = std::make_shared<InfillForm>();
  shared.form.own = form;
  form->response_fields = read_response_fields(fields);
  auto max_tokens = read_max_tokens(fields, "n_predict", "max_tokens", 0, kTokensMax);
  if (max_tokens == 0) {  // one token is the least that is computed
    form->shows_nothing = true;
    max_tokens = 1;
  }
  ApiRequest out;
  read_infill_hints(fields, out.ignored_fields);
  const std::string_view prefix = read_source(fields, model, "input_prefix");
  const std::string_view suffix = read_source(fields, model, "input_suffix");
  const std::string_view line = read_source(fields, model, "prompt");  // before the cursor, behind input_prefix
  FillIn wanted{.prefix = {}, .suffix = {}, .extra = read_extra(fields)};
  AnswerStructure structure;
  read_content_structure(fields, &structure);
  judge_rest(fields, Endpoint::kInfill, context.strict_fields, out.ignored_fields);
  check_fill_in(fields, model, "input_prefix");
  if (fields.error()) return *fields.error();

  wanted.prefix = encode_plain(fields, model, context, "input_prefix", std::string(prefix) + std::string(line));
  wanted.suffix = encode_plain(fields, model, context, "input_suffix", suffix);
  wanted.answer_tokens = static_cast<uint32_t>(std::clamp<int64_t>(max_tokens.value_or(-1), 1, model.context_max));
  std::vector<int32_t> prompt;
  if (!fields.failed()) prompt = fill_in_prompt(fields, model, context, "input_prefix", wanted, true, &form->is_cut);
  if (fields.error()) return *fields.error();
  out.form = shared.form;
  out.prompts.push_back({make_request(fields, shared, model, std::move(prompt), max_tokens.value_or(-1)), ""});
  take_structure(fields, model, std::move(structure), &out);
  if (fields.error()) return *fields.error();
  add_headers(out, max_tokens);
  return out;
}

}  // namespace llmrt::server
