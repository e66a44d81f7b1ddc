#include "core/trace/trace_file.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/platform/private_file.h"

namespace llmrt {

Result<std::shared_ptr<TraceFile>> TraceFile::open(const std::string& path, TraceOrigin origin,
                                                   std::shared_ptr<Log> log) {
  const Result<PrivateFile> file = open_private_file(path, OpenFor::kAppending);
  if (!file)
    return make_error(ErrorCode::kIo, "request trace: {}: expected a file that can be written, found: {}", path,
                      file.error().message);
  if (file->others_may_read) log->warn("request trace: {}: others than its owner may read it", path);
  return std::shared_ptr<TraceFile>(new TraceFile(file->descriptor, path, std::move(origin), std::move(log)));
}

TraceFile::TraceFile(int file, std::string path, TraceOrigin origin, std::shared_ptr<Log> log)
    : file_(file), path_(std::move(path)), origin_(std::move(origin)), log_(std::move(log)) {
  thread_ = std::thread([this] { run(); });
}

TraceFile::~TraceFile() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  arrived_.notify_one();
  thread_.join();
  ::close(file_);
}

void TraceFile::put(RequestTrace trace) {
  {
    std::lock_guard lock(mutex_);
    if (waiting_.size() >= kTraceWaitingMax) {
      ++num_lost_;
      return;
    }
    waiting_.push_back(std::move(trace));
  }
  arrived_.notify_one();
}

void TraceFile::run() {
  std::vector<RequestTrace> taken;
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
      log_->warn("request trace: {}: {} records lost: more than {} waited", path_, num_lost, kTraceWaitingMax);
    const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
    const int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count();
    text.clear();
    for (RequestTrace& trace : taken) {
      text += format_trace_line({.origin = origin_, .written_unix_ms = now_ms, .trace = std::move(trace)});
      text += '\n';
    }
    if (writes && !write_all(text)) {
      writes = false;
      log_->error("request trace: {}: cannot write, nothing more is recorded: {}", path_, std::strerror(errno));
    }
    if (is_last) return;
  }
}

bool TraceFile::write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = ::write(file_, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return false;
    text.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

}  // namespace llmrt
