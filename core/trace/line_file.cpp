#include "core/trace/line_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/platform/private_file.h"

namespace llmrt {

Result<std::unique_ptr<LineFile>> LineFile::open(const std::string& path, std::string what, std::shared_ptr<Log> log) {
  const Result<PrivateFile> file = open_private_file(path, OpenFor::kAppending);
  if (!file)
    return make_error(ErrorCode::kIo, "{}: {}: expected a file that can be written, found: {}", what, path,
                      file.error().message);
  if (file->others_may_read) log->warn("{}: {}: others than its owner may read it", what, path);
  return std::unique_ptr<LineFile>(new LineFile(file->descriptor, path, std::move(what), std::move(log)));
}

LineFile::LineFile(int file, std::string path, std::string what, std::shared_ptr<Log> log)
    : file_(file), path_(std::move(path)), what_(std::move(what)), log_(std::move(log)) {
  thread_ = std::thread([this] { run(); });
}

LineFile::~LineFile() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  arrived_.notify_one();
  thread_.join();
  ::close(file_);
}

void LineFile::put(Line line) {
  {
    std::lock_guard lock(mutex_);
    if (waiting_.size() >= kLinesWaitingMax) {
      ++num_lost_;
      return;
    }
    waiting_.push_back(std::move(line));
  }
  arrived_.notify_one();
}

void LineFile::run() {
  std::vector<Line> taken;
  std::string text;
  bool writes = true;
  while (true) {
    uint64_t num_lost = 0;
    bool is_last = false;
    {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
      taken.clear();
      taken.swap(waiting_);
      num_lost = std::exchange(num_lost_, 0);
      is_last = stopped_;
    }
    if (num_lost > 0)
      log_->warn("{}: {}: {} records lost: more than {} waited", what_, path_, num_lost, kLinesWaitingMax);
    text.clear();
    for (const Line& line : taken) {
      text += line();
      text += '\n';
    }
    if (writes && !write_all(text)) {
      writes = false;
      log_->error("{}: {}: cannot write, nothing more is recorded: {}", what_, path_, std::strerror(errno));
    }
    if (is_last) return;
  }
}

bool LineFile::write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = ::write(file_, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return false;
    text.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

}  // namespace llmrt
