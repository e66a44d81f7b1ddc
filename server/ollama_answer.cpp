#include "server/ollama_answer.h"

#include <iterator>
#include <utility>
#include <vector>

#include "core/grammar/json_spelling.h"
#include "server/answer_json.h"
#include "server/json_reader.h"
#include "server/ollama_request.h"
#include "server/rfc3339.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;
using Part = AnswerPart::Kind;

std::string line_begin(const OllamaForm& form, int64_t created) {
  return fmt::format("{{\"model\":{},\"created_at\":\"{}\"", json_string_text(form.model), rfc3339(created));
}

class OllamaWriter final : public AnswerWriter {
 public:
  OllamaWriter(const OllamaForm& form, AnswerHead head, const Clock& clock)
      : form_(form), head_(std::move(head)), clock_(clock), begun_ns_(clock.now_ns()) {}

  void note(const TokenEvent& event) override {
    last_ns_ = clock_.now_ns();
    if (first_ns_ == 0 && event.token >= 0) first_ns_ = last_ns_;
  }

  void add(size_t, const ChoiceDelta& delta) override {
    take(delta, [this](Part kind, const std::string& text) {
      if (kind == Part::kCallHead)
        calls_ += (calls_.empty() ? "" : ",") + text;
      else
        append_said(text, kind == Part::kThought ? thought_ : content_);
    });
  }
  size_t held_bytes() const override {
    return content_.held_bytes() + thought_.held_bytes() + calls_.capacity() + args_.capacity();
  }
  TextPieces whole(const std::vector<Choice>& choices) override {
    TextPieces body;
    body.append(line_begin(form_, head_.created));
    body.append(form_.is_generate ? ",\"response\":\"" : ",\"message\":{\"role\":\"assistant\",\"content\":\"");
    body.append(std::move(content_));
    body.append("\"");
    if (!thought_.empty()) {
      body.append(",\"thinking\":\"");
      body.append(std::move(thought_));
      body.append("\"");
    }
    if (!calls_.empty()) {
      body.append(",\"tool_calls\":[");
      body.append(calls_);
      body.append("]");
    }
    if (!form_.is_generate) body.append("}");
    body.append(done_members(choices[0]) + "}");
    return body;
  }

  void chunk(size_t, const ChoiceDelta& delta, const std::vector<Choice>&, bool, std::string& out) override {
    take(delta, [&](Part kind, const std::string& text) { line(kind, text, out); });
  }
  void end(const std::vector<Choice>& choices, std::string& out) override {
    out += line_begin(form_, head_.created) + said(Part::kContent, "") + done_members(choices[0]) + "}\n";
  }
  void fail(const ApiError& error, std::string& out) override {
    out += json::serialize(error_body(error, {ErrorForm::kOllama})) + "\n";
  }
  // An empty line is none to clients that read each line as JSON.
  void keep_alive(std::string& out) override { line(Part::kContent, "", out); }

 private:
  static void append_said(std::string_view text, TextPieces& to) {
    std::string escaped;
    append_escaped(text, escaped);
    to.append(escaped);
  }

  // Calls are told whole: their arguments are objects here. visit(kind, text); of a call its JSON.
  template <typename Visit>
  void take(const ChoiceDelta& delta, Visit visit) {
    if (!delta.text.empty()) visit(Part::kContent, delta.text);
    for (const AnswerPart& part : delta.parts) {
      if (part.kind == Part::kCallArguments) {
        args_ += part.text;
        continue;
      }
      end_call(visit);
      if (part.kind == Part::kCallHead) {
        is_in_call_ = true;
        call_id_ = part.id;
        call_name_ = part.name;
      } else if (!part.text.empty()) {
        visit(part.kind, part.text);
      }
    }
    if (delta.finish == FinishReason::kNone) return;
    end_call(visit);
    is_cut_ = delta.finish == FinishReason::kLength;
  }
  template <typename Visit>
  void end_call(Visit visit) {
    if (!std::exchange(is_in_call_, false)) return;
    const std::string args = args_.empty() ? "{}" : std::exchange(args_, {});
    const auto value = read_json(args);
    const std::string name = json_string_text(call_name_);
    if (value && value->is_object())
      visit(Part::kCallHead, fmt::format("{{\"id\":{},\"function\":{{\"index\":{},\"name\":{},\"arguments\":{}}}}}",
                                         json_string_text(call_id_), num_calls_++, name, args));
    else  // no client could read it as a call
      visit(Part::kContent, fmt::format("{{\"name\": {}, \"arguments\": {}}}", name, args));
  }

  // What is said, behind what every line begins with.
  std::string said(Part kind, const std::string& text) const {
    const std::string content = json_string_text(kind == Part::kContent ? text : std::string());
    std::string more;
    if (kind == Part::kThought) more = ",\"thinking\":" + json_string_text(text);
    if (kind == Part::kCallHead) more = ",\"tool_calls\":[" + text + "]";
    if (form_.is_generate) return ",\"response\":" + content + more;
    return ",\"message\":{\"role\":\"assistant\",\"content\":" + content + more + "}";
  }
  void line(Part kind, const std::string& text, std::string& out) const {
    out += line_begin(form_, head_.created) + said(kind, text) + ",\"done\":false}\n";
  }
  std::string done_members(const Choice& choice) const {
    const TimeNs end = last_ns_ == 0 ? begun_ns_ : last_ns_, first = first_ns_ == 0 ? end : first_ns_;
    return fmt::format(
        ",\"done\":true,\"done_reason\":\"{}\",\"total_duration\":{},\"load_duration\":0,\"prompt_eval_count\":{},"
        "\"prompt_eval_duration\":{},\"eval_count\":{},\"eval_duration\":{}",
        is_cut_ ? "length" : "stop", end - begun_ns_, choice.prompt_tokens().size(), first - begun_ns_,
        choice.num_generated(), end - first);
  }

  const OllamaForm form_;
  const AnswerHead head_;
  const Clock& clock_;
  const TimeNs begun_ns_;
  TimeNs first_ns_ = 0, last_ns_ = 0;  // of tokens; 0 = none came
  TextPieces content_, thought_;       // of a whole answer, inside the quotes
  std::string calls_;                  // likewise, with commas between
  bool is_in_call_ = false, is_cut_ = false;
  std::string call_id_, call_name_, args_;
  size_t num_calls_ = 0;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_ollama_writer(const ServedModel& model, const AnswerForm& form, AnswerHead head,
                                                 const Clock& clock) {
  static_cast<void>(model);
  return std::make_unique<OllamaWriter>(static_cast<const OllamaForm&>(*form.own), std::move(head), clock);
}

}  // namespace llmrt::server
