#include "tools/llmrt_bench/commands/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

extern char** environ;

namespace llmrt::bench {
namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// Everything that comes until the other end closes; false when that takes too long.
bool read_all(int fd, TimeNs until, std::string* text) {
  std::array<char, 4096> piece;
  for (;;) {
    const double left_ms = ms_between(SteadyClock().now_ns(), until);
    pollfd waiting{fd, POLLIN, 0};
    if (left_ms <= 0) return false;
    if (poll(&waiting, 1, static_cast<int>(std::min(left_ms + 1, 1e9))) <= 0) continue;
    const ssize_t count = read(fd, piece.data(), piece.size());
    if (count > 0) text->append(piece.data(), static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) return true;
  }
}

// Whether the child has ended by then; one may close its output and go on.
bool wait_for(pid_t child, TimeNs until, int* status) {
  for (;;) {
    const pid_t ended = waitpid(child, status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return true;
    if (SteadyClock().now_ns() >= until) return false;
    usleep(1000);
  }
}

}  // namespace

Result<ChildOutput> run_child(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                              double timeout_s) {
  std::vector<std::string> texts = arguments, variables = environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view name(*variable, std::strcspn(*variable, "="));
    const auto is_replaced = [&](const std::string& other) { return other.starts_with(std::string(name) + "="); };
    if (std::ranges::none_of(environment, is_replaced)) variables.emplace_back(*variable);
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return make_error(ErrorCode::kIo, "pipe: {}", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ChildOutput output;
  pid_t child = 0;
  output.begun_ns = SteadyClock().now_ns();
  const int failure =
      posix_spawn(&child, texts.front().c_str(), &actions, nullptr, pointers(texts).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failure != 0) {
    close(ends[0]);
    return make_error(ErrorCode::kIo, "{}: expected a program that can be run, found: {}", texts.front(),
                      std::strerror(failure));
  }
  const TimeNs until = output.begun_ns + static_cast<TimeNs>(timeout_s * 1e9);
  int status = 0;
  const bool has_ended = read_all(ends[0], until, &output.text) && wait_for(child, until, &status);
  close(ends[0]);
  if (!has_ended) {
    kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return make_error(ErrorCode::kTimeout, "{}: expected its end within {} s", texts.front(), timeout_s);
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return make_error(
        ErrorCode::kIo, "{}: expected exit code 0, found {}", texts.front(),
        WIFEXITED(status) ? fmt::format("{}", WEXITSTATUS(status)) : fmt::format("signal {}", WTERMSIG(status)));
  return output;
}

}  // namespace llmrt::bench
