#include "tools/llmrt/program.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/utf8.h"

namespace llmrt::cli {
namespace {

volatile std::sig_atomic_t interrupt_flag = 0;
void (*volatile before_abrupt_end)() = nullptr;

void on_interrupt(int) {
  if (interrupt_flag) {
    if (before_abrupt_end) before_abrupt_end();
    _exit(kInterrupted);
  }
  interrupt_flag = 1;
}

}  // namespace

void fail(int code, const std::string& message) {
  fmt::print(stderr, "error: {}\n", message);
  throw Exit{code};
}

void fail(const Error& error, int otherwise) {
  switch (error.code) {
    case ErrorCode::kDeviceLost:
      fail(kDeviceLost, error.message);
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kMissingFeature:
      fail(kNoDevice, error.message);
    case ErrorCode::kCorruptFile:
      fail(kBadModel, error.message);
    default:
      fail(otherwise, error.message);
  }
}

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;  // no SA_RESTART: a read of the keyboard ends too
  sigaction(SIGINT, &action, nullptr);
}

void on_abrupt_end(void (*restore)()) {
  before_abrupt_end = restore;
}

bool interrupted() {
  const bool was = interrupt_flag != 0;
  interrupt_flag = 0;
  return was;
}

std::string bytes_text(uint64_t bytes) {
  if (bytes >= 1000000000) return fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9);
  if (bytes >= 1000000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
  return fmt::format("{:.1f} kB", static_cast<double>(bytes) * 1e-3);
}

std::string drafts_text(const Model& model) {
  uint64_t bytes = 0;
  for (const WeightTensor& tensor : model.draft_tensors) bytes += tensor.bytes();
  const std::string use = model.draft_head ? fmt::format("for --draft-model {}", kOwnDraftHead)
                                           : fmt::format("not used: {}", model.draft_head_lack);
  return fmt::format("{} more {} tokens beyond the next one: {} tensors, {}, {}", model.config.num_draft_layers,
                     model.config.num_draft_layers == 1 ? "layer drafts" : "layers draft", model.draft_tensors.size(),
                     bytes_text(bytes), use);
}

std::string checked_text(std::string text, const std::string& place) {
  if (!is_valid_utf8(text)) fail(kUsage, fmt::format("{}: expected UTF-8, found bytes that are not", place));
  return text;
}

void check_writable(const std::string& path, const std::string& option) {
  if (path.empty()) return;
  struct stat status = {};
  bool is_fine = false;
  if (stat(path.c_str(), &status) == 0) {  // not opened: somebody may read the other end of it
    is_fine = ::access(path.c_str(), W_OK) == 0;
    if (S_ISDIR(status.st_mode)) is_fine = false, errno = EISDIR;
  } else if (const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); file >= 0) {
    is_fine = true;
    close(file);
    unlink(path.c_str());
  }
  if (!is_fine)
    fail(kFailed,
         fmt::format("{}: expected a file that can be written, found {}: {}", option, path, std::strerror(errno)));
}

bool has_piped_input() {
  struct stat status = {};
  return fstat(STDIN_FILENO, &status) == 0 &&
         (S_ISFIFO(status.st_mode) || S_ISREG(status.st_mode) || S_ISSOCK(status.st_mode));
}

std::string read_text(const std::string& path) {
  if (path == "-") return checked_text({std::istreambuf_iterator<char>(std::cin), {}}, "standard input");
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  std::ifstream file(path, std::ios::binary);
  // A directory opens like a file, and throws when it is read.
  if (!file || is_directory(status)) {
    const char* found = is_directory(status) ? "a directory" : exists(status) ? "one that cannot be opened" : "nothing";
    fail(kFailed, fmt::format("cannot read: {}: expected a file that can be read, found {}", path, found));
  }
  return checked_text({std::istreambuf_iterator<char>(file), {}}, path);
}

}  // namespace llmrt::cli
