// Answers of the completion endpoints as JSON text: the whole body, or chunks of a stream. chat_answer.cpp,
// completion_answer.cpp and infill_answer.cpp are the endpoints' own parts. Pure.
//
// A whole answer grows as text, choice by choice (AnswerDraft), since what it is made from takes several times the
// memory; alternatives in the logprobs lists make some kilobytes of a token.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "server/answer_writer.h"
#include "server/choice.h"
#include "server/text_pieces.h"

namespace llmrt::server {

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
// JSON has no infinity; -9999 is what others write for "never".
void append_logprob(float logprob, std::string& out);
// A token as OpenAI's lists of chats and responses show it, with its alternatives; special tokens are spelled out.
void append_token_entry(const ServedModel& model, const TokenRecord& record, bool with_ids, std::string& out);
// ,"warnings":[...], or nothing.
void append_warnings(const AnswerForm& form, std::string& out);

// A writer that keeps a draft of each choice of a whole answer.
class DraftWriter : public AnswerWriter {
 public:
  DraftWriter(const ServedModel& model, const AnswerForm& form, AnswerHead head)
      : model_(model), form_(form), head_(std::move(head)) {}

  void add(size_t choice, const ChoiceDelta& delta) override;
  size_t held_bytes() const override;
  void fail(const ApiError& error, std::string& out) override;  // in OpenAI's form

 protected:
  // One token of the logprobs lists.
  virtual void add_record(const TokenRecord& record, AnswerDraft& draft) const {
    static_cast<void>(record);
    static_cast<void>(draft);
  }
  AnswerDraft& draft(size_t choice);

  const ServedModel& model_;
  const AnswerForm form_;
  const AnswerHead head_;

 private:
  std::vector<AnswerDraft> drafts_;
};

// What OpenAI's two completion endpoints have in common.
class OpenAiWriter : public DraftWriter {
 public:
  using DraftWriter::DraftWriter;

  TextPieces whole(const std::vector<Choice>& choices) override;
  void end(const std::vector<Choice>& choices, std::string& out) override;

 protected:
  virtual const char* object(bool is_chunk) const = 0;
  // Members of a choice up to "logprobs":.
  virtual void append_said(AnswerDraft& draft, TextPieces& body) const = 0;
  virtual void append_logprob_lists(AnswerDraft& draft, TextPieces& body) const = 0;
  // The prompt's ids stand in every choice, or once.
  virtual bool tells_prompt_by_choice() const = 0;

  std::string frame(bool is_chunk) const;  // {"id": ..., without the closing brace
  boost::json::value finish_of(FinishReason finish, bool ends_in_calls) const;
  void end_chunk(const std::vector<Choice>& choices, std::string& out) const;
  std::string_view bytes_of(int32_t token) const;  // special tokens are spelled out
  // Whether choice `choice` is new to the stream; asked once.
  bool begins(size_t choice);

 private:
  std::vector<bool> begun_;
};

std::unique_ptr<AnswerWriter> make_chat_writer(const ServedModel& model, const AnswerForm& form, AnswerHead head);
std::unique_ptr<AnswerWriter> make_completion_writer(const ServedModel& model, const AnswerForm& form, AnswerHead head);
// `clock` tells how long the answer takes, from now on; it outlives the writer.
std::unique_ptr<AnswerWriter> make_infill_writer(const ServedModel& model, const AnswerForm& form, AnswerHead head,
                                                 const Clock& clock);

}  // namespace llmrt::server
