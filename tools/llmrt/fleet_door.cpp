#include "tools/llmrt/fleet_door.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace llmrt::cli {
namespace {

constexpr std::chrono::milliseconds kLook{500};  // how often the keeper looks

Error unloaded() {
  return {ErrorCode::kCancelled, "the model is unloaded"};
}

}  // namespace

FleetDoor::FleetDoor(std::vector<Worker> workers, Config config, const Clock* clock, std::shared_ptr<Log> log)
    : config_(std::move(config)), clock_(clock), log_(std::move(log)) {
  std::vector<Fleet::Worker> engines;
  for (Worker& worker : workers) {
    Member member;
    member.device = worker.device;
    member.backend = std::move(worker.backend);
    member.device_name = std::move(worker.device_name);
    member.monitor = std::move(worker.monitor);
    member.running.engine = std::move(worker.engine);
    engines.push_back({std::move(worker.device), member.running.engine});
    members_.push_back(std::move(member));
  }
  fleet_ = std::make_unique<Fleet>(std::move(engines), config_.placement, clock_, log_);
  fleet_->set_hand_over(config_.hand_over);
  if (config_.decisions)
    fleet_->on_choice([file = config_.decisions, names = fleet_->names()](PlacementRecord record) {
      const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
      const int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count();
      file->put([record = std::move(record), names, now_ms] { return format_placement(record, names, now_ms); });
    });
}

FleetDoor::~FleetDoor() {
  close();
}

void FleetDoor::start(std::function<void(const Error&)> on_end) {
  on_end_ = std::move(on_end);
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < members_.size(); ++i) run(i);
  }
  keeper_ = std::thread([this] { keep(); });
}

void FleetDoor::run(size_t worker) {
  Running& running = members_[worker].running;
  running.thread = std::make_shared<EngineThread>(running.engine.get());
  running.thread->start([this, worker] { lost(worker); });
}

void FleetDoor::close() {
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (keeper_.joinable()) keeper_.join();
  for (const Running& running : all_running())
    if (running.thread) (void)running.thread->join();
  std::vector<Running> gone;  // behind the locks: what they let go may call this
  std::unique_lock lock(calls_);
  is_closed_ = true;
  std::lock_guard members_lock(mutex_);
  for (size_t i = 0; i < members_.size(); ++i) {
    fleet_->lose(i);
    gone.push_back(std::exchange(members_[i].running, {}));
  }
}

// ---- losses --------------------------------------------------------------------------------------------------------

// On the engine's thread.
void FleetDoor::lost(size_t worker) {
  const size_t num_left = fleet_->lose(worker);
  Error error;
  {
    std::lock_guard lock(mutex_);
    Member& member = members_[worker];
    error = member.running.thread->failure().value_or(Error{ErrorCode::kInternal, "the engine has ended"});
    if (member.wait_s == 0) member.wait_s = config_.first_wait_s;
    if (num_left > 0) {
      log_->event(LogLevel::kError, {{"worker", member.device}},
                  "{}: {}: its answers go on elsewhere ({} of {} devices left); it is opened again in {:.0f} s",
                  member.device, error.message, num_left, members_.size(), member.wait_s);
      losses_.push_back({worker, clock_->now_ns() + static_cast<TimeNs>(member.wait_s * 1e9)});
    }
  }
  changed_.notify_all();
  if (num_left == 0) on_end_(error);
}

void FleetDoor::keep() {
  std::unique_lock lock(mutex_);
  while (!stops_) {
    judge_skew();
    const auto next = std::ranges::min_element(losses_, {}, &Loss::due_ns);
    if (next == losses_.end() || next->due_ns > clock_->now_ns()) {
      changed_.wait_for(lock, kLook);
      continue;
    }
    const size_t worker = next->worker;
    losses_.erase(next);
    lock.unlock();
    const bool is_back = bring_back(worker);
    lock.lock();
    Member& member = members_[worker];
    if (is_back && !stops_) {
      run(worker);
    } else if (!is_back) {
      member.wait_s = std::min(2 * member.wait_s, kWaitMostS);
      losses_.push_back({worker, clock_->now_ns() + static_cast<TimeNs>(member.wait_s * 1e9)});
    }
  }
}

bool FleetDoor::bring_back(size_t worker) {
  Running old;
  std::string device;
  {
    std::lock_guard lock(mutex_);
    old = std::exchange(members_[worker].running, {});
    device = members_[worker].device;
  }
  if (old.thread) (void)old.thread->join();  // it has called lost() and is about to end
  const std::weak_ptr<Engine> gone = old.engine;
  old = {};
  // A call that it is in the middle of ends at once: its memory has to be free before it is taken again.
  for (int waits = 0; !gone.expired() && waits < 1000; ++waits)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  Result<std::unique_ptr<Engine>> engine = config_.reopen(worker);
  if (!engine) {
    log_->event(LogLevel::kWarning, {{"worker", device}}, "{}: not back: {}", device, engine.error().message);
    return false;
  }
  std::lock_guard lock(mutex_);
  Member& member = members_[worker];
  member.running.engine = *std::move(engine);
  fleet_->bring_back(worker, member.running.engine);
  log_->event(LogLevel::kInfo, {{"worker", device}}, "{}: it is back", device);
  return true;
}

// The load is how long a step of all that a worker has would take: rows count for more where they are slow.
void FleetDoor::judge_skew() {
  std::vector<double> loads;
  for (const Member& member : members_) {
    const EngineLoad load = member.running.engine ? member.running.engine->load() : EngineLoad();
    loads.push_back((load.num_running + load.num_waiting) * std::max(load.decode_more_ms, 1e-3));
  }
  busiest_ = static_cast<size_t>(std::ranges::max_element(loads) - loads.begin());
  skew_verdict_ = skew_.sample(loads, clock_->now_ns());
}

std::vector<FleetDoor::Running> FleetDoor::all_running() const {
  std::lock_guard lock(mutex_);
  std::vector<Running> all;
  for (const Member& member : members_) all.push_back(member.running);
  return all;
}

// ---- the door ------------------------------------------------------------------------------------------------------

Result<RequestId> FleetDoor::submit(Request request) {
  if (config_.sample_trace) config_.sample_trace->record(&request);
  std::shared_lock lock(calls_);
  if (is_closed_) return unloaded();
  return fleet_->submit(std::move(request));
}
void FleetDoor::cancel(RequestId id, const SentTimes& sent) {
  std::shared_lock lock(calls_);
  fleet_->cancel(id, sent);
}
void FleetDoor::disconnect(RequestId id, const SentTimes& sent) {
  std::shared_lock lock(calls_);
  fleet_->cancel(id, sent, FinishReason::kDisconnected);
}
void FleetDoor::set_paused(RequestId id, bool is_paused) {
  std::shared_lock lock(calls_);
  fleet_->set_paused(id, is_paused);
}
void FleetDoor::drained(RequestId id, const SentTimes& sent) {
  std::shared_lock lock(calls_);
  fleet_->drained(id, sent);
}

// All of them take the same bytes: who makes this sees to it.
Result<ReadyAdapter> FleetDoor::load_adapter(const std::string& path) {
  for (const Running& running : all_running())
    if (running.engine) return running.engine->load_adapter(path);
  return unloaded();
}

std::vector<server::ServedWorker> FleetDoor::workers() const {
  const std::vector<FleetWorkerFigures> figures = fleet_->figures();
  std::vector<server::ServedWorker> all;
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    server::ServedWorker worker;
    worker.name = member.device;
    worker.backend = member.backend;
    worker.device_name = member.device_name;
    worker.monitor = member.monitor;
    worker.figures = figures[i];
    if (!figures[i].is_lost && member.running.engine) worker.stats = member.running.engine->stats();
    if (worker.stats && i == busiest_)
      worker.stats->saturation[static_cast<size_t>(Saturation::kWorkerSkew)] = skew_verdict_;
    all.push_back(std::move(worker));
  }
  return all;
}

std::optional<ExchangeStats> FleetDoor::exchange() const {
  return config_.exchange ? std::optional(config_.exchange->stats()) : std::nullopt;
}

bool FleetDoor::drain(std::string_view worker, bool is_drained) {
  const std::vector<std::string>& names = fleet_->names();
  const auto found = std::ranges::find(names, worker);
  if (found == names.end()) return false;
  fleet_->drain(static_cast<size_t>(found - names.begin()), is_drained);
  log_->info("{}: {}", worker, is_drained ? "takes no new requests" : "takes requests again");
  return true;
}

std::optional<std::string> FleetDoor::trouble() const {
  std::optional<std::string> first;
  for (const Running& running : all_running()) {
    if (!running.thread) continue;
    const std::optional<std::string> trouble = running.thread->trouble();
    if (!trouble) return std::nullopt;
    if (!first) first = trouble;
  }
  return first ? first : std::optional<std::string>("no device is left");
}

void FleetDoor::stop() {
  for (const Running& running : all_running())
    if (running.engine) running.engine->stop();
}

}  // namespace llmrt::cli
