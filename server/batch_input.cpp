#include "server/batch_input.h"

#include <set>
#include <utility>

#include "server/routes.h"

namespace llmrt::server {
namespace {

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == line.npos;
}

// 128 bits of a custom_id, under the process's key: two are the same only by chance, and a set of them is small.
std::pair<uint64_t, uint64_t> id_digest(std::string_view id) {
  HashKey other = process_hash_key();
  other[0] = ~other[0];
  return {siphash(id, process_hash_key(), 2, 4), siphash(id, other, 2, 4)};
}

}  // namespace

Result<std::unique_ptr<BatchInput>> BatchInput::open(const std::string& path, const DoneLines* done) {
  std::FILE* file = std::fopen(path.c_str(), "rbe");
  if (!file) return make_error(ErrorCode::kIo, "{}: expected a file that can be read", path);
  return std::unique_ptr<BatchInput>(new BatchInput(path, file, done));
}

bool BatchInput::read_line() {
  line_.clear();
  int c = getc_unlocked(file_.get());
  if (c == EOF) return false;
  for (; c != EOF && c != '\n'; c = getc_unlocked(file_.get()))
    if (line_.size() <= kBatchLineBytesMax) line_ += static_cast<char>(c);
  ++number_;
  return true;
}

Result<CheckedLines> BatchInput::check(const CheckUrl& check_url, size_t problems_max, uint64_t lines_max) {
  CheckedLines checked;
  std::set<std::pair<uint64_t, uint64_t>> ids;
  const auto add = [&](std::string code, std::string message, std::string param = {}) {
    checked.problems.push_back({number_, std::move(code), std::move(message), std::move(param)});
  };
  while (checked.problems.size() < problems_max && read_line()) {
    if (is_blank(line_)) continue;
    if (++checked.num_lines > lines_max) {
      add("too_many_requests", fmt::format("expected at most {} requests", lines_max));
      break;
    }
    const Result<BatchLine> parsed = parse_batch_line(line_);
    if (!parsed) {
      add("invalid_json_line", parsed.error().message);
    } else if (const auto error = check_url(parsed->url)) {
      add("invalid_url", error->message, "url");
    } else if (!ids.insert(id_digest(parsed->custom_id)).second) {
      add("duplicate_custom_id",
          fmt::format("custom_id: expected one for each line, found '{}' again", shown(parsed->custom_id)),
          "custom_id");
    } else {
      checked.num_done += done_->status.contains(parsed->custom_id);
    }
  }
  if (has_failed()) return make_error(ErrorCode::kIo, "{}: cannot be read", path_);
  std::rewind(file_.get());
  number_ = 0;
  return checked;
}

bool BatchInput::has_failed() const {
  std::lock_guard lock(mutex_);
  return std::ferror(file_.get()) != 0;
}

std::optional<BatchLine> BatchInput::next(size_t* num_bytes) {
  std::lock_guard lock(mutex_);
  while (read_line()) {
    if (is_blank(line_)) continue;
    Result<BatchLine> parsed = parse_batch_line(line_);
    if (!parsed || done_->status.contains(parsed->custom_id)) continue;
    if (num_bytes) *num_bytes = line_.size();
    return *std::move(parsed);
  }
  return std::nullopt;
}

}  // namespace llmrt::server
