#include "server/stored_records.h"

#include <utility>

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr std::array<const char*, kNumBatchStates> kStateNames = {
    "validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"};
// What clients read of when each was reached.
constexpr std::array<const char*, kNumBatchStates> kTimeNames = {"created_at",    "in_progress_at", "finalizing_at",
                                                                 "completed_at",  "failed_at",      "expired_at",
                                                                 "cancelling_at", "cancelled_at"};

json::value time_or_null(int64_t at) {
  return at == 0 ? json::value(nullptr) : json::value(at);
}
json::value text_or_null(const std::string& text, bool is_there = true) {
  return text.empty() || !is_there ? json::value(nullptr) : json::value(text);
}

// Members of a record; the first that is wrong is kept.
class Reader {
 public:
  explicit Reader(const json::object& object) : object_(object) {}

  std::string text(std::string_view name) {
    const json::value* value = member(name);
    if (value && value->is_string()) return std::string(value->as_string());
    if (value && !value->is_null()) wrong(name);
    return {};
  }
  int64_t integer(std::string_view name) {
    const json::value* value = member(name);
    if (value && value->is_int64() && value->as_int64() >= 0) return value->as_int64();
    if (value && !value->is_null()) wrong(name);
    return 0;
  }
  uint64_t count(std::string_view name) { return static_cast<uint64_t>(integer(name)); }
  const json::object& object(std::string_view name) {
    static const json::object kNone;
    const json::value* value = member(name);
    if (value && value->is_object()) return value->as_object();
    wrong(name);
    return kNone;
  }
  const json::value* member(std::string_view name) const { return object_.if_contains(name); }
  void wrong(std::string_view name) {
    if (problem_.empty()) problem_ = fmt::format("expected another value of {}", name);
  }
  void take_problem(const Reader& other) {
    if (problem_.empty()) problem_ = other.problem_;
  }
  template <typename T>
  Result<T> finish(T made) const {
    if (!problem_.empty()) return make_error(ErrorCode::kCorruptFile, "{}", problem_);
    return made;
  }

 private:
  const json::object& object_;
  std::string problem_;
};

json::object problem_object(const LineProblem& problem) {
  return {{"code", problem.code},
          {"line", problem.line == 0 ? json::value(nullptr) : json::value(problem.line)},
          {"message", problem.message},
          {"param", text_or_null(problem.param)}};
}

void read_problems(const json::object& batch, StoredBatch* made, Reader* reader) {
  const json::value* errors = batch.if_contains("errors");
  if (!errors || !errors->is_object()) return;
  const json::value* data = errors->as_object().if_contains("data");
  if (!data || !data->is_array()) return reader->wrong("errors");
  for (const json::value& item : data->as_array()) {
    if (!item.is_object()) return reader->wrong("errors");
    Reader problem(item.as_object());
    made->problems.push_back(
        {problem.count("line"), problem.text("code"), problem.text("message"), problem.text("param")});
    reader->take_problem(problem);
  }
}

}  // namespace

const char* batch_state_name(BatchState state) {
  return kStateNames[static_cast<size_t>(state)];
}

bool is_over(BatchState state) {
  return state == BatchState::kCompleted || state == BatchState::kFailed || state == BatchState::kExpired ||
         state == BatchState::kCancelled;
}

json::object file_object(const StoredFile& file) {
  return {{"id", file.id},
          {"object", "file"},
          {"bytes", file.bytes},
          {"created_at", file.created_at},
          {"expires_at", time_or_null(file.expires_at)},
          {"filename", file.filename},
          {"purpose", file.purpose},
          {"status", "processed"},
          {"status_details", nullptr}};
}

json::object batch_object(const StoredBatch& batch) {
  json::value errors = nullptr;
  if (!batch.problems.empty()) {
    json::array data;
    for (const LineProblem& problem : batch.problems) data.emplace_back(problem_object(problem));
    errors = json::object{{"object", "list"}, {"data", std::move(data)}};
  }
  json::object object{{"id", batch.id},
                      {"object", "batch"},
                      {"endpoint", batch.endpoint},
                      {"errors", std::move(errors)},
                      {"input_file_id", batch.input_id},
                      {"completion_window", "24h"},
                      {"status", batch_state_name(batch.state)},
                      {"output_file_id", text_or_null(batch.output_id, batch.has_output)},
                      {"error_file_id", text_or_null(batch.error_id, batch.has_errors)},
                      {"expires_at", time_or_null(batch.expires_at)},
                      {"request_counts",
                       {{"total", batch.num_lines}, {"completed", batch.num_completed}, {"failed", batch.num_failed}}},
                      {"metadata", batch.metadata}};
  for (size_t state = 0; state < kNumBatchStates; ++state)
    object[kTimeNames[state]] = time_or_null(batch.reached_at[state]);
  return object;
}

json::object to_record(const StoredFile& file) {
  return {{"owner", file.owner}, {"number", file.number}, {"file", file_object(file)}};
}

json::object to_record(const StoredBatch& batch) {
  return {{"owner", batch.owner},
          {"number", batch.number},
          {"output_id", batch.output_id},
          {"error_id", batch.error_id},
          {"output_expires_s", batch.output_expires_s},
          {"batch", batch_object(batch)}};
}

Result<StoredFile> read_file_record(const json::object& record) {
  Reader outer(record);
  Reader inner(outer.object("file"));
  StoredFile file{.id = inner.text("id"),
                  .owner = outer.text("owner"),
                  .number = outer.count("number"),
                  .filename = inner.text("filename"),
                  .purpose = inner.text("purpose"),
                  .bytes = inner.count("bytes"),
                  .created_at = inner.integer("created_at"),
                  .expires_at = inner.integer("expires_at")};
  outer.take_problem(inner);
  return outer.finish(std::move(file));
}

Result<StoredBatch> read_batch_record(const json::object& record) {
  Reader outer(record);
  const json::object& object = outer.object("batch");
  Reader inner(object);
  Reader counts(inner.object("request_counts"));
  StoredBatch batch{.id = inner.text("id"),
                    .owner = outer.text("owner"),
                    .number = outer.count("number"),
                    .endpoint = inner.text("endpoint"),
                    .input_id = inner.text("input_file_id"),
                    .output_id = outer.text("output_id"),
                    .error_id = outer.text("error_id"),
                    .has_output = !inner.text("output_file_id").empty(),
                    .has_errors = !inner.text("error_file_id").empty(),
                    .expires_at = inner.integer("expires_at"),
                    .output_expires_s = outer.integer("output_expires_s"),
                    .num_lines = counts.count("total"),
                    .num_completed = counts.count("completed"),
                    .num_failed = counts.count("failed"),
                    .problems = {},
                    .metadata = nullptr};
  for (size_t state = 0; state < kNumBatchStates; ++state) batch.reached_at[state] = inner.integer(kTimeNames[state]);
  const std::string name = inner.text("status");
  size_t state = 0;
  while (state < kNumBatchStates && name != kStateNames[state]) ++state;
  if (state == kNumBatchStates)
    inner.wrong("status");
  else
    batch.state = static_cast<BatchState>(state);
  if (const json::value* metadata = inner.member("metadata"); metadata && metadata->is_object())
    batch.metadata = *metadata;
  read_problems(object, &batch, &inner);
  outer.take_problem(inner);
  outer.take_problem(counts);
  return outer.finish(std::move(batch));
}

}  // namespace llmrt::server
