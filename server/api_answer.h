// Answers of the two completion endpoints as JSON text: the whole body, or one chunk of a stream. Pure.
//
// A whole answer grows as text, choice by choice (AnswerDraft), since what it is made from takes several times the
// memory; alternatives in the logprobs lists make some kilobytes of a token.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "server/choice.h"
#include "server/text_pieces.h"

namespace llmrt::server {

struct AnswerHead {
  std::string id;  // one for the whole answer: "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;
};

// What one choice of a whole answer has said so far, as JSON text without what stands around it.
struct AnswerDraft {
  TextPieces text;     // inside the quotes
  TextPieces thought;  // likewise
  struct Call {
    std::string id, name;
    bool is_custom = false;
    TextPieces arguments;  // inside the quotes
  };
  std::vector<Call> calls;
  TextPieces tokens, logprobs, tops, offsets;  // members of the lists; chat has one list: tokens
  TextPieces token_ids;                        // members
  FinishReason finish = FinishReason::kNone;
  bool ends_in_calls = false;
  size_t held_bytes() const;
};

// "stop", "length"; null while there is none.
boost::json::value finish_text(FinishReason reason);
// `choices`: form.best_of of each prompt in a row. The prompt counts once, every generated token counts.
boost::json::object usage_of(const std::vector<Choice>& choices, const AnswerForm& form);
// Which of them are shown, in order: of each prompt all, or the form.n best.
std::vector<size_t> shown_choices(const std::vector<Choice>& choices, const AnswerForm& form);

// How long an answer of /infill took.
struct InfillTimes {
  double prompt_ms = 0, predicted_ms = 0;
};

class AnswerWriter {
 public:
  AnswerWriter(const ServedModel* model, const AnswerForm& form, AnswerHead head)
      : model_(model), form_(form), head_(std::move(head)) {}

  // A whole answer: what a delta adds to its choice; then the body.
  void add(const ChoiceDelta& delta, AnswerDraft& draft) const;
  TextPieces whole(const std::vector<Choice>& choices, std::vector<AnswerDraft> drafts) const;

  // Chunks of a stream, of choice `index`, as events ("data: ...\n\n") behind `out`. first_chunk: the role of a chat's
  // choice, before its text. is_last: nothing follows but the end of the stream, so it says what there is to say of
  // all.
  void first_chunk(size_t index, const std::vector<Choice>& choices, std::string& out) const;
  void chunk(size_t index, const ChoiceDelta& delta, bool first, const std::vector<Choice>& choices, std::string& out,
             bool is_last = false) const;
  void usage_chunk(const std::vector<Choice>& choices, std::string& out) const;
  void set_times(const InfillTimes& times) { times_ = times; }

 private:
  std::string frame(const char* object) const;  // {"id": ..., without the closing brace
  boost::json::value finish_of(FinishReason finish, bool ends_in_calls) const;
  void part_chunk(size_t index, const AnswerPart& part, const std::vector<Choice>& choices, std::string& out) const;
  void append_message(AnswerDraft&& draft, TextPieces& body) const;
  void end_chunk(const std::vector<Choice>& choices, std::string& out) const;
  TextPieces infill_whole(const Choice& choice, AnswerDraft draft) const;
  void infill_chunk(const Choice& choice, const ChoiceDelta& delta, std::string& out) const;
  boost::json::object infill_end(const Choice& choice, FinishReason finish) const;
  void append_warnings(std::string& out) const;
  void chat_record(int32_t token, std::string_view bytes, bool has_logprob, float logprob, std::string& out) const;
  void chat_entry(const TokenRecord& record, std::string& out) const;
  void completion_top(const TokenRecord& record, std::string& out) const;
  void append_logprobs(const std::vector<TokenRecord>& records, std::string& out) const;
  std::string_view bytes_of(int32_t token) const;  // special tokens are spelled out

  const ServedModel* model_;
  AnswerForm form_;
  AnswerHead head_;
  InfillTimes times_;
};

}  // namespace llmrt::server
