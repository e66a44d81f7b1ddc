// Text as a terminal shows it: how wide it is, and an answer that comes in pieces, wrapped at words. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace llmrt::cli {

// One character for a screen, and how many columns it takes. What would steer the terminal (control characters) or is
// no UTF-8 is shown as U+FFFD.
struct ScreenCharacter {
  std::string text;
  size_t columns = 0;
  size_t num_bytes = 1;  // of the source
};
// Decodes the character at `pos`, which must be inside `text`.
ScreenCharacter screen_character(std::string_view text, size_t pos);

// An answer on a terminal of `width` columns. A word that does not fit moves to the next line, what of it is shown
// already, too. The text that steers a terminal (escape sequences, for one) never reaches it.
class AnswerText {
 public:
  explicit AnswerText(size_t width) : width_(width) {}  // 0: lines are not wrapped
  // What to write for the next piece, which is whole UTF-8.
  std::string push(std::string_view piece);

 private:
  void break_line(std::string& out);

  size_t width_, column_ = 0;
  std::string word_;  // the one that is being written
  size_t word_columns_ = 0;
};

// Lines of at most `width` columns; words longer than that stay whole.
std::string wrapped(std::string_view text, size_t width, size_t indent);

// Columns of the terminal behind `fd`; `otherwise` when it is none.
size_t terminal_width(int fd, size_t otherwise);

}  // namespace llmrt::cli
