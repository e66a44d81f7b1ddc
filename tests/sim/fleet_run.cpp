#include "tests/sim/fleet_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "core/engine/engine.h"
#include "core/router/fleet.h"
#include "tests/sim/fleet_client.h"
#include "tests/sim/fleet_device.h"

namespace llmrt::test::fleet {
namespace {

// A run that takes longer is stuck.
constexpr TimeNs kLongest = 600'000 * kMs;

struct Worker {
  const WorkerPlan* plan = nullptr;
  FleetDevice* device = nullptr;  // the engine's
  std::shared_ptr<Engine> engine;
  bool is_lost = false;   // its engine has ended
  bool is_awake = false;  // it may have something to do
  bool is_drained = false;
  bool is_back = false;  // this is the engine after the one that was lost

  TimeNs next_ns(TimeNs now) const {
    if (is_lost) return plan->back_ns;
    if (device->is_busy())
      return is_back ? device->free_ns() : std::min(device->free_ns(), std::max(now, plan->lost_ns));
    return is_awake ? now : kNever;
  }
};

class FleetRun {
 public:
  FleetRun(const FleetScenario& scenario, PlacementPolicy policy) : scenario_(scenario) {
    config_.policy = policy;
    config_.ttft_target_ms = scenario.ttft_target_ms;
    config_.tpot_target_ms = scenario.tpot_target_ms;
    config_.kept_share = scenario.kept_share;
    config_.long_tokens = scenario.long_tokens;
  }
  FleetResult run();

 private:
  struct Deed {  // of a client, by the clock
    TimeNs at_ns;
    size_t client;
    enum { kArrive, kCancel, kPause, kResume } what;
  };

  std::string start();
  std::string open(Worker& worker);
  std::string bring_back(size_t idx);
  std::string go_on();
  std::string act(const Deed& deed);
  std::string arrive(size_t idx);
  void cancel(Client& client);
  void note_drains(TimeNs now);
  std::string tick(size_t idx);
  std::string after_tick();
  std::string check_choice(uint32_t worker, const PlacementChoice& choice) const;
  bool could_serve(const Worker& worker, const Client& client) const;
  std::string check_error(const Client& client, const Error& error) const;
  std::string after_all();
  void count();
  void wake_all() {
    for (Worker& worker : workers_) worker.is_awake = true;
  }
  bool is_idle() const {
    return std::ranges::none_of(workers_, [](const Worker& worker) {
      return !worker.is_lost && (worker.is_awake || worker.device->is_busy());
    });
  }

  const FleetScenario& scenario_;
  PlacementConfig config_;
  WorkerClock clock_;
  std::vector<Worker> workers_;
  std::vector<std::shared_ptr<Engine>> gone_;  // that others stand in the place of
  std::unique_ptr<Fleet> fleet_;
  std::vector<std::shared_ptr<Client>> clients_;  // that have arrived, by their place in the scenario
  std::vector<Client*> open_;                     // that are not over
  std::vector<Deed> deeds_;
  std::string wrong_;  // of a placement
  FleetResult result_;
};

std::string FleetRun::open(Worker& worker) {
  WorkerPlan plan = *worker.plan;
  if (worker.is_back) plan.lost_ns = kNever;
  auto device = std::make_unique<FleetDevice>(plan, &clock_);
  worker.device = device.get();
  EngineConfig config = plan.config;
  config.audit_steps = 8;
  auto made = Engine::create(config, make_fake_model(), make_fake_tokenizer(), std::move(device), &clock_, {});
  if (!made) return fmt::format("{} did not start: {}", plan.name, made.error().message);
  worker.engine = *std::move(made);
  return "";
}

std::string FleetRun::bring_back(size_t idx) {
  Worker& worker = workers_[idx];
  gone_.push_back(std::exchange(worker.engine, nullptr));
  worker.is_lost = false;
  worker.is_back = true;
  if (std::string wrong = open(worker); !wrong.empty()) return wrong;
  fleet_->bring_back(idx, worker.engine);
  ++result_.num_back;
  return "";
}

std::string FleetRun::start() {
  std::vector<Fleet::Worker> behind;
  for (const WorkerPlan& plan : scenario_.workers) {
    Worker worker;
    worker.plan = &plan;
    if (std::string wrong = open(worker); !wrong.empty()) return wrong;
    behind.push_back({plan.name, worker.engine});
    workers_.push_back(std::move(worker));
  }
  fleet_ = std::make_unique<Fleet>(std::move(behind), config_, &clock_);
  fleet_->on_choice([this](const PlacementRecord& record) {
    if (!record.worker) return;
    if (wrong_.empty()) wrong_ = check_choice(*record.worker, record.choice);
    workers_[*record.worker].is_awake = true;
  });
  for (size_t i = 0; i < scenario_.clients.size(); ++i) {
    const ClientPlan& plan = scenario_.clients[i];
    deeds_.push_back({plan.arrival_ns, i, Deed::kArrive});
    if (plan.cancel_ns != kNever) deeds_.push_back({plan.cancel_ns, i, Deed::kCancel});
    if (plan.pause_ns == kNever) continue;
    deeds_.push_back({plan.pause_ns, i, Deed::kPause});
    deeds_.push_back({plan.resume_ns, i, Deed::kResume});
  }
  std::ranges::stable_sort(deeds_, {}, &Deed::at_ns);
  clients_.resize(scenario_.clients.size());
  return "";
}

// A placement is at a worker that could take the request, and only of those that cannot it says so.
std::string FleetRun::check_choice(uint32_t chosen, const PlacementChoice& choice) const {
  const Worker& worker = workers_[chosen];
  if (!choice.terms[chosen].infeasible.empty()) return "placed at a worker that is said to be unable";
  if (worker.is_lost) return fmt::format("placed at {}, which is lost", worker.plan->name);
  if (worker.is_drained) return fmt::format("placed at {}, which is drained", worker.plan->name);
  return "";
}

bool FleetRun::could_serve(const Worker& worker, const Client& client) const {
  const Request& request = client.plan->request;
  const EngineConfig& config = worker.engine->config();
  const MemoryPlan& pool = worker.engine->memory_plan();
  const uint64_t tokens = request.prompt.size() + request.max_tokens;
  const bool is_stable = worker.plan->fails_to_ns == 0 && worker.plan->lost_ns == kNever;
  return !worker.is_lost && !worker.is_drained && is_stable && tokens <= config.context_max &&
         (tokens + pool.block_tokens - 1) / pool.block_tokens <= pool.num_blocks &&
         (!request.batch_invariant || worker.plan->backend.batch_invariant);
}

// Whether an answer may end so, or be refused so.
std::string FleetRun::check_error(const Client& client, const Error& error) const {
  if (!scenario_.ask.has_faults() && error.code != ErrorCode::kUnsupported)
    return "an error where nothing fails: " + error.message;
  const bool has_told_prompt = client.plan->request.sampling.prompt_logprobs;
  if (has_told_prompt && error.code != ErrorCode::kUnsupported) return "";
  for (const Worker& worker : workers_)
    if (could_serve(worker, client))
      return fmt::format("ended though {} could serve it: {}", worker.plan->name, error.message);
  return "";
}

std::string FleetRun::arrive(size_t idx) {
  const auto client = std::make_shared<Client>(&scenario_.clients[idx]);
  clients_[idx] = client;
  Request request = client->plan->request;
  request.sink = client;
  const Result<RequestId> id = fleet_->submit(std::move(request));
  if (id) {
    client->first_id = *id;
    open_.push_back(client.get());
    return "";
  }
  client->refusal = id.error();
  ++result_.num_refused;
  return check_error(*client, id.error());
}

void FleetRun::cancel(Client& client) {
  if (client.is_cancelled || client.is_over()) return;
  client.is_cancelled = true;
  for (size_t branch = 0; branch < client.branches.size(); ++branch) {
    if (client.branches[branch].is_drained) continue;
    fleet_->cancel(client.first_id + branch);
    client.branches[branch].is_drained = true;
  }
  ++result_.num_cancelled;
  wake_all();
}

std::string FleetRun::act(const Deed& deed) {
  if (deed.what == Deed::kArrive) return arrive(deed.client);
  Client& client = *clients_[deed.client];
  if (client.first_id == 0) return "";
  if (deed.what == Deed::kCancel) {
    cancel(client);
    return "";
  }
  client.pause(deed.what == Deed::kPause);
  for (size_t branch = 0; branch < client.branches.size(); ++branch)
    fleet_->set_paused(client.first_id + branch, deed.what == Deed::kPause);
  wake_all();
  return "";
}

void FleetRun::note_drains(TimeNs now) {
  for (size_t i = 0; i < workers_.size(); ++i) {
    const WorkerPlan& plan = *workers_[i].plan;
    const bool is_drained = now >= plan.drained_from_ns && now < plan.drained_to_ns;
    if (is_drained == workers_[i].is_drained) continue;
    workers_[i].is_drained = is_drained;
    fleet_->drain(i, is_drained);
  }
}

// Until its device is at a step, or there is nothing to do.
std::string FleetRun::tick(size_t idx) {
  Worker& worker = workers_[idx];
  worker.is_awake = false;
  for (bool worked = true; worked && !worker.is_lost; worked &= !worker.device->is_busy()) {
    const Result<bool> ticked = worker.engine->tick();
    if (ticked) {
      worked = *ticked;
      continue;
    }
    if (ticked.error().code != ErrorCode::kDeviceLost || !worker.device->is_lost())
      return fmt::format("{}: {}", worker.plan->name, ticked.error().message);
    worker.is_lost = true;
    fleet_->lose(idx);
    ++result_.num_lost;
  }
  return after_tick();
}

std::string FleetRun::after_tick() {
  if (!wrong_.empty()) return wrong_;
  for (Client* client : open_) {
    if (!client->wrong.empty()) break;
    const int most = client->plan->cancel_after_tokens;
    if (most >= 0 && client->branches[0].tokens.size() >= static_cast<size_t>(most)) cancel(*client);
    for (size_t branch = 0; branch < client->branches.size(); ++branch) {
      Client::Branch& its = client->branches[branch];
      if (its.finish == FinishReason::kNone) continue;
      if (its.error && !its.is_drained) {
        ++result_.num_errors;
        if (std::string wrong = check_error(*client, *its.error); !wrong.empty()) return wrong;
      }
      if (!std::exchange(its.is_drained, true)) fleet_->drained(client->first_id + branch);
    }
  }
  const auto is_wrong = std::ranges::find_if(open_, [](const Client* client) { return !client->wrong.empty(); });
  if (is_wrong != open_.end()) return (*is_wrong)->wrong;
  if (std::erase_if(open_, [](const Client* client) { return client->is_over(); }) > 0) wake_all();
  return "";
}

std::string FleetRun::go_on() {
  size_t next_deed = 0;
  while (true) {
    const TimeNs now = clock_.now_ns();
    TimeNs next = next_deed < deeds_.size() ? deeds_[next_deed].at_ns : kNever;
    for (const Worker& worker : workers_) next = std::min(next, worker.next_ns(now));
    if (next == kNever || (next_deed == deeds_.size() && open_.empty() && is_idle())) return "";
    if (next > kLongest) return "it takes for ever";
    clock_.move_to(std::max(now, next));
    note_drains(clock_.now_ns());
    while (next_deed < deeds_.size() && deeds_[next_deed].at_ns <= clock_.now_ns())
      if (std::string wrong = act(deeds_[next_deed++]); !wrong.empty()) return wrong;
    if (!wrong_.empty()) return wrong_;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i].next_ns(clock_.now_ns()) > clock_.now_ns()) continue;
      if (std::string wrong = workers_[i].is_lost ? bring_back(i) : tick(i); !wrong.empty()) return wrong;
    }
  }
}

// Nothing is left behind, neither where answers ended nor where they began.
std::string FleetRun::after_all() {
  for (const std::shared_ptr<Client>& client : clients_) {
    if (std::string wrong = client->check_end(); !wrong.empty()) return wrong;
    if (client.use_count() != 1) return "the fleet or an engine still has a client that is gone";
  }
  uint64_t num_placed = 0, num_moved = 0, num_branches = 0;
  std::vector<const Engine*> engines;
  for (const Worker& worker : workers_) engines.push_back(worker.engine.get());
  for (const std::shared_ptr<Engine>& engine : gone_) engines.push_back(engine.get());
  for (const Engine* engine : engines) {
    const EngineStats stats = engine->stats();
    if (stats.num_running + stats.num_waiting + stats.num_streaming > 0)
      return fmt::format("an engine has {} that run, {} that wait, {} that stream at the end", stats.num_running,
                         stats.num_waiting, stats.num_streaming);
    if (stats.blocks_free != stats.blocks_total)
      return fmt::format("{} of {} blocks are free at the end", stats.blocks_free, stats.blocks_total);
    result_.num_preemptions += stats.num_preemptions;
  }
  for (const FleetWorkerFigures& figures : fleet_->figures()) {
    num_placed += figures.num_placed;
    num_moved += figures.num_moved_in;
    result_.num_failed += figures.num_failed;
    result_.placed.push_back(figures.num_placed);
  }
  for (const std::shared_ptr<Client>& client : clients_)
    if (!client->refusal) num_branches += client->branches.size();
  result_.num_moved = num_moved;
  return num_placed == num_branches + num_moved
             ? ""
             : fmt::format("{} placed, {} moved, {} branches", num_placed, num_moved, num_branches);
}

void FleetRun::count() {
  std::vector<double> ttfts;
  TimeNs end = 0;
  for (const std::shared_ptr<Client>& client : clients_) {
    for (const Client::Branch& branch : client->branches) {
      result_.num_tokens += branch.tokens.size();
      end = std::max(end, branch.end_ns);
    }
    if (client->plan->is_moody()) continue;
    const bool is_good = client->is_good(config_.ttft_target_ms, config_.tpot_target_ms);
    ++result_.num_counted;
    result_.num_good += is_good;
    ++result_.counted_of[static_cast<size_t>(client->plan->kind)];
    result_.good_of[static_cast<size_t>(client->plan->kind)] += is_good;
    if (client->refusal) continue;
    ttfts.push_back(client->ttft_ms());
    double& most = result_.ttft_most_ms[static_cast<size_t>(client->plan->kind)];
    most = std::max(most, ttfts.back());
  }
  result_.seconds = static_cast<double>(end) * 1e-9;
  std::ranges::sort(ttfts);
  if (!ttfts.empty()) result_.ttft_p99_ms = ttfts[ttfts.size() * 99 / 100];
}

FleetResult FleetRun::run() {
  if (result_.wrong = start(); !result_.wrong.empty()) return std::move(result_);
  if (result_.wrong = go_on(); !result_.wrong.empty()) return std::move(result_);
  if (result_.wrong = after_all(); !result_.wrong.empty()) return std::move(result_);
  count();
  return std::move(result_);
}

}  // namespace

FleetResult run_fleet(const FleetScenario& scenario, PlacementPolicy policy) {
  constexpr const char* fault_names[] = {"", ", outages", ", faults"};
  FleetResult result = FleetRun(scenario, policy).run();
  if (!result.wrong.empty())
    result.wrong =
        fmt::format("seed {}, load {}{}, {}: {}", scenario.ask.seed, scenario.ask.load,
                    fault_names[static_cast<size_t>(scenario.ask.faults)], placement_policy_name(policy), result.wrong);
  return result;
}

}  // namespace llmrt::test::fleet
