// The scheduler under load, on a device that is a formula: a step takes fixed + a * tokens + b * keys. What is checked
// are promises about times: shares, waiting, the length of steps, refusals.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <optional>
#include <random>

#include "core/schedule/scheduler.h"

using namespace llmrt;
using Catch::Approx;

namespace {

constexpr TimeNs kMs = 1'000'000;

struct Asked {
  RequestClass request_class;
  TimeNs arrival_ns = 0, first_ns = 0;
  uint32_t num_output = 0, num_got = 0;
  std::optional<Error> error;
};

// Plain loop: every plan is committed before the next one.
class Load {
 public:
  explicit Load(SchedulerConfig config) : scheduler(config) {}

  RequestId add(RequestClass request_class, uint32_t num_prompt, uint32_t num_output, TimeNs deadline_ns = 0) {
    Request request;
    request.id = asked.size() + 1;
    request.prompt.assign(num_prompt, static_cast<int32_t>(request.id));
    request.max_tokens = 1000;
    request.request_class = request_class;
    request.arrival_ns = now;
    request.deadline_ns = deadline_ns;
    Asked& one = asked.emplace_back();
    one.request_class = request_class;
    one.arrival_ns = now;
    one.num_output = num_output;
    const RequestId id = request.id;
    scheduler.add(std::move(request), now);
    take_events();
    return id;
  }
  // False when there was nothing to do.
  bool step() {
    const IterationPlan* plan = scheduler.plan(now);
    if (plan == nullptr) return false;
    step_ms = fixed_ms + 0.02 * static_cast<double>(plan->work.tokens) +
              1e-5 * static_cast<double>(plan->work.decode_keys + plan->work.chunk_pairs);
    now += static_cast<TimeNs>(step_ms * kMs);
    std::vector<Verdict> verdicts(plan->samples.size());
    for (const PlanRow& row : plan->rows) {
      Asked& one = asked[row.request_id - 1];
      prompt_tokens[one.request_class] += row.num_tokens > 1 || row.num_samples == 0 ? row.num_tokens : 0;
      if (row.num_samples == 0) continue;
      if (one.num_got == 0) one.first_ns = now;
      ++output_tokens[one.request_class];
      verdicts[row.sample_first].token = 1;
      if (++one.num_got == one.num_output) verdicts[row.sample_first].finish = FinishReason::kEos;
    }
    scheduler.commit(*plan, verdicts, now, {.step_ms = step_ms});
    if (++num_steps % 64 == 0) REQUIRE(scheduler.check_books().ok());  // slow beside thousands that wait
    take_events();
    return true;
  }
  double ttft_p95_ms(RequestClass request_class, TimeNs from) const {
    std::vector<double> ms;
    for (const Asked& one : asked)
      if (one.request_class == request_class && one.arrival_ns >= from && one.first_ns != 0)
        ms.push_back(static_cast<double>(one.first_ns - one.arrival_ns) / kMs);
    REQUIRE(ms.size() >= 100);
    std::ranges::sort(ms);
    return ms[ms.size() * 95 / 100];
  }

  Scheduler scheduler;
  TimeNs now = 1;
  double fixed_ms = 4;  // of each step
  double step_ms = 0;   // of the last one
  uint64_t num_steps = 0;
  std::vector<Asked> asked;
  std::map<RequestClass, uint64_t> prompt_tokens, output_tokens;

 private:
  void take_events() {
    std::vector<TokenEvent> events;
    scheduler.take_events(&events);
    for (const TokenEvent& event : events) {
      if (event.error) asked[event.request_id - 1].error = event.error;
      if (event.finish != FinishReason::kNone) scheduler.drained(event.request_id);
    }
  }
};

SchedulerConfig load_config() {
  SchedulerConfig config;
  config.context_max = 4096;
  config.sequences_max = 32;
  config.step_tokens_max = 1024;
  config.chunk_tokens = 256;
  config.sample_rows_max = 32;
  config.reserve_output_tokens = 128;
  config.kv_pools = {{1500, 16}};
  return config;
}

// Arrivals at random times with exponential gaps.
struct Arrivals {
  RequestClass request_class;
  double per_s;
  uint32_t prompt_max, output_max;
  double next_s = 0;
};

void serve(Load& load, std::vector<Arrivals> kinds, double until_s, std::mt19937_64& random) {
  const double begin_s = static_cast<double>(load.now) * 1e-9;
  for (Arrivals& kind : kinds) kind.next_s = begin_s;
  while (static_cast<double>(load.now) * 1e-9 < until_s) {
    for (Arrivals& kind : kinds) {
      while (kind.per_s > 0 && kind.next_s <= static_cast<double>(load.now) * 1e-9) {
        load.add(kind.request_class, 1 + static_cast<uint32_t>(random() % kind.prompt_max),
                 1 + static_cast<uint32_t>(random() % kind.output_max));
        kind.next_s += std::exponential_distribution<double>(kind.per_s)(random);
      }
    }
    if (!load.step()) load.now += kMs;
  }
}

}  // namespace

TEST_CASE("at twice the load that it bears, interactive requests wait as before and batch gets the rest") {
  const Arrivals people{RequestClass::kInteractive, 12, 600, 60}, crowd{RequestClass::kBatch, 90, 1000, 200};
  const double until_s = 90;
  std::mt19937_64 random(7);
  Load alone(load_config()), saturated(load_config()), loaded(load_config());
  serve(alone, {people}, until_s, random);
  serve(saturated, {crowd}, until_s, random);
  serve(loaded, {people, crowd}, until_s, random);
  const double before = alone.ttft_p95_ms(RequestClass::kInteractive, 30'000 * kMs);
  const double after = loaded.ttft_p95_ms(RequestClass::kInteractive, 30'000 * kMs);
  const auto num_arrived = static_cast<double>(loaded.asked.size());
  const auto num_served =
      static_cast<double>(std::ranges::count_if(loaded.asked, [](const Asked& one) { return one.first_ns != 0; }));
  fmt::print(
      "{:.1f} times the load that is served; time to first token of interactive requests, p95: {:.1f} ms alone, "
      "{:.1f} ms beside batch; {} rows taken back\n",
      num_arrived / num_served, before, after, loaded.scheduler.stats().num_reclaims);
  CHECK(num_arrived / num_served >= 1.8);
  CHECK(after <= 1.2 * before);
  // What the others leave is not lost.
  const auto rate = [](Load& load) {
    return load.output_tokens[RequestClass::kInteractive] + load.output_tokens[RequestClass::kBatch];
  };
  CHECK(static_cast<double>(rate(loaded)) >= 0.9 * static_cast<double>(rate(saturated)));
}

TEST_CASE("classes that all want more than there is get their shares of decode within 5 points") {
  std::mt19937_64 random(8);
  // Room is what is scarce: long answers to short prompts.
  Load load(load_config());
  serve(load,
        {{RequestClass::kInteractive, 40, 50, 300},
         {RequestClass::kAgent, 40, 50, 300},
         {RequestClass::kBatch, 40, 50, 300},
         {RequestClass::kBackground, 1, 50, 300}},
        70, random);
  auto before = load.output_tokens;
  serve(load, {}, 130, random);
  double sum = 0;
  std::map<RequestClass, double> got;
  for (const auto& [request_class, tokens] : load.output_tokens)
    sum += got[request_class] = static_cast<double>(tokens - before[request_class]);
  fmt::print("shares of decode over 60 s: interactive {:.3f}, agent {:.3f}, batch {:.3f}, background {:.3f}\n",
             got[RequestClass::kInteractive] / sum, got[RequestClass::kAgent] / sum, got[RequestClass::kBatch] / sum,
             got[RequestClass::kBackground] / sum);
  CHECK(got[RequestClass::kInteractive] / sum == Approx(0.50).margin(0.05));
  CHECK(got[RequestClass::kAgent] / sum == Approx(0.25).margin(0.05));
  CHECK(got[RequestClass::kBatch] / sum == Approx(0.25).margin(0.05));
  CHECK(got[RequestClass::kBackground] > 0);
}

TEST_CASE("classes that all want more than there is get their shares of prefill within 5 points") {
  std::mt19937_64 random(9);
  // Tokens of a step are what is scarce: long prompts, an answer of a token or two.
  SchedulerConfig config = load_config();
  config.sequences_max = config.sample_rows_max = 256;
  config.kv_pools = {{20'000, 16}};
  Load load(config);
  serve(load,
        {{RequestClass::kInteractive, 40, 2000, 2},
         {RequestClass::kAgent, 40, 2000, 2},
         {RequestClass::kBatch, 40, 2000, 2}},
        60, random);
  auto before = load.prompt_tokens;
  serve(load, {}, 90, random);
  REQUIRE(load.scheduler.stats().num_waiting > 0);
  double sum = 0;
  std::map<RequestClass, double> got;
  for (const auto& [request_class, tokens] : load.prompt_tokens)
    sum += got[request_class] = static_cast<double>(tokens - before[request_class]);
  fmt::print("shares of prefill over 30 s: interactive {:.3f}, agent {:.3f}, batch {:.3f}; {} wait\n",
             got[RequestClass::kInteractive] / sum, got[RequestClass::kAgent] / sum, got[RequestClass::kBatch] / sum,
             load.scheduler.stats().num_waiting);
  CHECK(got[RequestClass::kInteractive] / sum == Approx(0.30).margin(0.05));
  CHECK(got[RequestClass::kAgent] / sum == Approx(0.20).margin(0.05));
  CHECK(got[RequestClass::kBatch] / sum == Approx(0.50).margin(0.05));
}

TEST_CASE("steps in which others decode keep to the target for the time per token, others to a quarter of a second") {
  SchedulerConfig config = load_config();
  config.context_max = 100'000;
  config.step_tokens_max = 32'768;
  config.kv_pools = {{20'000, 16}};
  config.tpot_target_ms = 20;
  config.idle_step_ms = 250;
  Load load(config);
  for (int i = 0; i < 12; ++i) load.add(RequestClass::kInteractive, 300, 1000);
  for (int i = 0; i < 30; ++i) load.step();
  load.add(RequestClass::kBatch, 30'000, 1);
  double longest = 0;
  uint32_t num_steps = 0;
  for (; load.asked.back().num_got == 0; ++num_steps) {
    load.step();
    longest = std::max(longest, load.step_ms);
  }
  fmt::print("a prompt of 30,000 tokens beside 12 rows: {} steps, the longest {:.1f} ms (target 20)\n", num_steps,
             longest);
  CHECK(longest <= 20 * 1.1);
  while (load.step()) {
  }
  load.add(RequestClass::kBatch, 90'000, 1);
  load.add(RequestClass::kBatch, 90'000, 1);
  for (longest = 0; load.asked.back().num_got == 0;) {
    load.step();
    longest = std::max(longest, load.step_ms);
  }
  CHECK(longest > 200);
  CHECK(longest <= 250 * 1.05);
}

TEST_CASE("a device whose every step is over the limit still takes a prompt in few steps") {
  SchedulerConfig config = load_config();
  config.step_tokens_max = 2048;
  config.idle_step_ms = 250;
  Load load(config);
  load.fixed_ms = 300;
  load.add(RequestClass::kInteractive, 50, 20);  // from which it learns what steps take
  while (load.step()) {
  }
  load.add(RequestClass::kInteractive, 1900, 1);
  uint32_t num_steps = 0;
  for (; load.asked.back().num_got == 0; ++num_steps) REQUIRE(load.step());
  fmt::print("a prompt of 1,900 tokens where a step takes 300 ms: {} steps\n", num_steps);
  CHECK(num_steps <= 3);
}

TEST_CASE("a request that would wait too long is refused with the numbers and told when to come back") {
  SchedulerConfig config = load_config();
  config.ttft_target_ms = 2000;
  Load load(config);
  std::mt19937_64 random(10);
  serve(load, {{RequestClass::kInteractive, 100, 1000, 50}}, 20, random);
  uint64_t num_refused = 0, num_late = 0, num_started = 0;
  for (const Asked& one : load.asked) {
    if (one.error) {
      CHECK(one.error->code == ErrorCode::kOverloaded);
      CHECK(one.error->message.find("queue full: a first token within 2000 ms is wanted, ") == 0);
      CHECK(one.error->retry_after_s >= 1);
      ++num_refused;
    } else if (one.first_ns != 0 && one.arrival_ns > 5'000 * kMs) {
      ++num_started;
      num_late += one.first_ns - one.arrival_ns > 2500 * kMs;
    }
  }
  fmt::print("{} of {} refused; of {} others {} waited longer than 2.5 s\n", num_refused, load.asked.size(),
             num_started, num_late);
  CHECK(num_refused > 100);
  CHECK(num_late * 20 <= num_started);
  // A batch is not refused for waiting, but for a deadline that cannot be met.
  const RequestId patient = load.add(RequestClass::kBatch, 1000, 1);
  CHECK(!load.asked[patient - 1].error);
  for (int i = 0; i < 900; ++i) load.add(RequestClass::kBatch, 1000, 1);
  const RequestId hasty = load.add(RequestClass::kBatch, 10, 1, load.now + 40'000 * kMs);
  REQUIRE(load.asked[hasty - 1].error);
  CHECK(load.asked[hasty - 1].error->message.find("deadline: it is in 40000 ms, and ") == 0);
}

TEST_CASE("time in which nobody is there is no time of serving") {
  SchedulerConfig config = load_config();
  config.sample_rows_max = config.sequences_max = 8;
  config.ttft_target_ms = 5000;
  Load load(config);
  load.fixed_ms = 20;
  const auto add = [&] { return load.add(RequestClass::kInteractive, 200, 20); };
  for (int i = 0; i < 200; ++i) {
    if (i % 2 == 0) add();
    load.step();
  }
  for (RequestId id = 1; id <= load.asked.size(); ++id) load.scheduler.cancel(id, load.now);
  CHECK_FALSE(load.step());
  load.now += 3'600'000 * kMs;
  uint32_t num_refused = 0;
  for (int burst = 0; burst < 3; ++burst) {
    for (int i = 0; i < 12; ++i) num_refused += load.asked[add() - 1].error.has_value();
    for (int i = 0; i < 50; ++i) load.step();
  }
  CHECK(num_refused == 0);
}

TEST_CASE("admission reserves what answers of the same kind have needed") {
  SchedulerConfig config = load_config();
  config.learns_output = true;
  config.reserve_output_tokens = 512;
  config.watermark = 0;
  config.kv_pools = {{100, 16}};
  Load load(config);
  // 1,600 tokens: two of 16 + 512 fit beside each other and a third with no more than that.
  const auto running = [&] {
    for (int i = 0; i < 20; ++i) load.add(RequestClass::kInteractive, 16, 30);
    load.step();
    const uint32_t count = load.scheduler.stats().num_running;
    while (load.step()) {
    }
    return count;
  };
  CHECK(running() == 3);
  for (int i = 0; i < 10; ++i) running();
  CHECK(running() == 20);
  load.add(RequestClass::kBatch, 16, 30);
  for (int i = 0; i < 5; ++i) load.add(RequestClass::kBatch, 16, 30);
  load.step();
  CHECK(load.scheduler.stats().num_running == 3);
}

TEST_CASE("who yields is counted as outgrown only for one that had passed its reservation") {
  SchedulerConfig config = load_config();
  config.sequences_max = 4;
  Load load(config);
  for (int i = 0; i < 5; ++i) load.add(RequestClass::kBatch, 16, 100);
  load.step();
  for (int i = 0; i < 2; ++i) load.add(RequestClass::kInteractive, 16, 100);
  load.step();
  const EngineStats& stats = load.scheduler.stats();
  CHECK(stats.num_reclaims == 2);
  CHECK(stats.num_preemptions == 2);
  CHECK(stats.num_outgrown == 0);

  config.kv_pools = {{8, 16}};
  config.watermark = 0;
  config.reserve_output_tokens = 16;
  Load full(config);
  for (int i = 0; i < 4; ++i) full.add(RequestClass::kInteractive, 16, 60);
  while (full.step()) {
  }
  CHECK(full.scheduler.stats().num_preemptions > 0);
  CHECK(full.scheduler.stats().num_outgrown == full.scheduler.stats().num_preemptions);
}

TEST_CASE("nobody is overtaken more than 8 times by requests of his class that came later, whatever their sizes") {
  for (const uint64_t seed : {1, 2, 3}) {
    std::mt19937_64 random(seed);
    SchedulerConfig config = load_config();
    config.kv_pools = {{400, 16}};
    Load load(config);
    std::map<RequestId, uint32_t> waiting;  // times overtaken
    uint32_t most = 0;
    for (int step = 0; step < 6000; ++step) {
      if (random() % 12 == 0) {
        const auto request_class = static_cast<RequestClass>(random() % 3);
        const bool is_large = random() % 6 == 0;
        waiting[load.add(request_class, is_large ? 3000 : 1 + static_cast<uint32_t>(random() % 300),
                         1 + static_cast<uint32_t>(random() % 200))] = 0;
      }
      load.step();
      for (auto it = waiting.begin(); it != waiting.end();) {
        if (load.scheduler.state_of(it->first) == RequestState::kQueued) {
          ++it;
          continue;
        }
        for (auto& [id, times] : waiting)
          if (id < it->first && load.asked[id - 1].request_class == load.asked[it->first - 1].request_class &&
              load.scheduler.state_of(id) == RequestState::kQueued)
            most = std::max(most, ++times);
        it = waiting.erase(it);
      }
    }
    CHECK(most <= 8);
    CHECK(most >= 4);  // it does happen
    CHECK(load.scheduler.stats().num_preemptions > 0);
  }
}
