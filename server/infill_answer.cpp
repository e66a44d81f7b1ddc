// Answers of /infill, as llama.cpp's plugins for editors read them: content, and what it took.
#include <algorithm>

#include "core/grammar/json_spelling.h"
#include "server/api_answer.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

double per(double count, double of) {
  return of > 0 ? count / of : 0;
}

std::string_view stop_type(FinishReason finish) {
  switch (finish) {
    case FinishReason::kEos:
    case FinishReason::kGrammarEnd:
      return "eos";
    case FinishReason::kStopToken:
    case FinishReason::kStopString:
      return "word";
    case FinishReason::kLength:
      return "limit";
    default:
      return "none";
  }
}

// "a/b": the member b of the member a, under that whole name.
const json::value* find_path(const json::object& object, std::string_view path) {
  const size_t slash = path.find('/');
  const json::value* value = object.if_contains(path.substr(0, slash));
  if (slash == std::string_view::npos || !value) return value;
  return value->is_object() ? find_path(value->get_object(), path.substr(slash + 1)) : nullptr;
}

}  // namespace

json::object AnswerWriter::infill_end(const Choice& choice, FinishReason finish) const {
  const size_t prompt = choice.prompt_tokens().size();
  const size_t predicted = form_.infill->shows_nothing ? 0 : choice.num_generated();
  const size_t num_computed = prompt - std::min(prompt, choice.num_cached());
  const auto computed = static_cast<double>(num_computed), written = static_cast<double>(predicted);
  return {{"index", 0},
          {"stop", true},
          {"model", model_->id},
          {"tokens_predicted", predicted},
          {"tokens_evaluated", prompt},
          {"tokens_cached", prompt + predicted},
          {"truncated", form_.infill->is_cut},
          {"stop_type", stop_type(finish)},
          {"timings",
           {{"cache_n", choice.num_cached()},
            {"prompt_n", num_computed},
            {"prompt_ms", times_.prompt_ms},
            {"prompt_per_token_ms", per(times_.prompt_ms, computed)},
            {"prompt_per_second", per(1e3 * computed, times_.prompt_ms)},
            {"predicted_n", predicted},
            {"predicted_ms", times_.predicted_ms},
            {"predicted_per_token_ms", per(times_.predicted_ms, written)},
            {"predicted_per_second", per(1e3 * written, times_.predicted_ms)}}}};
}

TextPieces AnswerWriter::infill_whole(const Choice& choice, AnswerDraft draft) const {
  json::object end = infill_end(choice, draft.finish);
  bool has_content = true;
  if (const auto& names = form_.infill->response_fields; !names.empty()) {
    json::object wanted;
    has_content = false;
    for (const std::string& name : names) {
      has_content |= name == "content";
      if (const json::value* value = find_path(end, name)) wanted[name] = *value;
    }
    end = std::move(wanted);
  }
  TextPieces body;
  body.append("{");
  if (has_content) {
    body.append("\"content\":\"");
    if (!form_.infill->shows_nothing) body.append(std::move(draft.text));
    body.append("\"");
  }
  std::string rest;
  if (!end.empty()) rest = (has_content ? "," : "") + json::serialize(end).substr(1);
  if (end.empty()) rest = "}";
  if (!form_.warnings.empty()) {
    rest.pop_back();
    const bool is_first = !has_content && end.empty();
    std::string warnings;
    append_warnings(warnings);
    rest += is_first ? warnings.substr(1) : warnings;
    rest += "}";
  }
  body.append(rest);
  return body;
}

void AnswerWriter::infill_chunk(const Choice& choice, const ChoiceDelta& delta, std::string& out) const {
  const bool is_end = delta.finish != FinishReason::kNone;
  const std::string text = json_string_text(form_.infill->shows_nothing ? "" : delta.text);
  out += "data: {\"content\":" + text + ",";
  if (!is_end) {
    out += "\"index\":0,\"stop\":false}\n\n";
    return;
  }
  out += json::serialize(infill_end(choice, delta.finish)).substr(1);
  out.pop_back();
  append_warnings(out);
  out += "}\n\n";
}

}  // namespace llmrt::server
