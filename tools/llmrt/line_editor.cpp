#include "tools/llmrt/line_editor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tools/llmrt/screen_text.h"

namespace llmrt::cli {
namespace {

constexpr size_t kHistoryBytesMax = 2 * LineEditor::kTurnBytesMax, kHistoryMax = 1000;
constexpr size_t kSequenceBytesMax = 32;  // longer ones are no key that is known
constexpr std::string_view kBlock = "\"\"\"";

constexpr char kControl(char letter) {
  return static_cast<char>(letter & 0x1f);
}
constexpr char kEscapeByte = 0x1b, kDelete = 0x7f;

bool is_inside_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

// """ begins a turn of several lines, and ends it.
bool is_open_block(std::string_view text) {
  return text.starts_with(kBlock) && (text.size() < 2 * kBlock.size() || !text.ends_with(kBlock));
}

}  // namespace

LineEditor::Step LineEditor::feed(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i)
    if (const Outcome outcome = on_byte(bytes[i]); outcome != Outcome::kMore) return {outcome, i + 1};
  return {Outcome::kMore, bytes.size()};
}

std::string LineEditor::take_turn() {
  std::string turn = text_;
  forget();
  if (turn.starts_with(kBlock) && turn.size() >= 2 * kBlock.size())
    turn = turn.substr(kBlock.size(), turn.size() - 2 * kBlock.size());
  return turn;
}

LineEditor::Outcome LineEditor::on_byte(char byte) {
  if (byte == kControl('C')) {
    forget();
    return Outcome::kInterrupted;
  }
  switch (state_) {
    case State::kText:
      return on_control(byte);
    case State::kEscape:
      sequence_.clear();
      // Alt with a key that has no character, or a paste whose terminal left an escape in it.
      if (static_cast<unsigned char>(byte) < 0x20 || (in_paste_ && byte != '[')) {
        state_ = State::kText;
        return on_control(byte);
      }
      if (byte == '[')
        state_ = State::kSequence;
      else if (byte == 'O')
        state_ = State::kSingle;
      else if (std::string_view("]PX^_").find(byte) != std::string_view::npos)
        state_ = State::kString;
      else
        state_ = State::kText;
      break;
    case State::kSequence:
      if (byte >= 0x40 && byte <= 0x7e) {
        state_ = State::kText;
        on_key(byte, sequence_);
      } else if (byte < 0x20) {
        state_ = State::kText;
        return on_control(byte);
      } else if (sequence_.size() < kSequenceBytesMax) {
        sequence_ += byte;
      }
      break;
    case State::kSingle:
      state_ = State::kText;
      on_key(byte, "");
      break;
    case State::kString:
      if (byte == kEscapeByte) state_ = State::kStringEscape;
      if (byte == kControl('G')) state_ = State::kText;
      break;
    case State::kStringEscape:
      state_ = byte == '\\' ? State::kText : State::kString;
      break;
  }
  return Outcome::kMore;
}

LineEditor::Outcome LineEditor::on_control(char byte) {
  const bool follows_return = std::exchange(was_return_, byte == '\r');
  if (byte == kEscapeByte) {
    state_ = State::kEscape;
  } else if (byte == '\n' && follows_return) {
    // one line end of two bytes
  } else if (in_paste_) {
    if (byte == '\r' || byte == '\n')
      paste_ += '\n';
    else if (static_cast<unsigned char>(byte) >= 0x20 || byte == '\t')
      paste_ += byte;
    if (text_.size() + paste_.size() > kTurnBytesMax) is_too_long_ = true, paste_.clear();
  } else if (byte == '\r' || byte == '\n') {
    return on_enter();
  } else if (byte == kControl('D')) {
    if (text_.empty()) return Outcome::kEnd;
    erase(cursor_, behind(cursor_));
  } else if (byte == kDelete || byte == kControl('H')) {
    erase(before(cursor_), cursor_);
  } else if (byte == kControl('U')) {
    erase(0, cursor_);
  } else if (byte == kControl('K')) {
    erase(cursor_, text_.size());
  } else if (byte == kControl('W')) {
    size_t begin = cursor_;
    while (begin > 0 && std::string_view(" \t\n").find(text_[begin - 1]) != std::string_view::npos) --begin;
    while (begin > 0 && std::string_view(" \t\n").find(text_[begin - 1]) == std::string_view::npos) --begin;
    erase(begin, cursor_);
  } else if (const size_t key = std::string_view("ABEFNP").find(static_cast<char>(byte | 0x40));
             byte > 0 && byte < 0x20 && key != std::string_view::npos) {
    on_key("HDFCBA"[key], "");
  } else if (static_cast<unsigned char>(byte) >= 0x20 || byte == '\t') {
    insert({&byte, 1});
  }
  return Outcome::kMore;
}

LineEditor::Outcome LineEditor::on_enter() {
  if (is_too_long_) {
    forget();
    return Outcome::kTooLong;
  }
  if (is_open_block(text_)) {
    cursor_ = text_.size();
    insert("\n");
    return Outcome::kMore;
  }
  if (!text_.empty() && (history_.empty() || history_.back() != text_)) {
    history_.push_back(text_);
    history_bytes_ += text_.size();
    while (history_.size() > kHistoryMax || history_bytes_ > kHistoryBytesMax) {
      history_bytes_ -= history_.front().size();
      history_.erase(history_.begin());
    }
  }
  cursor_ = text_.size();
  return Outcome::kTurn;
}

void LineEditor::on_key(char final, std::string_view parameters) {
  if (final == '~' && parameters == "201") {
    in_paste_ = false;
    insert(std::exchange(paste_, {}));
    return;
  }
  if (in_paste_) return;
  const std::string_view key = parameters.substr(0, parameters.find(';'));  // without Shift and the like
  if (final == 'A' && recalled_ > 0) recall(recalled_ - 1);
  if (final == 'B' && recalled_ < history_.size()) recall(recalled_ + 1);
  if (final == 'C') cursor_ = behind(cursor_);
  if (final == 'D') cursor_ = before(cursor_);
  if (final == 'H' || (final == '~' && (key == "1" || key == "7"))) cursor_ = 0;
  if (final == 'F' || (final == '~' && (key == "4" || key == "8"))) cursor_ = text_.size();
  if (final == '~' && key == "3") erase(cursor_, behind(cursor_));
  if (final == '~' && key == "200") in_paste_ = true;
}

void LineEditor::insert(std::string_view bytes) {
  if (text_.size() + bytes.size() > kTurnBytesMax) {
    is_too_long_ = true;
    return;
  }
  text_.insert(cursor_, bytes);
  cursor_ += bytes.size();
}

void LineEditor::erase(size_t begin, size_t end) {
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

size_t LineEditor::before(size_t pos) const {
  if (pos > 0) --pos;
  while (pos > 0 && is_inside_character(text_[pos])) --pos;
  return pos;
}

size_t LineEditor::behind(size_t pos) const {
  if (pos < text_.size()) ++pos;
  while (pos < text_.size() && is_inside_character(text_[pos])) ++pos;
  return pos;
}

void LineEditor::recall(size_t entry) {
  if (recalled_ == history_.size()) typed_ = text_;
  recalled_ = entry;
  text_ = entry == history_.size() ? typed_ : history_[entry];
  cursor_ = text_.size();
}

void LineEditor::forget() {
  text_.clear();
  paste_.clear();
  typed_.clear();
  cursor_ = 0;
  in_paste_ = is_too_long_ = false;
  state_ = State::kText;
  recalled_ = history_.size();
}

LineEditor::Rows LineEditor::lay_out(size_t width) const {
  Rows out;
  out.rows.emplace_back("> ");
  size_t column = 2;
  for (size_t pos = 0; pos <= text_.size();) {
    ScreenCharacter character;
    const bool is_tab = pos < text_.size() && text_[pos] == '\t', is_end = pos < text_.size() && text_[pos] == '\n';
    if (is_tab)
      character = {"  ", 2, 1};
    else if (is_end)
      character = {"", 0, 1};
    else if (pos < text_.size())
      character = screen_character(text_, pos);
    if (column + std::max<size_t>(character.columns, 1) > width) {
      out.rows.emplace_back();
      column = 0;
    }
    if (pos <= cursor_) out.cursor_row = out.rows.size() - 1, out.cursor_column = column;
    out.rows.back() += character.text;
    column += character.columns;
    pos += character.num_bytes;
    if (is_end) out.rows.emplace_back(), column = 0;
  }
  return out;
}

std::string LineEditor::to_top() const {
  return drawn_row_ > 0 ? fmt::format("\r\x1b[{}A\x1b[J", drawn_row_) : "\r\x1b[J";
}

std::string LineEditor::draw(size_t width, size_t height) {
  const Rows all = lay_out(width);
  height = std::max<size_t>(height, 1);
  const size_t first = all.cursor_row + 1 > height ? all.cursor_row + 1 - height : 0;
  const size_t end = std::min(all.rows.size(), first + height);
  std::string out = to_top();
  for (size_t row = first; row < end; ++row) out += (row > first ? "\r\n" : "") + all.rows[row];
  if (end - 1 > all.cursor_row) out += fmt::format("\x1b[{}A", end - 1 - all.cursor_row);
  out += all.cursor_column > 0 ? fmt::format("\r\x1b[{}C", all.cursor_column) : "\r";
  drawn_row_ = all.cursor_row - first;
  return out;
}

std::string LineEditor::draw_finished(size_t width) {
  constexpr size_t kShownMax = 200, kShownEnds = 20;
  const std::vector<std::string> rows = lay_out(width).rows;
  std::string out = to_top();
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows.size() > kShownMax && row == kShownEnds) {
      out += fmt::format("... {} lines ...\r\n", rows.size() - 2 * kShownEnds);
      row = rows.size() - kShownEnds;
    }
    out += rows[row] + "\r\n";
  }
  drawn_row_ = 0;
  return out;
}

}  // namespace llmrt::cli
