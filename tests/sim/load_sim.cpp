#include "tests/sim/load_sim.h"

#include <algorithm>
#include <cmath>

namespace llmrt::test {
namespace {

constexpr double kStepMs = 100, kTokenMs = 0.1, kIdleMs = 20;
constexpr uint32_t kPromptTokens = 64, kSharedTokens = 48;

TimeNs ns(double ms) {
  return static_cast<TimeNs>(ms * 1e6);
}

}  // namespace

struct LoadSim::Sink final : EventSink {
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events)
      if (event.finish != FinishReason::kNone) ended.push_back(event.request_id);
  }
  std::vector<RequestId> ended;
};

LoadSim::LoadSim(uint64_t seed, size_t num_workers) : random_(seed), workers_(num_workers) {
  EngineConfig config;
  config.context_max = 512;
  config.sequences_max = 16;
  config.step_tokens_max = 512;
  config.reserve_output_tokens = 24;
  config.kv_tokens = 128 * 16;
  config.audit_steps = 0;
  config.slo = {.ttft_ms = 3000, .tpot_ms = 400};
  for (Worker& worker : workers_) {
    auto engine = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                                 std::make_unique<FakeBackend>(FakeBackendConfig{}), &clock_, {});
    worker.engine = std::move(*engine);
    worker.sink = std::make_shared<Sink>();
  }
}

TimeNs LoadSim::gap_ns(const LoadPhase& phase) {
  const double uniform = std::generate_canonical<double, 53>(random_);
  return ns(-std::log1p(-uniform) / phase.arrivals_per_s * 1000);
}

void LoadSim::arrive(Worker& worker, const LoadPhase& phase) {
  Request request;
  request.cache_salt = "load";  // of one client: the common part of a block is shared, too
  const bool shares = std::generate_canonical<double, 53>(random_) < phase.shared_share;
  for (uint32_t i = 0; i < kPromptTokens; ++i)
    request.prompt.push_back(static_cast<int32_t>((shares && i < kSharedTokens ? i : random_()) % kFakeVocab));
  request.max_tokens = phase.output_tokens / 2 + static_cast<uint32_t>(random_() % (phase.output_tokens + 1));
  request.stop.ignore_eos = true;
  request.arrival_ns = worker.arrival_ns;
  Worker& target = phase.all_to_first ? workers_[0] : worker;
  request.sink = target.sink;
  LLMRT_CHECK(target.engine->submit(std::move(request)).ok(), "the queue holds everything here");
  worker.arrival_ns += gap_ns(phase);
}

void LoadSim::tick(Worker& worker, double slow) {
  LLMRT_CHECK(worker.engine->tick().ok(), "nothing fails here");
  for (const RequestId id : worker.sink->ended) worker.engine->drained(id);
  num_finished_ += worker.sink->ended.size();
  worker.sink->ended.clear();
  const double num_tokens = worker.engine->stats().step_tokens.sum();
  const double done = num_tokens - std::exchange(worker.num_tokens, num_tokens);
  worker.free_ns = clock_.now_ns() + ns(done > 0 ? slow * (kStepMs + kTokenMs * done) : kIdleMs);
}

void LoadSim::run(const LoadPhase& phase, const std::function<void(double)>& look) {
  const TimeNs begin = clock_.now_ns();
  const TimeNs length = ns(phase.seconds * 1000);
  for (Worker& worker : workers_) worker.arrival_ns = begin + gap_ns(phase);
  TimeNs look_ns = begin;
  while (clock_.now_ns() < begin + length) {
    Worker& next = *std::ranges::min_element(workers_, {}, &Worker::free_ns);
    clock_.advance_ns(std::max<TimeNs>(0, next.free_ns - clock_.now_ns()));
    for (Worker& worker : workers_)
      while (worker.arrival_ns <= clock_.now_ns()) arrive(worker, phase);
    const double progress = static_cast<double>(clock_.now_ns() - begin) / static_cast<double>(length);
    tick(next, phase.slow_from + (phase.slow_to - phase.slow_from) * std::min(1.0, progress));
    if (clock_.now_ns() < look_ns) continue;
    look_ns += ns(1000);
    std::vector<double> loads;
    for (const Worker& worker : workers_) loads.push_back(worker.engine->stats().in_system.num());
    skew_verdict_ = skew_.sample(loads, clock_.now_ns());
    first_ = workers_[0].engine->stats();
    look(now_s());
  }
}

const SaturationVerdict& LoadSim::verdict(Saturation which) const {
  return which == Saturation::kWorkerSkew ? skew_verdict_ : first_.saturation[static_cast<size_t>(which)];
}

}  // namespace llmrt::test
