// One choice of an answer: events of the engine in, pieces of text, log-probabilities and token ids out. Keeps the
// bytes that a stop string may still take back, and characters that are not whole yet. Pure; one owner.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/request/request.h"
#include "core/text/detokenizer.h"
#include "server/answer_reader.h"
#include "server/api_request.h"

namespace llmrt::server {

// One token as the log-probability lists show it.
struct TokenRecord {
  int32_t token = -1;
  std::string bytes;       // special tokens are spelled out, as they are among the alternatives
  size_t text_offset = 0;  // characters of the choice's text before it
  bool has_logprob = false;
  float logprob = 0;
  std::vector<TopLogprob> top;
};

// What an event adds to the choice.
struct ChoiceDelta {
  std::string text;
  std::vector<AnswerPart> parts;     // instead of text, where the answer is read
  std::vector<TokenRecord> records;  // with form.logprobs >= 0
  std::vector<int32_t> token_ids;    // of the answer
  FinishReason finish = FinishReason::kNone;
  bool ends_in_calls = false;  // with a finish
  std::string stop_text;       // likewise: the stop string that was met, where the form tells it
  std::optional<Error> error;

  bool empty() const {
    return text.empty() && parts.empty() && records.empty() && token_ids.empty() && finish == FinishReason::kNone;
  }
  void append(ChoiceDelta&& next);
};

// What the choices of one prompt share.
struct ChoicePrompt {
  explicit ChoicePrompt(const PromptRequest& prompt)
      : tokens(prompt.request.prompt), echo_text(prompt.echo_text), num_not_echoed(prompt.num_not_echoed) {}

  std::vector<int32_t> tokens;
  std::string echo_text;
  size_t num_not_echoed;  // characters of its tokens before the echoed text
};

class Choice {
 public:
  Choice(const ServedModel* model, const AnswerForm& form, std::shared_ptr<const ChoicePrompt> prompt);
  Choice(const ServedModel* model, const AnswerForm& form, const PromptRequest& prompt)
      : Choice(model, form, std::make_shared<ChoicePrompt>(prompt)) {}

  ChoiceDelta advance(const TokenEvent& event);

  const std::vector<int32_t>& prompt_tokens() const { return prompt_->tokens; }
  size_t num_generated() const { return num_generated_; }
  size_t num_cached() const { return num_cached_; }  // of the prompt; known with the first token
  // What was odd in the answer so far; null: it is not read.
  const AnswerCounts* counts() const { return reader_ ? &reader_->counts() : nullptr; }
  size_t num_thought_tokens() const { return reader_ ? reader_->num_thought_tokens() : 0; }
  // It has ended here and goes on in the engine: a stop string was met in its content.
  bool ends_early() const { return ends_early_; }
  // The mean over the answer's tokens, the end token among them; 0 without tokens. Only where the core was asked for
  // them.
  double mean_logprob() const;
  bool finished() const { return finished_; }

 private:
  struct Pending {
    TokenRecord record;
    size_t begin, end;      // its bytes in bytes_
    bool is_begun = false;  // some of its bytes are shown already
  };
  TokenRecord record_of(const TokenEvent& event, std::string_view bytes) const;
  void advance_prompt(const TokenEvent& event, ChoiceDelta& delta);
  void release(size_t shown_end, bool at_end, ChoiceDelta& delta);
  std::string stop_text(const TokenEvent& event) const;
  void advance_reader(const TokenEvent& event, ChoiceDelta& delta);

  const ServedModel* model_;
  AnswerForm form_;
  std::shared_ptr<const ChoicePrompt> prompt_;
  bool has_echoed_ = false;
  CharacterCount characters_;  // of the tokens before the next one
  std::string bytes_;          // of the answer's tokens that are not shown yet
  std::vector<Pending> pending_;
  Utf8Assembler utf8_;
  size_t num_generated_ = 0, num_cached_ = 0;
  double logprob_sum_ = 0;
  bool finished_ = false, ends_early_ = false;
  std::shared_ptr<AnswerReader> reader_;  // null: the answer is text; copies before the first event only
  // Tokens whose text may still be taken back.
  struct Held {
    int32_t token;
    std::string bytes;
    bool is_special;
  };
  std::deque<Held> held_;
};

}  // namespace llmrt::server
