// The terminal of `llmrt chat` for as long as the chat runs: keys are neither echoed by the driver nor cut into lines
// of 4,095 bytes, and pastes come in brackets. However the program ends (an error, a signal), the terminal is as it
// was, and what was typed or pasted and not read is thrown away: a shell would run it. One at a time.
#pragma once

#include <optional>
#include <string>

#include "tools/llmrt/line_editor.h"

namespace llmrt::cli {

// Standard input is a terminal that knows escape sequences.
bool has_terminal();

class Terminal {
 public:
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // The next turn; none at the end of the chat: Ctrl-D, the terminal is gone, or Ctrl-C twice (was_interrupted).
  std::optional<std::string> read_turn();
  bool was_interrupted() const { return was_interrupted_; }

 private:
  enum class Read { kBytes, kInterrupt, kEnd };
  Read read_bytes();
  bool more_is_waiting() const;
  void draw();

  LineEditor editor_;
  std::string bytes_;  // read, not used yet: typed ahead
  bool was_interrupted_ = false;
};

}  // namespace llmrt::cli
