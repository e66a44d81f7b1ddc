// Records of branches as lines of a file (LineFile).
#pragma once

#include <memory>
#include <string>

#include "core/trace/line_file.h"
#include "core/trace/trace_line.h"

namespace llmrt {

class TraceFile final : public TraceSink {
 public:
  // Several may write to one file.
  TraceFile(std::shared_ptr<LineFile> file, TraceOrigin origin)
      : file_(std::move(file)), origin_(std::make_shared<const TraceOrigin>(std::move(origin))) {}
  // One that writes alone. Errors: LineFile::open's.
  static Result<std::shared_ptr<TraceFile>> open(const std::string& path, TraceOrigin origin, std::shared_ptr<Log> log);

  void put(RequestTrace trace) override;

 private:
  const std::shared_ptr<LineFile> file_;
  const std::shared_ptr<const TraceOrigin> origin_;
};

}  // namespace llmrt
