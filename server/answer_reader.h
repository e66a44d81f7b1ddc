// One choice of a chat as it is read: tokens in; thoughts, content and calls out. Stop strings are looked for in
// content alone. Pure; one owner.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/answer_parser.h"
#include "core/request/string_automaton.h"
#include "server/served_model.h"
#include "server/structure.h"

namespace llmrt::server {

struct AnswerForm;

// A piece of an answer, in the order in which clients are told.
struct AnswerPart {
  enum class Kind : uint8_t { kContent, kThought, kCallHead, kCallArguments };
  Kind kind = Kind::kContent;
  std::string text = {};  // of arguments (of a custom tool its input): a fragment
  uint32_t call_idx = 0;
  std::string id = {}, name = {};  // of a head
  bool is_custom = false;
};

class AnswerReader {
 public:
  AnswerReader(const ServedModel* model, const AnswerForm& form);

  void feed(int32_t token, std::string_view bytes, bool is_special, std::vector<AnswerPart>* parts);
  // Nothing may be fed afterwards. is_cut: by a limit.
  void finish(bool is_cut, std::vector<AnswerPart>* parts);

  // A stop string was met: nothing follows.
  bool has_stopped() const { return has_stopped_; }
  const std::string& stop_text() const { return stop_text_; }  // that was met
  bool has_calls() const { return num_calls_ > 0; }
  uint64_t num_thought_tokens() const { return parser_->num_thought_tokens(); }
  const AnswerCounts& counts() const { return parser_->counts(); }

 private:
  void take(std::vector<AnswerEvent> events, std::vector<AnswerPart>* parts);
  void take_content(std::string text, std::vector<AnswerPart>* parts);
  void add(AnswerPart::Kind kind, std::string text, std::vector<AnswerPart>* parts) const;
  void release_content(std::vector<AnswerPart>* parts);

  const bool shows_thoughts_;  // apart from content
  std::shared_ptr<const AnswerStructure> structure_;
  std::unique_ptr<AnswerParser> parser_;
  std::shared_ptr<const StringAutomaton> stops_;  // null: none
  bool includes_stop_;
  uint32_t stop_state_ = StringAutomaton::kStart;
  std::string held_content_;  // that may be the beginning of a stop string
  bool has_stopped_ = false;
  std::string stop_text_;
  uint32_t num_calls_ = 0;
  bool is_custom_ = false;   // the call that is open
  std::string custom_args_;  // its arguments so far
};

// Whether answers of this form are read by an AnswerReader.
bool reads_answer(const ServedModel& model, const AnswerForm& form);

}  // namespace llmrt::server
