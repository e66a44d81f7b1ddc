// Messages with headers (Harmony): role, recipient, channel and type say whether a message is thought, content, a call
// or nothing for the client.
#include <algorithm>

#include "core/chat/answer_parser.h"

namespace llmrt {
namespace {

constexpr size_t kHeaderBytesMax = 2048;

std::string_view first_word(std::string_view text) {
  const size_t from = text.find_first_not_of(" \t\r\n");
  if (from == text.npos) return {};
  text.remove_prefix(from);
  return text.substr(0, text.find_first_of(" \t\r\n\x01\x02"));
}

std::string_view recipient_of(std::string_view header) {
  for (size_t at = header.find("to="); at != header.npos; at = header.find("to=", at + 1)) {
    const bool begins_word =
        at == 0 || std::string_view(" \t\r\n\x01\x02").find(header[at - 1]) != std::string_view::npos;
    if (begins_word) return first_word(header.substr(at + 3));
  }
  return {};
}

}  // namespace

void AnswerParser::begin_header(bool is_marked) {
  source_.end_record();
  state_ = State::kHeader;
  outer_ = State::kText;
  header_.clear();
  header_is_marked_ = is_marked;
  num_header_tokens_ = 0;
}

void AnswerParser::header_data(Unit unit) {
  if (!is_byte(unit)) return;
  header_ += static_cast<char>(unit);
  if (header_.size() > kHeaderBytesMax) return header_is_text();
  if (header_is_marked_) return;
  // Where no mark came yet, anything but a recipient is an answer without a header.
  const size_t from = header_.find_first_not_of(" \t\r\n");
  if (from == std::string::npos) return;
  const std::string_view text = std::string_view(header_).substr(from);
  constexpr std::string_view kRecipient = "to=";
  if (!text.starts_with(kRecipient.substr(0, std::min(text.size(), kRecipient.size())))) header_is_text();
}

void AnswerParser::header_is_text() {
  count(Oddity::kBrokenHeader);
  std::string text = std::move(header_);
  std::erase_if(text, [](char c) { return c == kChannelByte || c == kTypeByte; });
  state_ = State::kText;
  // The next message may be a header's blanks and a body: content begins with text.
  plain_text(text);
}

void AnswerParser::header_mark(const MarkScanner::Found& found) {
  switch (found.mark) {
    case Mark::kMessage:
      return route_message();
    case Mark::kChannel:
      header_is_marked_ = true;
      header_ += kChannelByte;
      return;
    case Mark::kConstrain:
      header_is_marked_ = true;
      header_ += kTypeByte;
      return;
    case Mark::kHeaderStart:
    case Mark::kMessageEnd:
      end_header();
      return begin_header(found.mark == Mark::kHeaderStart);
    default:
      return;
  }
}

void AnswerParser::route_message() {
  const std::string header = std::exchange(header_, {});
  const size_t channel_at = header.rfind(kChannelByte);
  const std::string_view channel = channel_at == std::string::npos
                                       ? std::string_view()
                                       : first_word(std::string_view(header).substr(channel_at + 1));
  const std::string_view recipient = recipient_of(header);
  const std::string& prefix = format_.name_marks.strip_prefix;
  const bool is_function = recipient.starts_with(prefix) && recipient.size() > prefix.size();
  if (options_.reads_calls && (is_function || is_declared(recipient))) {
    if (channel != "commentary" || !is_function) count(Oddity::kBrokenHeader);
    outer_ = State::kText;
    is_bare_ = only_declared_ = false;
    start_body(false, std::string(recipient));
    return;
  }
  if (!recipient.empty()) {
    count(Oddity::kDroppedCall);
    state_ = State::kDropped;
    return;
  }
  if (channel == "analysis") {
    state_ = State::kThought;
    thought_is_empty_ = true;
    num_thought_tokens_ += num_header_tokens_;
    return;
  }
  if (channel != "final" && channel != "commentary") count(Oddity::kBrokenHeader);
  state_ = State::kText;
  breaks_content_ = has_content_;
}

// A header that no message follows says nothing; text without any header was answered already.
void AnswerParser::end_header() {
  const bool is_blank = header_.find_first_not_of(" \t\r\n") == std::string::npos;
  if (!is_blank || header_is_marked_) count(Oddity::kBrokenHeader);
  header_.clear();
}

}  // namespace llmrt
