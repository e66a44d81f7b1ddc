#include "server/batch_runner.h"

#include <algorithm>
#include <chrono>

#include "core/base/clock.h"
#include "server/work_queue.h"

namespace llmrt::server {
namespace {

constexpr auto kTick = std::chrono::seconds(5);      // for what time alone brings: expired batches and files
constexpr auto kDebtTick = std::chrono::seconds(1);  // until a key's tokens are looked at again
constexpr int kCancelledStatus = 499, kBusyStatus = 503;
constexpr int kTriesMax = 9;  // of a line that the server has no room or no device for: some four minutes

LineProblem to_problem(const Error& error) {
  return {.line = 0, .code = error_code_name(error.code), .message = error.message, .param = {}};
}

}  // namespace

// A batch whose lines are being answered.
struct BatchRunner::Active {
  std::string id, owner;
  std::string input_id, output_id, error_id;
  int64_t output_expires_s = 0;
  DoneLines done;
  std::unique_ptr<BatchInput> input;
  std::mutex writing;  // of the two files
  std::unique_ptr<GrowingFile> output, errors;
  std::atomic<bool> cancelled = false;  // its lines end
  // Under the runner's mutex:
  uint32_t num_running = 0;
  bool is_exhausted = false;  // no line is left to begin
  BatchState end = BatchState::kCompleted;
  std::vector<LineProblem> problems;

  bool is_done() const { return num_running == 0 && (is_exhausted || cancelled); }
};

BatchRunner::BatchRunner(Parts parts, Settings settings) : parts_(std::move(parts)), settings_(settings) {
  clerk_ = std::thread([this] { keep_books(); });
}

BatchRunner::~BatchRunner() {
  stop();
}

void BatchRunner::wake() {
  std::lock_guard lock(mutex_);
  is_woken_ = true;
  changed_.notify_all();
}

void BatchRunner::drain() {
  draining_ = true;
  wake();
}

bool BatchRunner::is_busy() const {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(active_, [](const auto& entry) { return entry.second->num_running > 0; });
}

void BatchRunner::cancel() {
  stopping_ = true;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, active] : active_) active->cancelled = true;
  }
  wake();
}

void BatchRunner::stop() {
  cancel();
  if (clerk_.joinable()) clerk_.join();  // the only one that makes workers
  for (std::thread& worker : workers_)
    if (worker.joinable()) worker.join();
}

// ---- the books -----------------------------------------------------------------------------------------------------

void BatchRunner::keep_books() {
  while (!stopping_ && !draining_) {
    parts_.store->remove_expired();
    for (const OpenBatch& batch : parts_.store->open_batches()) {
      if (stopping_ || draining_) return;
      visit(batch);
    }
    std::vector<std::shared_ptr<Active>> done;
    {
      std::unique_lock lock(mutex_);
      for (const auto& [id, active] : active_)
        if (active->is_done()) done.push_back(active);
      if (done.empty()) changed_.wait_for(lock, kTick, [&] { return is_woken_ || stopping_; });
      is_woken_ = false;
      if (stopping_) return;
    }
    for (const std::shared_ptr<Active>& active : done) finish(*active);
  }
}

void BatchRunner::visit(const OpenBatch& batch) {
  if (batch.state == BatchState::kValidating) return check_lines(batch);
  const bool is_late = batch.expires_at <= parts_.store->now_s();
  const bool ends = batch.state == BatchState::kCancelling || is_late;
  {
    std::lock_guard lock(mutex_);
    const auto known = active_.find(batch.id);
    if (known != active_.end()) {
      if (ends) end_soon(*known->second, is_late ? BatchState::kExpired : BatchState::kCancelled);
      return;
    }
    if (!ends && (active_.size() >= kActiveMax || num_active_of(batch.owner) >= kActiveOfKeyMax)) return;
  }
  begin(batch);
}

size_t BatchRunner::num_active_of(const std::string& owner) const {
  return static_cast<size_t>(
      std::ranges::count_if(active_, [&](const auto& entry) { return entry.second->owner == owner; }));
}

void BatchRunner::end_soon(Active& active, BatchState how, LineProblem problem) {
  if (active.end == BatchState::kCompleted) {
    active.end = how;
    if (!problem.code.empty()) active.problems.push_back(std::move(problem));
  }
  active.cancelled = true;
}

void BatchRunner::fail(const OpenBatch& open, LineProblem problem) {
  const auto failed = parts_.store->change_batch(open.owner, open.id, [&](StoredBatch& batch) {
    batch.problems.push_back(std::move(problem));
    batch.move_to(BatchState::kFailed, parts_.store->now_s());
    return Status();
  });
  parts_.log->warn("batch {} failed: {}", open.id, failed ? failed->problems.back().message : failed.error().message);
}

void BatchRunner::check_lines(const OpenBatch& open) {
  const auto batch = parts_.store->find_batch(open.owner, open.id);
  if (!batch) return;
  const DoneLines none;
  const auto input = BatchInput::open(parts_.store->data_path(batch->input_id), &none);
  if (!input)
    return fail(open, {.line = 0, .code = "io_error", .message = "the input file cannot be read", .param = {}});
  const auto check_url = [&](std::string_view url) -> std::optional<ApiError> {
    if (url == batch->endpoint) return std::nullopt;
    return http_error(400, "invalid_url", fmt::format("url: expected the batch's endpoint, {}", batch->endpoint));
  };
  Result<CheckedLines> checked = (*input)->check(check_url, kProblemsMax, kLinesMax);
  if (!checked) return fail(open, to_problem(checked.error()));
  if (checked->num_lines == 0)
    checked->problems.push_back({.line = 0, .code = "empty_file", .message = "expected a request", .param = {}});
  const auto changed = parts_.store->change_batch(open.owner, open.id, [&](StoredBatch& now) -> Status {
    if (now.state != BatchState::kValidating) return make_error(ErrorCode::kCancelled, "it was cancelled");
    now.problems = std::move(checked->problems);
    now.num_lines = now.problems.empty() ? checked->num_lines : 0;
    now.move_to(now.problems.empty() ? BatchState::kInProgress : BatchState::kFailed, parts_.store->now_s());
    return {};
  });
  if (changed) wake();
  if (changed && changed->state == BatchState::kFailed)
    parts_.log->info("batch {} is refused: {} lines are wrong", open.id, changed->problems.size());
}

// What was answered before a stop is read again; a line that was being written then is cut off.
Status BatchRunner::open_files(const StoredBatch& record, Active* active) const {
  FileStore& store = *parts_.store;
  if (!store.find_file(record.owner, record.input_id))
    return make_error(ErrorCode::kNotFound, "the input file is gone");
  Result<DoneLines> output = read_done_lines(store.data_path(record.output_id));
  if (!output) return output.error();
  Result<DoneLines> errors = read_done_lines(store.data_path(record.error_id));
  if (!errors) return errors.error();
  auto output_file = store.grow(record.output_id, output->num_bytes);
  if (!output_file) return output_file.error();
  auto error_file = store.grow(record.error_id, errors->num_bytes);
  if (!error_file) return error_file.error();
  active->output = *std::move(output_file);
  active->errors = *std::move(error_file);
  active->done = *std::move(output);
  active->done.status.merge(errors->status);
  auto input = BatchInput::open(store.data_path(record.input_id), &active->done);
  if (!input) return input.error();
  active->input = *std::move(input);
  return {};
}

void BatchRunner::begin(const OpenBatch& open) {
  const auto record = parts_.store->find_batch(open.owner, open.id);
  if (!record) return;
  const auto active = std::make_shared<Active>();
  active->id = record->id;
  active->owner = record->owner;
  active->input_id = record->input_id;
  active->output_id = record->output_id;
  active->error_id = record->error_id;
  active->output_expires_s = record->output_expires_s;
  if (Status status = open_files(*record, active.get()); !status) return fail(open, to_problem(status.error()));
  const auto& done = active->done.status;
  const auto num_completed =
      static_cast<uint64_t>(std::ranges::count_if(done, [](const auto& entry) { return entry.second == 200; }));
  const auto counted = parts_.store->change_batch(open.owner, open.id, [&](StoredBatch& batch) {
    batch.num_completed = num_completed;
    batch.num_failed = done.size() - num_completed;
    return Status();
  });
  if (!counted) return parts_.log->error("batch {} cannot begin: {}", open.id, counted.error().message);
  const uint64_t num_left = record->num_lines - std::min<uint64_t>(record->num_lines, done.size());
  parts_.log->info("batch {}: {} of {} requests are to be answered", open.id, num_left, record->num_lines);
  std::lock_guard lock(mutex_);
  active_[open.id] = active;
  for (uint64_t i = 0; i < num_left && workers_.size() < settings_.in_flight; ++i)
    workers_.emplace_back([this] { work(); });
  is_woken_ = true;
  changed_.notify_all();
}

// Lines that nothing was written of get an error each.
Status BatchRunner::write_rest(Active& active) const {
  const StoredBatch now = parts_.store->find_batch(active.owner, active.id).value_or(StoredBatch());
  auto done = read_done_lines(parts_.store->data_path(active.output_id));
  auto failed = read_done_lines(parts_.store->data_path(active.error_id));
  if (!done || !failed) return (done ? failed : done).error();
  done->status.merge(failed->status);
  auto input = BatchInput::open(parts_.store->data_path(active.input_id), &*done);
  if (!input) return input.error();
  while (const std::optional<BatchLine> line = (*input)->next()) {
    const std::string text = format_unanswered_line(line->custom_id, "batch_expired",
                                                    "the completion window ended before this request was answered");
    if (Status status = active.errors->append(text); !status) return status;
    parts_.store->count_line(active.id, /*is_completed=*/false);
  }
  return {};
}

// The answers become a file of their own; false: there is none.
Result<bool> BatchRunner::keep_answers(const Active& active, GrowingFile& data, const std::string& id) const {
  FileStore& store = *parts_.store;
  if (data.bytes() == 0) {
    store.drop_data(id);
    return false;
  }
  if (Status status = data.sync(); !status) return status.error();
  if (store.find_file(active.owner, id)) return true;  // from before a crash
  StoredFile file{.id = id,
                  .owner = active.owner,
                  .filename = fmt::format("{}_{}.jsonl", active.id, id == active.output_id ? "output" : "error"),
                  .purpose = std::string(kPurposeOutput),
                  .bytes = data.bytes(),
                  .created_at = store.now_s()};
  if (active.output_expires_s > 0) file.expires_at = file.created_at + active.output_expires_s;
  const auto added = store.add_file(std::move(file));
  if (!added) return added.error();
  return true;
}

void BatchRunner::finish(Active& active) {
  FileStore& store = *parts_.store;
  if (active.input->has_failed())
    end_soon(active, BatchState::kFailed, {0, "io_error", "the input file cannot be read", {}});
  if (active.end == BatchState::kCompleted)
    static_cast<void>(store.change_batch(active.owner, active.id, [&](StoredBatch& batch) {
      if (batch.state != BatchState::kInProgress) return Status(make_error(ErrorCode::kCancelled, "it is ending"));
      batch.move_to(BatchState::kFinalizing, store.now_s());
      return Status();
    }));
  if (active.end == BatchState::kExpired)
    if (Status status = write_rest(active); !status) active.problems.push_back(to_problem(status.error()));
  const Result<bool> output = keep_answers(active, *active.output, active.output_id);
  const Result<bool> errors = keep_answers(active, *active.errors, active.error_id);
  for (const Result<bool>* kept : {&output, &errors})
    if (!*kept) end_soon(active, BatchState::kFailed, to_problem(kept->error()));
  const auto ended = store.change_batch(active.owner, active.id, [&](StoredBatch& batch) {
    const bool was_cancelled = batch.state == BatchState::kCancelling && active.end == BatchState::kCompleted;
    batch.has_output = output && *output;
    batch.has_errors = errors && *errors;
    batch.problems = active.problems;
    batch.move_to(was_cancelled ? BatchState::kCancelled : active.end, store.now_s());
    return Status();
  });
  if (ended)
    parts_.log->info("batch {} {}: {} of {} requests answered, {} with an error", active.id,
                     batch_state_name(ended->state), ended->num_completed, ended->num_lines, ended->num_failed);
  else
    parts_.log->error("batch {} has no end: {}", active.id, ended.error().message);
  std::lock_guard lock(mutex_);
  active_.erase(std::string(active.id));
  is_woken_ = true;
}

// ---- lines ---------------------------------------------------------------------------------------------------------

void BatchRunner::work() {
  lower_thread_priority();
  while (const std::shared_ptr<Active> active = next_turn()) {
    size_t num_bytes = 0;
    const std::optional<BatchLine> line = active->input->next(&num_bytes);
    if (line) answer_line(*active, *line, num_bytes);
    std::lock_guard lock(mutex_);
    --active->num_running;
    if (!line) active->is_exhausted = true;
    if (!active->is_done()) continue;
    is_woken_ = true;
    changed_.notify_all();
  }
}

// The batch behind the one that had the last turn; a key that is in debt, or gone, has none.
std::shared_ptr<BatchRunner::Active> BatchRunner::next_turn() {
  const SteadyClock clock;
  const auto may_go_on = [&](const Active& active) {
    if (active.is_exhausted || active.cancelled) return false;
    const std::optional<Caller> owner = parts_.keys->find(active.owner);
    return owner && !(owner->account && owner->account->is_in_debt(clock.now_ns()));
  };
  std::unique_lock lock(mutex_);
  while (!stopping_ && !draining_) {
    auto it = active_.upper_bound(last_turn_);
    for (size_t i = 0; i < active_.size(); ++i, ++it) {
      if (it == active_.end()) it = active_.begin();
      if (!may_go_on(*it->second)) continue;
      ++it->second->num_running;
      last_turn_ = it->first;
      return it->second;
    }
    changed_.wait_for(lock, active_.empty() ? kTick : kDebtTick);
  }
  return nullptr;
}

bool BatchRunner::pause(const Active& active, int seconds) {
  const auto is_over = [&] { return stopping_ || draining_ || active.cancelled; };
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, std::chrono::seconds(seconds), is_over);
}

void BatchRunner::answer_line(Active& active, const BatchLine& line, size_t num_bytes) {
  MemoryAccount held(parts_.memory);
  std::optional<Caller> owner = parts_.keys->find(active.owner);
  for (; !owner || !held.set(MemoryAccount::kBody, num_bytes); owner = parts_.keys->find(active.owner))
    if (!pause(active, 1)) return;
  const OfflineAnswerer answerer(parts_.models, {.strict_fields = settings_.strict_fields,
                                                 .request_class = "batch",
                                                 .key_salt = owner->key.cache_salt,
                                                 .key_adapters = owner->key.adapters,
                                                 .is_beside_others = true});
  OfflineAnswer answer;
  for (int tries = 1, wait_s = 1; true; ++tries, wait_s = std::min(2 * wait_s, 60)) {
    answer = answerer.answer(line.url, line.body, active.cancelled);
    if (answer.status != kBusyStatus || tries == kTriesMax) break;
    if (!pause(active, wait_s)) return;
  }
  if (answer.status == kCancelledStatus) return;
  if (owner->account) owner->account->charge(answer.prompt_tokens, answer.generated_tokens, SteadyClock().now_ns());
  write(active, line, answer);
}

void BatchRunner::write(Active& active, const BatchLine& line, const OfflineAnswer& answer) {
  const bool is_completed = answer.status == 200;
  Status status;
  {
    std::lock_guard lock(active.writing);
    status = (is_completed ? active.output : active.errors)->append(format_batch_line(line.custom_id, answer));
  }
  if (status) return parts_.store->count_line(active.id, is_completed);
  std::lock_guard lock(mutex_);
  LineProblem problem = to_problem(status.error());
  if (status.error().code == ErrorCode::kNeverFits) problem.code = "files_full";
  end_soon(active, BatchState::kFailed, std::move(problem));
}

}  // namespace llmrt::server
