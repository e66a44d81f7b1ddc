#include "core/sample_trace/trace_writer.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <unordered_map>

#include "core/platform/private_file.h"

namespace llmrt {
namespace {

// Stands before a request's sink.
class SampleSink final : public EventSink {
 public:
  SampleSink(std::shared_ptr<TraceWriter> writer, const Request& request)
      : writer_(std::move(writer)), inner_(request.sink), request_(request) {
    request_.sink = nullptr;
    request_.n = 1;
  }

  void on_events(std::span<const TokenEvent> events) override {
    if (inner_) inner_->on_events(events);
    for (const TokenEvent& event : events) {
      if (!event.draw && event.finish == FinishReason::kNone) continue;  // a token of the prompt
      SamplingParams sampling = request_.sampling;
      sampling.branch += event.branch;
      const auto [place, is_new] = positions_.try_emplace(event.request_id, request_.begun.size());
      uint32_t& position = place->second;
      if (is_new) {
        Request branch = request_;
        branch.sampling.branch = sampling.branch;
        writer_->add(request_line(event.request_id, branch));
      }
      if (event.draw) writer_->add(token_line(event.request_id, sampling, position++, event.token, *event.draw));
      if (event.finish != FinishReason::kNone) writer_->add(end_line(event.request_id, event.finish, position));
    }
  }

 private:
  const std::shared_ptr<TraceWriter> writer_;
  const std::shared_ptr<EventSink> inner_;
  Request request_;
  std::unordered_map<RequestId, uint32_t> positions_;  // of the next token, by branch
};

}  // namespace

Result<std::shared_ptr<TraceWriter>> TraceWriter::open(const std::string& path, const SampleTraceOrigin& origin) {
  const Result<PrivateFile> file = open_private_file(path, OpenFor::kWriting);
  if (!file)
    return make_error(ErrorCode::kIo, "sample trace: {}: expected to write it: {}", path, file.error().message);
  std::shared_ptr<TraceWriter> writer(new TraceWriter(fdopen(file->descriptor, "w"), file->others_may_read));
  writer->add(header_line(origin));
  return writer;
}

TraceWriter::TraceWriter(std::FILE* file, bool others_may_read)
    : others_may_read_(others_may_read), file_(file), thread_([this] { run(); }) {}

TraceWriter::~TraceWriter() {
  {
    std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
  std::fclose(file_);
}

void TraceWriter::record(Request* request) {
  if (request->beam) return;
  request->sampling.tell_draws = true;
  request->sink = std::make_shared<SampleSink>(shared_from_this(), *request);
}

void TraceWriter::add(std::string line) {
  line += '\n';
  {
    std::lock_guard lock(mutex_);
    if (trouble_.empty()) pending_ += line;
  }
  changed_.notify_all();
}

Status TraceWriter::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pending_.empty() && !is_writing_; });
  if (trouble_.empty()) return {};
  return make_error(ErrorCode::kIo, "sample trace: expected to write it: {}", trouble_);
}

void TraceWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !pending_.empty() || is_over_; });
    if (pending_.empty()) return;
    const std::string text = std::exchange(pending_, {});
    is_writing_ = true;
    lock.unlock();
    const bool done = std::fwrite(text.data(), 1, text.size(), file_) == text.size() && std::fflush(file_) == 0;
    const std::string trouble = done ? "" : std::strerror(errno);
    lock.lock();
    is_writing_ = false;
    if (!done) {
      trouble_ = trouble;
      pending_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace llmrt
