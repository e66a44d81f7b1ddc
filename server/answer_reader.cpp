#include "server/answer_reader.h"

#include "server/api_request.h"
#include "server/ids.h"
#include "server/json_reader.h"

namespace llmrt::server {
namespace {

AnswerOptions options_of(const AnswerStructure& structure, const ServedModel& model) {
  AnswerOptions options;
  for (const Tool& tool : structure.tools) options.tools.push_back(tool_types(tool.name, tool.parameters));
  options.start = structure.start;
  options.reads_calls = structure.choice != AnswerStructure::Choice::kNone && model.chat_format->format->has_calls();
  if (!structure.parallel) options.calls_max = 1;
  options.make_id = [length = model.chat_format->format->call_id.length](uint32_t) {
    return length > 0 ? make_bare_id(length) : make_id("call");
  };
  return options;
}

// The one string of a custom tool's arguments; where they are something else, as they are.
std::string custom_input(const std::string& args) {
  const auto value = read_json(args);
  const boost::json::object* object = value ? value->if_object() : nullptr;
  const boost::json::value* input = object ? object->if_contains("input") : nullptr;
  return input && input->is_string() ? std::string(input->get_string()) : args;
}

}  // namespace

bool reads_answer(const ServedModel& model, const AnswerForm& form) {
  return form.chat && form.structure && model.chat_format && model.reads_answers &&
         (model.chat_format->format->has_calls() || model.chat_format->format->has_thoughts());
}

AnswerReader::AnswerReader(const ServedModel* model, const AnswerForm& form)
    : shows_thoughts_(model->thought_field != "none"),
      structure_(form.structure),
      parser_(std::make_unique<AnswerParser>(*model->chat_format, options_of(*form.structure, *model))),
      stops_(form.content_stops.automaton()),
      includes_stop_(form.include_stop) {}

void AnswerReader::feed(int32_t token, std::string_view bytes, bool is_special, std::vector<AnswerPart>* parts) {
  if (has_stopped_) return;
  take(parser_->feed(token, bytes, is_special), parts);
}

void AnswerReader::finish(bool is_cut, std::vector<AnswerPart>* parts) {
  if (has_stopped_) return;
  take(parser_->finish(is_cut ? AnswerParser::End::kLimit : AnswerParser::End::kStop), parts);
  release_content(parts);
}

void AnswerReader::take(std::vector<AnswerEvent> events, std::vector<AnswerPart>* parts) {
  for (AnswerEvent& event : events) {
    if (has_stopped_) return;
    if (event.kind != AnswerEvent::Kind::kText) release_content(parts);
    switch (event.kind) {
      case AnswerEvent::Kind::kText:
        take_content(std::move(event.text), parts);
        break;
      case AnswerEvent::Kind::kThought:
        shows_thoughts_ ? add(AnswerPart::Kind::kThought, std::move(event.text), parts)
                        : take_content(std::move(event.text), parts);
        break;
      case AnswerEvent::Kind::kCallStart:
        ++num_calls_;
        is_custom_ = structure_->is_custom(event.name);
        custom_args_.clear();
        parts->push_back(
            {AnswerPart::Kind::kCallHead, "", event.index, std::move(event.id), std::move(event.name), is_custom_});
        break;
      case AnswerEvent::Kind::kArgs:
        if (is_custom_) {
          custom_args_ += event.text;
        } else {
          parts->push_back(
              {.kind = AnswerPart::Kind::kCallArguments, .text = std::move(event.text), .call_idx = event.index});
        }
        break;
      case AnswerEvent::Kind::kCallEnd:
        if (!is_custom_) break;
        parts->push_back({.kind = AnswerPart::Kind::kCallArguments,
                          .text = custom_input(custom_args_),
                          .call_idx = event.index,
                          .is_custom = true});
        is_custom_ = false;
        break;
    }
  }
}

void AnswerReader::add(AnswerPart::Kind kind, std::string text, std::vector<AnswerPart>* parts) const {
  if (text.empty()) return;
  if (!parts->empty() && parts->back().kind == kind) {
    parts->back().text += text;
  } else {
    parts->push_back({.kind = kind, .text = std::move(text)});
  }
}

void AnswerReader::take_content(std::string text, std::vector<AnswerPart>* parts) {
  if (!stops_) return add(AnswerPart::Kind::kContent, std::move(text), parts);
  for (const char c : text) {
    held_content_ += c;
    stop_state_ = stops_->advance(stop_state_, static_cast<uint8_t>(c));
    const uint32_t matched = stops_->match_bytes(stop_state_);
    if (matched == 0) continue;
    stop_text_ = held_content_.substr(held_content_.size() - std::min<size_t>(matched, held_content_.size()));
    if (!includes_stop_) held_content_.resize(held_content_.size() - std::min<size_t>(matched, held_content_.size()));
    release_content(parts);
    has_stopped_ = true;
    return;
  }
  const size_t held = std::min<size_t>(stops_->hold_bytes(stop_state_), held_content_.size());
  add(AnswerPart::Kind::kContent, held_content_.substr(0, held_content_.size() - held), parts);
  held_content_.erase(0, held_content_.size() - held);
}

void AnswerReader::release_content(std::vector<AnswerPart>* parts) {
  add(AnswerPart::Kind::kContent, std::exchange(held_content_, {}), parts);
}

}  // namespace llmrt::server
