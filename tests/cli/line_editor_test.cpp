// The prompt of `llmrt chat`, by bytes in and turns out, and what it draws, on a screen that does what is drawn.
#include "tools/llmrt/line_editor.h"

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <random>

#include "tools/llmrt/screen_text.h"

using namespace llmrt::cli;
using Outcome = LineEditor::Outcome;

namespace {

// All turns that these bytes make.
std::vector<std::string> turns_of(LineEditor& editor, std::string_view bytes) {
  std::vector<std::string> turns;
  while (!bytes.empty()) {
    const LineEditor::Step step = editor.feed(bytes);
    bytes.remove_prefix(step.num_used);
    if (step.outcome == Outcome::kTurn) turns.push_back(editor.take_turn());
  }
  return turns;
}

std::string turn_of(std::string_view bytes) {
  LineEditor editor;
  const auto turns = turns_of(editor, std::string(bytes) + "\r");
  REQUIRE(turns.size() == 1);
  return turns[0];
}

// A screen of so many columns that knows what the program writes: text, \r, \n, and the sequences A, C, D, J, K.
struct Screen {
  explicit Screen(size_t columns) : width(columns), rows(1) {}
  void write(std::string_view bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == '\r') {
        column = 0;
      } else if (bytes[i] == '\n') {
        column = 0;
        if (++row == rows.size()) rows.emplace_back();
      } else if (bytes[i] == '\x1b') {
        const size_t end = bytes.find_first_of("ACDJKhl", i);
        if (end == std::string_view::npos) FAIL("a sequence that is none of them");
        const size_t count = std::max(1, std::atoi(std::string(bytes.substr(i + 2, end - i - 2)).c_str()));
        if (bytes[end] == 'A') row -= std::min(row, count);
        if (bytes[end] == 'C') column += count;
        if (bytes[end] == 'D') column -= std::min(column, count);
        if (bytes[end] == 'J') rows.resize(row + 1);
        if (bytes[end] == 'J' || bytes[end] == 'K') rows[row].resize(std::min(rows[row].size(), column));
        i = end;
      } else {
        if (column >= width) FAIL("a line that is left to the terminal to break");
        rows[row].resize(std::max(rows[row].size(), column + 1), ' ');
        rows[row][column++] = bytes[i];
      }
    }
  }
  size_t width, row = 0, column = 0;
  std::vector<std::string> rows;  // of ASCII
};

}  // namespace

TEST_CASE("a paste is text, whatever stands in it, and one turn") {
  CHECK(turn_of("\x1b[200~one\r\rtwo\r/bye\x1b[201~") == "one\n\ntwo\n/bye");
  CHECK(turn_of("ask: \x1b[200~a\r\nb\nc\td\x04\x15\x1b[31m\x1b[A\x1b[201~!") == "ask: a\nb\nc\td!");
  CHECK(turn_of("\x1b[200~a\x1b]b\x1b\x1b[201~c") == "a]bc");  // no sequence swallows its end
  CHECK(turn_of("a\x1b\x1b[Db\x1b") == "ba");
  LineEditor editor;  // in pieces, as it comes
  std::string bytes = "\x1b[200~";
  for (int i = 0; i < 3000; ++i) bytes += "line " + std::to_string(i) + "\r";
  bytes += "\x1b[201~\r";
  bool is_none = true;
  for (const char byte : bytes.substr(0, bytes.size() - 1))
    is_none &= editor.feed({&byte, 1}).outcome == Outcome::kMore;
  CHECK(is_none);
  CHECK(editor.feed("\r").outcome == Outcome::kTurn);
  CHECK(editor.take_turn().size() == bytes.size() - 13);
  // Ctrl-C ends a paste whose end never came.
  CHECK(editor.feed("\x1b[200~abc\rdef\x03").outcome == Outcome::kInterrupted);
  CHECK(turns_of(editor, "x\r") == std::vector<std::string>{"x"});
}

TEST_CASE("a turn is as long as it is") {
  const std::string words(100'000, 'w');
  CHECK(turn_of(words) == words);
  LineEditor editor;
  const std::string too_long(LineEditor::kTurnBytesMax + 1, 'w');
  CHECK(editor.feed(too_long).outcome == Outcome::kMore);
  CHECK(editor.feed("\r").outcome == Outcome::kTooLong);
  CHECK(editor.feed("\x1b[200~" + too_long + "\x1b[201~").outcome == Outcome::kMore);
  CHECK(editor.feed("\r").outcome == Outcome::kTooLong);
  CHECK(editor.feed("\"\"\"" + too_long).outcome == Outcome::kMore);
  CHECK(editor.feed("\r").outcome == Outcome::kTooLong);
  CHECK(turns_of(editor, "next\r") == std::vector<std::string>{"next"});
}

TEST_CASE("keys edit the turn and never become part of it") {
  CHECK(turn_of("abc\x1b[D\x1b[DX") == "aXbc");
  CHECK(turn_of("abc\x1bOD\x1bODX\x1b[CY") == "aXbYc");
  CHECK(turn_of("bc\x1b[Ha\x1b[Fd") == "abcd");
  CHECK(turn_of("bc\x1b[1~a\x1b[4~d\x01<\x05>") == "<abcd>");
  CHECK(turn_of("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\x7f\x7f") == "a\xc3\xa4");  // whole characters
  CHECK(turn_of("\xc3\xa4z\x1b[D\x1b[D\x1b[3~") == "z");
  CHECK(turn_of("one two  \x17three\x15"
                "four\x1b[D\x0b") == "fou");
  CHECK(turn_of("one two\x17three") == "one three");
  CHECK(turn_of("a\x1b[15~\x1b[1;5P\x1b[<0;1;2M\x1b]0;title\x07\x1bPq\x1b\\\x1bx"
                "b") == "ab");
  CHECK(turn_of("a\x1b[1;5Cb\x1b[99999999999999999999999999999999999999999999999999999Zc") == "abc");
  LineEditor editor;
  CHECK(editor.feed("\x04").outcome == Outcome::kEnd);
  CHECK(editor.feed("a\x1b[D\x04\x04").outcome == Outcome::kEnd);  // deletes first
}

TEST_CASE("older turns come back, and the one that is typed is kept") {
  LineEditor editor;
  turns_of(editor, "first\rsecond\rsecond\r");
  CHECK(turns_of(editor, "third\x1b[A\x1b[A\x1b[A!\r") == std::vector<std::string>{"first!"});
  CHECK(turns_of(editor, "typed\x10\x10\x0e\x0e\x0e\r") == std::vector<std::string>{"typed"});
  // Pastes, too.
  turns_of(editor, "\x1b[200~a\rb\x1b[201~\r");
  CHECK(turns_of(editor, "\x1b[A\r") == std::vector<std::string>{"a\nb"});
}

TEST_CASE("what is typed ahead waits for its turn, line ends of two bytes are one") {
  LineEditor editor;
  CHECK(turns_of(editor, "one\r\ntwo\nthree\r") == std::vector<std::string>{"one", "two", "three"});
  CHECK(turns_of(editor, "\"\"\"a\r\rb\"\"\"\rc\r") == std::vector<std::string>{"a\n\nb", "c"});
  CHECK(turns_of(editor, "\"\"\"\"\"\"\r\"\"\" \"\"\"\r") == std::vector<std::string>{"", " "});
}

TEST_CASE("the screen shows the turn and the cursor at any width") {
  std::mt19937 random(1);
  const std::vector<std::string> keys = {
      "a", "b", " ", "word", "\x1b[D", "\x1b[C", "\x1b[H", "\x1b[F", "\x7f", "\x1b[200~x\ry\x1b[201~", "\x17"};
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    const size_t width = 4 + random() % 20;
    std::string typed;
    for (int i = 0; i < 30; ++i) typed += keys[random() % keys.size()];
    // Drawn key by key, the screen is as if drawn once.
    LineEditor stepwise, at_once;
    Screen one(width), other(width);
    for (size_t i = 0; i < typed.size(); ++i) {
      stepwise.feed(typed.substr(i, 1));
      one.write(stepwise.draw(width, 1000));
    }
    at_once.feed(typed);
    other.write(at_once.draw(width, 1000));
    CHECK(one.rows == other.rows);
    CHECK(one.row == other.row);
    CHECK(one.column == other.column);
  }
}

TEST_CASE("a turn higher than the screen shows the rows around the cursor") {
  LineEditor editor;
  editor.feed("\x1b[200~1\r2\r3\r4\r5\r6\x1b[201~");
  Screen screen(10);
  screen.write(editor.draw(10, 3));
  CHECK(screen.rows == std::vector<std::string>{"4", "5", "6"});
  screen.write(editor.draw(10, 3));
  CHECK(screen.rows == std::vector<std::string>{"4", "5", "6"});
  screen.write(editor.draw_finished(10));
  CHECK(screen.rows == std::vector<std::string>{"> 1", "2", "3", "4", "5", "6", ""});
}

TEST_CASE("an answer wraps at words, in whatever pieces it comes") {
  const std::string text = "The quick brown fox, incomprehensibilities jump\nover  it";
  for (size_t piece = 1; piece < 8; ++piece) {
    CAPTURE(piece);
    AnswerText answer(13);
    Screen screen(13);
    for (size_t i = 0; i < text.size(); i += piece) screen.write(answer.push(text.substr(i, piece)));
    for (std::string& row : screen.rows) row.resize(row.find_last_not_of(' ') + 1);
    CHECK(screen.rows ==
          std::vector<std::string>{"The quick", "brown fox,", "incomprehens", "ibilities", "jump", "over  it"});
  }
  CHECK(AnswerText(0).push("a long line of words\r\n") == "a long line of words\n");
}

TEST_CASE("an answer cannot steer the terminal") {
  CHECK(AnswerText(0).push("a\x1b]0;x\x07"
                           "b\x7f\xc2\x9b"
                           "2J\tc") ==
        "a\xef\xbf\xbd]0;x\xef\xbf\xbd"
        "b\xef\xbf\xbd\xef\xbf\xbd"
        "2J    c");
  LineEditor editor;  // nor what is pasted, when it is shown
  editor.feed(
      "\x1b[200~\xc2\x9b"
      "31m\xff\x1b[201~");
  CHECK(editor.draw(40, 24).find("\xc2\x9b") == std::string::npos);
}
