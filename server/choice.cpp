#include "server/choice.h"

#include <algorithm>
#include <iterator>

namespace llmrt::server {
namespace {

template <typename T>
void move_append(std::vector<T>& to, std::vector<T>&& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

void ChoiceDelta::append(ChoiceDelta&& next) {
  text += next.text;
  move_append(parts, std::move(next.parts));
  move_append(records, std::move(next.records));
  move_append(token_ids, std::move(next.token_ids));
  if (next.finish != FinishReason::kNone) finish = next.finish;
  ends_in_calls |= next.ends_in_calls;
  if (!next.stop_text.empty()) stop_text = std::move(next.stop_text);
  if (next.error) error = std::move(next.error);
}

Choice::Choice(const ServedModel* model, const AnswerForm& form, std::shared_ptr<const ChoicePrompt> prompt)
    : model_(model), form_(form), prompt_(std::move(prompt)) {
  if (reads_answer(*model, form)) reader_ = std::make_shared<AnswerReader>(model, form);
}

TokenRecord Choice::record_of(const TokenEvent& event, std::string_view bytes) const {
  TokenRecord record;
  record.token = event.token;
  record.bytes = bytes;
  record.text_offset = characters_.value() - std::min(characters_.value(), prompt_->num_not_echoed);
  record.has_logprob = event.has_logprob;
  record.logprob = event.logprob;
  record.top = event.top_logprobs;
  return record;
}

// A token of the prompt: its text is part of the echo, so only its record is new. Special tokens are spelled out.
void Choice::advance_prompt(const TokenEvent& event, ChoiceDelta& delta) {
  if (form_.logprobs < 0) return;
  const std::string_view bytes = model_->tokenizer ? model_->tokenizer->token_bytes(event.token, true) : "";
  delta.records.push_back(record_of(event, bytes));
  characters_.push(bytes);
}

// Tokens are read as soon as nothing can take their text back.
void Choice::advance_reader(const TokenEvent& event, ChoiceDelta& delta) {
  if (event.token >= 0) {
    const std::string_view shown = model_->tokenizer->token_bytes(event.token);
    const std::string_view spelled = model_->tokenizer->token_bytes(event.token, true);
    held_.push_back({event.token, std::string(spelled), shown.empty() && !spelled.empty()});
  }
  const bool at_end = event.finish != FinishReason::kNone;
  size_t behind = 0;  // bytes of text behind the tokens that are read now
  size_t num_kept = 0;
  const size_t taken_back = at_end ? event.cut_bytes : event.hold_bytes;
  while (num_kept < held_.size() && behind < taken_back) {
    const Held& last = held_[held_.size() - 1 - num_kept++];
    if (!last.is_special) behind += last.bytes.size();
  }
  for (; held_.size() > num_kept; held_.pop_front()) {
    const Held& first = held_.front();
    reader_->feed(first.token, first.bytes, first.is_special, &delta.parts);
  }
  if (!at_end) return;
  if (behind > taken_back) {  // a token is cut in two
    reader_->feed(-1, std::string_view(held_.front().bytes).substr(0, behind - taken_back), false, &delta.parts);
  }
  held_.clear();
  reader_->finish(event.finish == FinishReason::kLength, &delta.parts);
}

// Which of the form's stop strings the engine met: those that end first win, so the shortest one that fits.
std::string Choice::stop_text(const TokenEvent& event) const {
  if (form_.told_stops.empty()) return {};
  std::string_view found;
  if (event.finish == FinishReason::kStopToken && model_->tokenizer && event.token >= 0) {
    const std::string_view spelled = model_->tokenizer->token_bytes(event.token, /*special=*/true);
    const auto& stops = form_.told_stops;
    if (std::find(stops.begin(), stops.end(), spelled) != stops.end()) found = spelled;
  } else if (event.finish == FinishReason::kStopString) {
    const size_t num_cut = std::min<size_t>(bytes_.size(), event.cut_bytes);
    const std::string_view cut = std::string_view(bytes_).substr(bytes_.size() - num_cut);
    for (const std::string& stop : form_.told_stops)
      if (cut.starts_with(stop) && (found.empty() || stop.size() < found.size())) found = stop;
  }
  return std::string(found);
}

ChoiceDelta Choice::advance(const TokenEvent& event) {
  ChoiceDelta delta;
  if (ends_early_) return delta;
  num_cached_ = std::max<size_t>(num_cached_, event.cached_tokens);
  // Through the assembler: a prompt of token ids may end inside a character, which the answer may complete.
  if (!std::exchange(has_echoed_, true)) delta.text = utf8_.push(prompt_->echo_text);
  if (event.is_prompt) {
    advance_prompt(event, delta);
  } else if (event.token >= 0) {
    ++num_generated_;
    logprob_sum_ += static_cast<double>(event.logprob);
    if (form_.return_token_ids) delta.token_ids.push_back(event.token);
    const std::string_view bytes = model_->tokenizer ? model_->tokenizer->token_bytes(event.token) : "";
    if (form_.logprobs >= 0 && reader_) {
      delta.records.push_back(record_of(event, model_->tokenizer->token_bytes(event.token, true)));
    } else if (form_.logprobs >= 0) {
      const std::string_view spelled = model_->tokenizer ? model_->tokenizer->token_bytes(event.token, true) : "";
      pending_.push_back({record_of(event, spelled), bytes_.size(), bytes_.size() + bytes.size()});
      characters_.push(bytes);
    }
    if (!reader_) bytes_ += bytes;
  }
  if (reader_) advance_reader(event, delta);
  const bool at_end = event.finish != FinishReason::kNone;
  if (at_end) delta.stop_text = stop_text(event);
  if (at_end) bytes_.erase(bytes_.size() - std::min<size_t>(bytes_.size(), event.cut_bytes));
  release(at_end ? bytes_.size() : bytes_.size() - std::min<size_t>(bytes_.size(), event.hold_bytes), at_end, delta);
  if (at_end) {
    delta.text += utf8_.flush();
    delta.finish = event.finish;
    delta.error = event.error;
    finished_ = true;
  }
  if (reader_ && reader_->has_stopped() && (!at_end || event.finish == FinishReason::kLength)) {
    delta.finish = FinishReason::kStopString;
    if (!form_.told_stops.empty()) delta.stop_text = reader_->stop_text();
    ends_early_ = !at_end;
    finished_ = true;
  }
  delta.ends_in_calls = reader_ && reader_->has_calls() && delta.finish != FinishReason::kNone;
  return delta;
}

double Choice::mean_logprob() const {
  return num_generated_ > 0 ? logprob_sum_ / static_cast<double>(num_generated_) : 0;
}

// Shows bytes_[0, shown_end), and the records of tokens that are shown whole. At the end also those that a stop string
// cut in two; the ones that it took back altogether are dropped.
void Choice::release(size_t shown_end, bool at_end, ChoiceDelta& delta) {
  delta.text += utf8_.push(std::string_view(bytes_).substr(0, shown_end));
  size_t num_shown = 0;
  for (; num_shown < pending_.size(); ++num_shown) {
    Pending& pending = pending_[num_shown];
    const bool is_empty = pending.begin == pending.end && pending.begin == shown_end;
    const bool is_shown = at_end ? pending.begin < shown_end || is_empty || pending.is_begun : pending.end <= shown_end;
    if (!is_shown) break;
    delta.records.push_back(std::move(pending.record));
  }
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(num_shown));
  for (Pending& pending : pending_) {
    pending.is_begun |= pending.begin < shown_end;
    pending.begin -= std::min(pending.begin, shown_end);
    pending.end -= shown_end;
  }
  bytes_.erase(0, shown_end);
}

}  // namespace llmrt::server
