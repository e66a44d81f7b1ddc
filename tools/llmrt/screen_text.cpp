#include "tools/llmrt/screen_text.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <utf8proc.h>

#include <algorithm>

#include "core/base/utf8.h"

namespace llmrt::cli {
namespace {

bool steers_terminal(char32_t character) {
  return character < 0x20 || (character >= 0x7f && character < 0xa0);
}

// Written without spaces, so that a line may end behind each.
bool is_ideograph(size_t columns) {
  return columns == 2;
}

}  // namespace

ScreenCharacter screen_character(std::string_view text, size_t pos) {
  const Utf8Step step = decode_utf8(text, pos);
  if (step.state != Utf8State::kValid || steers_terminal(step.code_point)) return {"\xef\xbf\xbd", 1, step.num_bytes};
  const int columns = utf8proc_charwidth(static_cast<utf8proc_int32_t>(step.code_point));
  return {std::string(text.substr(pos, step.num_bytes)), static_cast<size_t>(std::max(columns, 0)), step.num_bytes};
}

void AnswerText::break_line(std::string& out) {
  // A word that fills a line breaks where it must.
  const bool moves = word_columns_ > 0 && word_columns_ < column_;
  if (moves) out += fmt::format("\x1b[{}D\x1b[K", word_columns_);
  out += '\n';
  if (moves) out += word_;
  column_ = moves ? word_columns_ : 0;
  if (!moves) word_.clear(), word_columns_ = 0;
}

std::string AnswerText::push(std::string_view piece) {
  // The last column stays free: behind it terminals differ in where the cursor is.
  const size_t limit = width_ > 1 ? width_ - 1 : 0;
  std::string out;
  for (size_t pos = 0; pos < piece.size();) {
    const char byte = piece[pos];
    if (byte == '\n' || byte == ' ' || byte == '\t' || byte == '\r') {
      ++pos;
      if (byte == '\r') continue;  // of a line's end
      word_.clear(), word_columns_ = 0;
      const size_t columns = byte == '\t' ? 8 - column_ % 8 : 1;
      if (byte == '\n' || (limit && column_ + columns > limit)) {
        out += '\n';
        column_ = 0;
      } else {
        out.append(columns, ' ');
        column_ += columns;
      }
      continue;
    }
    const ScreenCharacter character = screen_character(piece, pos);
    pos += character.num_bytes;
    if (limit && column_ + character.columns > limit) break_line(out);
    out += character.text;
    column_ += character.columns;
    word_ += character.text;
    word_columns_ += character.columns;
    if (is_ideograph(character.columns)) word_.clear(), word_columns_ = 0;
    if (!limit) word_.clear();  // nothing moves: it need not be kept
  }
  return out;
}

std::string wrapped(std::string_view text, size_t width, size_t indent) {
  std::string out;
  size_t column = indent;
  for (size_t pos = 0; pos < text.size();) {
    if (text[pos] == '\n') {
      out += '\n' + std::string(indent, ' ');
      column = indent;
      ++pos;
      continue;
    }
    const size_t begin = text.find_first_not_of(' ', pos);
    if (begin == std::string_view::npos) break;
    if (text[begin] == '\n') {
      pos = begin;
      continue;
    }
    const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    size_t columns = 0;
    for (size_t at = begin; at < end;) {
      const ScreenCharacter character = screen_character(text, at);
      columns += character.columns;
      at += character.num_bytes;
    }
    if (column > indent && column + 1 + columns > width) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += text.substr(begin, end - begin);
    column += columns;
    pos = end;
  }
  return out;
}

size_t terminal_width(int fd, size_t otherwise) {
  winsize size = {};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

}  // namespace llmrt::cli
