// The requests of a batch, read from a file line by line: a line is never longer in memory than a request may be,
// whatever the file holds.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/batch_lines.h"

namespace llmrt::server {

// What is wrong with a line of a file. Codes are OpenAI's where it has one.
struct LineProblem {
  uint64_t line = 0;  // from 1; 0: of the file
  std::string code, message, param;
};

struct CheckedLines {
  uint64_t num_lines = 0;  // requests, without blank lines
  uint64_t num_done = 0;   // of them
  std::vector<LineProblem> problems;
};

// Thread-safe, but for check(), which comes before all next().
class BatchInput {
 public:
  // io_error. `done` outlives this.
  static Result<std::unique_ptr<BatchInput>> open(const std::string& path, const DoneLines* done);

  // Reads all lines once, until there are so many problems. `check_url`: why a url is none for this batch.
  using CheckUrl = std::function<std::optional<ApiError>(std::string_view url)>;
  Result<CheckedLines> check(const CheckUrl& check_url, size_t problems_max, uint64_t lines_max);
  // The next line without an answer, which is well formed; nothing: that was the last, or the file cannot be read.
  // `num_bytes`: of its text.
  std::optional<BatchLine> next(size_t* num_bytes = nullptr);
  bool has_failed() const;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  BatchInput(std::string path, std::FILE* file, const DoneLines* done)
      : path_(std::move(path)), file_(file), done_(done) {}
  // false: the end. Of a line that is too long only that much is kept, one byte over the bound.
  bool read_line();

  const std::string path_;
  mutable std::mutex mutex_;
  const std::unique_ptr<std::FILE, Close> file_;
  const DoneLines* const done_;
  std::string line_;
  uint64_t number_ = 0;
};

}  // namespace llmrt::server
