// The prompt of `llmrt chat`: bytes that a terminal sends in, turns and what to draw out. Pure: it reads and writes
// nothing itself (terminal.h does). Pasted text (in brackets, as terminals send it when asked to) is text whatever
// stands in it; so are its line ends. One owner.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace llmrt::cli {

class LineEditor {
 public:
  static constexpr size_t kTurnBytesMax = size_t{16} << 20;

  enum class Outcome {
    kMore,         // no turn yet
    kTurn,         // take_turn() has it
    kTooLong,      // a turn of more than kTurnBytesMax bytes was given up
    kInterrupted,  // Ctrl-C; what was typed is gone
    kEnd,          // Ctrl-D at an empty prompt
  };
  struct Step {
    Outcome outcome;
    size_t num_used;  // of the bytes; those behind them belong to the next turn
  };
  // Ctrl-C is the byte 3, whoever saw it.
  Step feed(std::string_view bytes);
  std::string take_turn();
  bool is_empty() const { return text_.empty() && paste_.empty() && !in_paste_; }

  // What to write so that a screen shows the prompt as it is now; of a text that is higher than the screen, the part
  // around the cursor.
  std::string draw(size_t width, size_t height);
  // The same at the end of a turn, with the cursor on the line below.
  std::string draw_finished(size_t width);

 private:
  enum class State { kText, kEscape, kSequence, kSingle, kString, kStringEscape };
  struct Rows {
    std::vector<std::string> rows;
    size_t cursor_row = 0, cursor_column = 0;
  };

  Outcome on_byte(char byte);
  Outcome on_control(char byte);
  Outcome on_enter();
  void on_key(char final, std::string_view parameters);
  void insert(std::string_view bytes);
  void erase(size_t begin, size_t end);
  size_t before(size_t pos) const;  // the character that ends there
  size_t behind(size_t pos) const;
  void recall(size_t entry);
  void forget();
  Rows lay_out(size_t width) const;
  std::string to_top() const;

  std::string text_;
  size_t cursor_ = 0;
  State state_ = State::kText;
  std::string sequence_;  // parameters of the key that is being read
  bool in_paste_ = false, is_too_long_ = false, was_return_ = false;
  std::string paste_;
  std::vector<std::string> history_;
  size_t history_bytes_ = 0;
  size_t recalled_ = 0;   // == history_.size(): what is typed now
  std::string typed_;     // kept while an older turn is shown
  size_t drawn_row_ = 0;  // of the cursor, below the first row that is drawn
};

}  // namespace llmrt::cli
