#include "tools/llmrt/terminal.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <iterator>

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "core/base/check.h"
#include "tools/llmrt/program.h"
#include "tools/llmrt/screen_text.h"

namespace llmrt::cli {
namespace {

constexpr int kIn = STDIN_FILENO;
constexpr std::string_view kPastesInBrackets = "\x1b[?2004h", kPastesPlain = "\x1b[?2004l";

// What signal handlers need; written before they are set.
volatile std::sig_atomic_t is_wanted = 0, is_held = 0, was_stopped = 0;
int out_fd = STDERR_FILENO;
termios as_found;

constexpr int kEnds[] = {SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
struct sigaction ends_before[std::size(kEnds)], stop_before, continue_before;

// From here to on_continue: async-signal-safe.
void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(out_fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

bool in_foreground() {
  const pid_t group = tcgetpgrp(kIn);
  return group < 0 || group == getpgrp();
}

bool hold() {
  if (is_held || !in_foreground()) return true;  // a shell has it
  if (tcgetattr(kIn, &as_found) != 0) return false;
  termios held = as_found;
  held.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
  held.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IGNCR | ISTRIP);
  held.c_cc[VMIN] = 1;
  held.c_cc[VTIME] = 0;
  is_held = 1;
  tcsetattr(kIn, TCSADRAIN, &held);
  write_all(kPastesInBrackets);
  return true;
}

// The rest of a paste may still be on its way: reads until nothing has come for a while, two seconds at most (a key may
// be held down).
void drop_input() {
  constexpr int kQuietMs = 50, kSecondsMax = 2;
  timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do {
    char bytes[4096];
    pollfd waiting = {kIn, POLLIN, 0};
    if (poll(&waiting, 1, kQuietMs) != 1 || !(waiting.revents & POLLIN) || read(kIn, bytes, sizeof bytes) <= 0) return;
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (now.tv_sec - begin.tv_sec <= kSecondsMax);
}

void let_go() {
  if (!is_held) return;
  is_held = 0;
  if (!in_foreground()) return;
  write_all(kPastesPlain);
  drop_input();
  tcsetattr(kIn, TCSAFLUSH, &as_found);
}

void end_now() {
  is_wanted = 0;
  let_go();
}

void on_end(int signal) {
  const int error = errno;
  end_now();
  for (size_t i = 0; i < std::size(kEnds); ++i)
    if (kEnds[i] == signal) sigaction(signal, &ends_before[i], nullptr);
  raise(signal);
  errno = error;
}

void on_stop(int) {
  const int error = errno;
  let_go();
  raise(SIGSTOP);
  errno = error;
}

void on_continue(int) {
  const int error = errno;
  if (is_wanted) hold();
  was_stopped = 1;
  errno = error;
}

}  // namespace

bool has_terminal() {
  const char* kind = std::getenv("TERM");
  return isatty(kIn) == 1 && kind && *kind && std::string_view(kind) != "dumb";
}

Terminal::Terminal() {
  LLMRT_CHECK(!is_wanted, "one terminal at a time");
  if (isatty(STDERR_FILENO) != 1) out_fd = isatty(STDOUT_FILENO) == 1 ? STDOUT_FILENO : kIn;
  struct sigaction action = {};
  action.sa_handler = on_end;
  for (size_t i = 0; i < std::size(kEnds); ++i) {
    sigaction(kEnds[i], nullptr, &ends_before[i]);
    if (ends_before[i].sa_handler != SIG_IGN) sigaction(kEnds[i], &action, nullptr);  // as under nohup
  }
  action.sa_flags = SA_RESTART;
  action.sa_handler = on_stop;
  sigaction(SIGTSTP, &action, &stop_before);
  action.sa_handler = on_continue;
  sigaction(SIGCONT, &action, &continue_before);
  on_abrupt_end(end_now);
  is_wanted = 1;
  if (hold()) return;
  end_now();
  fail(kFailed, "terminal: expected one whose settings can be read");
}

Terminal::~Terminal() {
  end_now();
  on_abrupt_end(nullptr);
  for (size_t i = 0; i < std::size(kEnds); ++i) sigaction(kEnds[i], &ends_before[i], nullptr);
  sigaction(SIGTSTP, &stop_before, nullptr);
  sigaction(SIGCONT, &continue_before, nullptr);
}

bool Terminal::more_is_waiting() const {
  pollfd waiting = {kIn, POLLIN, 0};
  return poll(&waiting, 1, 0) == 1 && (waiting.revents & POLLIN);
}

Terminal::Read Terminal::read_bytes() {
  for (;;) {
    if (interrupted()) return Read::kInterrupt;
    if (was_stopped) {
      was_stopped = 0;
      draw();
    }
    // Looks at the flag now and then: the signal may have come before poll, or on another thread.
    pollfd waiting = {kIn, POLLIN, 0};
    const int ready = poll(&waiting, 1, /*ms=*/200);
    if (ready < 0 && errno != EINTR) return Read::kEnd;
    if (ready <= 0) continue;
    char bytes[16384];
    const ssize_t num_read = read(kIn, bytes, sizeof bytes);
    if (num_read < 0 && errno == EINTR) continue;
    if (num_read <= 0) return Read::kEnd;
    bytes_.append(bytes, static_cast<size_t>(num_read));
    return Read::kBytes;
  }
}

void Terminal::draw() {
  winsize size = {};
  const bool is_known = ioctl(out_fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
  write_all(editor_.draw(std::max<size_t>(terminal_width(out_fd, 80), 4), is_known ? size.ws_row : 24));
}

std::optional<std::string> Terminal::read_turn() {
  bool again_ends = false;  // Ctrl-C was the last key
  draw();
  for (;;) {
    if (bytes_.empty()) {
      const Read read = read_bytes();
      if (read == Read::kEnd) return std::nullopt;
      if (read == Read::kInterrupt) {
        const bool was_empty = editor_.is_empty();
        editor_.feed("\x03");
        if (was_empty && again_ends) was_interrupted_ = true;
        if (was_empty) write_all(again_ends ? "\r\n" : "\r\nCtrl-C again or Ctrl-D ends the chat.\r\n");
        if (was_empty && again_ends) return std::nullopt;
        again_ends = true;
        draw();
        continue;
      }
      again_ends = false;
    }
    const LineEditor::Step step = editor_.feed(bytes_);
    bytes_.erase(0, step.num_used);
    switch (step.outcome) {
      case LineEditor::Outcome::kTurn:
        write_all(editor_.draw_finished(std::max<size_t>(terminal_width(out_fd, 80), 4)));
        return editor_.take_turn();
      case LineEditor::Outcome::kTooLong:
        write_all(fmt::format("\r\nerror: turn: expected at most {} bytes, found more\r\n", LineEditor::kTurnBytesMax));
        break;
      case LineEditor::Outcome::kEnd:
        write_all("\r\n");
        return std::nullopt;
      case LineEditor::Outcome::kInterrupted:
      case LineEditor::Outcome::kMore:
        break;
    }
    if (bytes_.empty() && more_is_waiting()) continue;  // a paste in pieces is drawn once
    draw();
  }
}

}  // namespace llmrt::cli
