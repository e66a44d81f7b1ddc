// Answers of /infill, as llama.cpp's plugins for editors read them: content, and what it took.
#include <algorithm>

#include "server/answer_json.h"
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

class InfillWriter final : public DraftWriter {
 public:
  InfillWriter(const ServedModel& model, const AnswerForm& form, AnswerHead head, const Clock& clock)
      : DraftWriter(model, form, std::move(head)),
        infill_(static_cast<const InfillForm&>(*form_.own)),
        clock_(clock),
        begun_ns_(clock.now_ns()) {}

  void note(const TokenEvent& event) override {
    last_ns_ = clock_.now_ns();
    if (first_ns_ == 0 && event.token >= 0) first_ns_ = last_ns_;
  }
  TextPieces whole(const std::vector<Choice>& choices) override;
  void chunk(size_t choice, const ChoiceDelta& delta, const std::vector<Choice>& choices, bool is_last,
             std::string& out) override;
  void end(const std::vector<Choice>&, std::string&) override {}

 private:
  json::object end_of(const Choice& choice, FinishReason finish) const;

  const InfillForm& infill_;
  const Clock& clock_;
  const TimeNs begun_ns_;
  TimeNs first_ns_ = 0, last_ns_ = 0;  // of the first token (0: none came), of the last event
};

json::object InfillWriter::end_of(const Choice& choice, FinishReason finish) const {
  const TimeNs first = first_ns_ == 0 ? last_ns_ : first_ns_;
  const double prompt_ms = ms_between(begun_ns_, first), predicted_ms = ms_between(first, last_ns_);
  const size_t prompt = choice.prompt_tokens().size();
  const size_t predicted = infill_.shows_nothing ? 0 : choice.num_generated();
  const size_t num_computed = prompt - std::min(prompt, choice.num_cached());
  const auto computed = static_cast<double>(num_computed), written = static_cast<double>(predicted);
  return {{"index", 0},
          {"stop", true},
          {"model", model_.id},
          {"tokens_predicted", predicted},
          {"tokens_evaluated", prompt},
          {"tokens_cached", prompt + predicted},
          {"truncated", infill_.is_cut},
          {"stop_type", stop_type(finish)},
          {"timings",
           {{"cache_n", choice.num_cached()},
            {"prompt_n", num_computed},
            {"prompt_ms", prompt_ms},
            {"prompt_per_token_ms", per(prompt_ms, computed)},
            {"prompt_per_second", per(1e3 * computed, prompt_ms)},
            {"predicted_n", predicted},
            {"predicted_ms", predicted_ms},
            {"predicted_per_token_ms", per(predicted_ms, written)},
            {"predicted_per_second", per(1e3 * written, predicted_ms)}}}};
}

TextPieces InfillWriter::whole(const std::vector<Choice>& choices) {
  AnswerDraft said = std::move(draft(0));
  json::object end = end_of(choices[0], said.finish);
  bool has_content = true;
  if (const auto& names = infill_.response_fields; !names.empty()) {
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
    if (!infill_.shows_nothing) body.append(std::move(said.text));
    body.append("\"");
  }
  std::string rest;
  if (!end.empty()) rest = (has_content ? "," : "") + json::serialize(end).substr(1);
  if (end.empty()) rest = "}";
  if (!form_.warnings.empty()) {
    rest.pop_back();
    const bool is_first = !has_content && end.empty();
    std::string warnings;
    append_warnings(form_, warnings);
    rest += is_first ? warnings.substr(1) : warnings;
    rest += "}";
  }
  body.append(rest);
  return body;
}

void InfillWriter::chunk(size_t choice, const ChoiceDelta& delta, const std::vector<Choice>& choices, bool,
                         std::string& out) {
  if (delta.empty() && model_.tokenizer) return;
  out += "data: {\"content\":";
  append_string(infill_.shows_nothing ? "" : delta.text, out);
  if (delta.finish == FinishReason::kNone) {
    out += ",\"index\":0,\"stop\":false}\n\n";
    return;
  }
  out += "," + json::serialize(end_of(choices[choice], delta.finish)).substr(1);
  out.pop_back();
  append_warnings(form_, out);
  out += "}\n\n";
}

}  // namespace

std::unique_ptr<AnswerWriter> make_infill_writer(const ServedModel& model, const AnswerForm& form, AnswerHead head,
                                                 const Clock& clock) {
  return std::make_unique<InfillWriter>(model, form, std::move(head), clock);
}

}  // namespace llmrt::server
