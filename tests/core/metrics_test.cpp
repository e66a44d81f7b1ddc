// Figures about load, each apart: quantiles in fixed memory, Little's law, and where every verdict of saturation begins
// and ends. Method: samples by hand, time by hand.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <random>

#include "core/metrics/engine_stats.h"
#include "core/metrics/latency_sketch.h"

using namespace llmrt;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

constexpr TimeNs kSecond = 1'000'000'000;

// Feeds a monitor a sample a second; a test changes `now` and `sample` as it likes.
struct Fed {
  SaturationMonitor monitor;
  SaturationSample sample;
  TimeNs now = 5 * kSecond;

  bool holds(Saturation which) const { return monitor.verdicts()[static_cast<size_t>(which)].is_raised; }
  double value(Saturation which) const { return monitor.verdicts()[static_cast<size_t>(which)].value; }
  // Calls `each` before every second's sample.
  template <typename Each>
  void run(int seconds, Each each) {
    for (int i = 0; i < seconds; ++i) {
      each();
      now += kSecond;
      monitor.sample(sample, now);
    }
  }
};

}  // namespace

TEST_CASE("a sketch's quantiles are within 1/32 of the sample of that rank") {
  const uint64_t seed = GENERATE(1, 2, 3);
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> times(std::log(20e6), 2.0);  // 20 ms, from microseconds to minutes
  LatencySketch sketch;
  std::vector<TimeNs> all;
  for (int i = 0; i < 5000; ++i) {
    all.push_back(std::clamp<TimeNs>(static_cast<TimeNs>(times(random)), 2000, 200 * kSecond));
    sketch.add(all.back());
  }
  std::ranges::sort(all);
  for (const double quantile : {0.001, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999}) {
    const auto rank = static_cast<size_t>(std::ceil(quantile * 5000));
    INFO("seed " << seed << ", quantile " << quantile);
    CHECK_THAT(*sketch.quantile_ms(quantile), WithinRel(static_cast<double>(all[rank - 1]) * 1e-6, 1.0 / 32));
  }
  CHECK(*sketch.quantile_ms(1) == static_cast<double>(all.back()) * 1e-6);
}

TEST_CASE("a sketch of nothing, of nonsense and of very long times") {
  LatencySketch sketch;
  CHECK_FALSE(sketch.quantile_ms(0.5).has_value());
  sketch.add(-5);
  CHECK(*sketch.quantile_ms(0.5) == 0);
  for (int i = 0; i < 10; ++i) sketch.add(1000 * kSecond);
  CHECK(*sketch.quantile_ms(0.5) == 1e6);
  CHECK(sketch.count() == 11);
  sketch.add(3600 * kSecond);
  CHECK_THAT(*sketch.quantile_ms(0.5), WithinRel(1e6, 1.0 / 32));  // not the one far beyond it
  LatencySketch beyond;
  for (int i = 0; i < 99; ++i) beyond.add(1000 * kSecond);
  beyond.add(int64_t{1} << 60);
  CHECK_THAT(*beyond.quantile_ms(0.5), WithinRel(1e6, 1.0 / 32));
  CHECK(*beyond.quantile_ms(1) == static_cast<double>(int64_t{1} << 60) * 1e-6);
  LatencySketch single;
  single.add(12'345'678);
  for (const double quantile : {0.0, 0.5, 0.99, 1.0}) CHECK(*single.quantile_ms(quantile) == 12.345678);
}

TEST_CASE("the load over time is exact, and Little's law follows") {
  InSystem load;
  load.arrive(1 * kSecond);
  load.arrive(3 * kSecond);
  CHECK_THAT(load.area_s(4 * kSecond), WithinAbs(2 * 1 + 1 * 2, 1e-9));
  load.depart(1 * kSecond, 5 * kSecond);
  load.depart(3 * kSecond, 6 * kSecond);
  CHECK_THAT(load.area_s(100 * kSecond), WithinAbs(4 + 3, 1e-9));
  CHECK_THAT(load.sojourn_s(), WithinAbs(7, 1e-9));
  CHECK(load.num() == 0);
  LittlesLaw law{.in_system = 6, .arrivals_per_s = 2, .time_in_system_s = 2.4};
  CHECK_THAT(*law.residual(), WithinAbs(0.2, 1e-9));
  CHECK_FALSE(LittlesLaw{}.residual().has_value());
}

TEST_CASE("requests that never leave show as a residual") {
  // 2 a second, each for 3 s; then half of them stay for ever.
  for (const bool leaks : {false, true}) {
    Fed fed;
    int second = 0;
    std::vector<TimeNs> there;
    fed.run(400, [&] {
      ++second;
      for (int i = 0; i < 2; ++i) {
        fed.sample.in_system.arrive(fed.now);
        if (!leaks || i == 0) there.push_back(fed.now);
      }
      while (!there.empty() && there.front() <= fed.now - 3 * kSecond) {
        fed.sample.in_system.depart(there.front(), fed.now);
        there.erase(there.begin());
      }
    });
    const auto residual = fed.monitor.littles_law().residual();
    REQUIRE(residual.has_value());
    if (leaks)
      CHECK(*residual > 0.9);
    else
      CHECK(*residual < 0.02);
  }
}

TEST_CASE("late tokens are a verdict when p95 was over its objective for five minutes, not before") {
  const bool first = GENERATE(true, false);
  const Saturation which = first ? Saturation::kTtftOverSlo : Saturation::kTpotOverSlo;
  Fed fed;
  const auto feed = [&](uint64_t num, uint64_t late) {
    return [&fed, first, num, late] {
      (first ? fed.sample.num_first_tokens : fed.sample.num_tpots) += num;
      (first ? fed.sample.num_first_tokens_late : fed.sample.num_tpots_late) += late;
    };
  };
  fed.run(120, feed(100, 5));  // 5 %: p95 is just in time
  CHECK_FALSE(fed.holds(which));
  CHECK_THAT(fed.value(which), WithinAbs(0.05, 1e-9));
  fed.run(290, feed(100, 6));
  CHECK_FALSE(fed.holds(which));
  fed.run(40, feed(100, 6));
  CHECK(fed.holds(which));
  // Nobody gets a token while somebody waits: not known to be better.
  fed.sample.in_system.arrive(fed.now);
  fed.sample.num_unanswered = 1;
  fed.run(120, [] {});
  CHECK(fed.holds(which));
  CHECK_THAT(fed.value(which), WithinAbs(0.06, 1e-9));
  // Who has the first token and decodes for long waits for the other figure alone.
  fed.sample.num_unanswered = 0;
  fed.run(30, [] {});
  CHECK(fed.holds(which) == !first);
  fed.run(70, feed(100, 0));
  CHECK_FALSE(fed.holds(which));
  // An interruption starts the five minutes again.
  fed.run(250, feed(100, 50));
  fed.run(70, feed(100, 0));
  fed.run(250, feed(100, 50));
  CHECK_FALSE(fed.holds(which));
}

TEST_CASE("free KV blocks are short below a tenth, over a bucket") {
  Fed fed;
  fed.sample.kv_free_share = 0.101;
  fed.run(30, [] {});
  CHECK_FALSE(fed.holds(Saturation::kKvShort));
  fed.sample.kv_free_share = 0.099;
  fed.run(25, [] {});
  CHECK(fed.holds(Saturation::kKvShort));
  // A moment of need is none.
  fed.sample.kv_free_share = 0.5;
  fed.run(25, [] {});
  int second = 0;
  fed.run(60, [&] { fed.sample.kv_free_share = ++second % 10 == 0 ? 0.01 : 0.5; });
  CHECK_FALSE(fed.holds(Saturation::kKvShort));
}

TEST_CASE("a queue that grows is a verdict, one that jumps or sways is none") {
  Fed fed;
  const auto admit = [&] { fed.sample.prompt_tokens += 1000; };
  fed.run(120, admit);
  CHECK_FALSE(fed.holds(Saturation::kQueueRising));
  fed.run(120, [&] {  // a tenth of what arrives is the limit
    admit();
    fed.sample.queue_tokens += 50;
  });
  CHECK_FALSE(fed.holds(Saturation::kQueueRising));
  fed.run(120, [&] {
    admit();
    fed.sample.queue_tokens += 200;
  });
  CHECK(fed.holds(Saturation::kQueueRising));
  fed.run(120, admit);  // as long as before, but it does not grow
  CHECK_FALSE(fed.holds(Saturation::kQueueRising));
  fed.sample.queue_tokens += 100'000;  // a burst, worked off
  bool held = false;
  fed.run(100, [&] {
    admit();
    fed.sample.queue_tokens -= 1000;
    held |= fed.holds(Saturation::kQueueRising);
  });
  CHECK_FALSE(held);
}

TEST_CASE("preemptions are a spike against the minutes before") {
  Fed fed;
  int second = 0;
  fed.run(60, [&] { fed.sample.num_preemptions += ++second % 10 == 0; });  // 6 a minute: few
  CHECK_FALSE(fed.holds(Saturation::kPreemptionSpike));
  fed.run(540, [&] { fed.sample.num_preemptions += ++second % 2; });  // 30 a minute: first a spike, then usual
  CHECK_FALSE(fed.holds(Saturation::kPreemptionSpike));
  fed.run(60, [&] { fed.sample.num_preemptions += 3; });  // 180
  CHECK(fed.holds(Saturation::kPreemptionSpike));
  fed.run(70, [] {});
  CHECK_FALSE(fed.holds(Saturation::kPreemptionSpike));
}

TEST_CASE("the hit rate drops against its own mean") {
  Fed fed;
  const auto ask = [&](uint64_t tokens, uint64_t hits) {
    return [&fed, tokens, hits] {
      fed.sample.prefix_queries += tokens;
      fed.sample.prefix_hits += hits;
    };
  };
  fed.run(300, ask(100, 60));
  CHECK_FALSE(fed.holds(Saturation::kHitRateDrop));
  CHECK_THAT(fed.monitor.recent_hit_rate(), WithinAbs(0.6, 1e-9));
  CHECK(fed.monitor.recent_host_hit_rate() == 0);
  fed.run(70, [&] {
    fed.sample.prefix_queries += 100;
    fed.sample.prefix_hits += 60;
    fed.sample.prefix_host_hits += 20;
  });
  CHECK_THAT(fed.monitor.recent_host_hit_rate(), WithinAbs(0.2, 1e-9));
  fed.run(70, ask(100, 35));
  CHECK_FALSE(fed.holds(Saturation::kHitRateDrop));
  fed.run(70, ask(100, 10));
  CHECK(fed.holds(Saturation::kHitRateDrop));
  fed.run(70, ask(1, 0));  // too few to tell
  CHECK_FALSE(fed.holds(Saturation::kHitRateDrop));
  // A cache that never found much does not lose it.
  Fed poor;
  poor.run(300, [&] {
    poor.sample.prefix_queries += 100;
    poor.sample.prefix_hits += 9;
  });
  poor.run(70, [&] { poor.sample.prefix_queries += 100; });
  CHECK_FALSE(poor.holds(Saturation::kHitRateDrop));
}

TEST_CASE("more in the system at no more arrivals is a verdict, with more arrivals it is none") {
  // Every second `arrivals` come; each stays for `stay` seconds.
  struct Row {
    int arrivals, stay;
    bool is_raised;
  };
  const Row row = GENERATE(Row{10, 4, false}, Row{10, 7, true}, Row{18, 4, false}, Row{10, 5, false});
  Fed fed;
  std::vector<std::pair<TimeNs, TimeNs>> there;  // end, arrival
  const auto serve = [&](int arrivals, int stay) {
    return [&, arrivals, stay] {
      for (int i = 0; i < arrivals; ++i) {
        fed.sample.in_system.arrive(fed.now);
        there.emplace_back(fed.now + stay * kSecond, fed.now);
      }
      std::erase_if(there, [&](const auto& entry) {
        if (entry.first > fed.now) return false;
        fed.sample.in_system.depart(entry.second, fed.now);
        return true;
      });
    };
  };
  fed.run(400, serve(10, 4));
  CHECK_FALSE(fed.holds(Saturation::kLoadRising));
  fed.run(75, serve(row.arrivals, row.stay));
  INFO(row.arrivals << " arrivals, " << row.stay << " s: " << fed.value(Saturation::kLoadRising));
  CHECK(fed.holds(Saturation::kLoadRising) == row.is_raised);
}

TEST_CASE("skew: one worker with twice the load of the others for a minute") {
  WorkerSkew skew;
  TimeNs now = 0;
  const auto run = [&](int seconds, std::vector<double> loads) {
    bool is_raised = false;
    for (int i = 0; i < seconds; ++i) is_raised = skew.sample(loads, now += kSecond).is_raised;
    return is_raised;
  };
  CHECK_FALSE(run(100, {10, 19, 10}));
  CHECK_FALSE(run(60, {10, 20, 10}));
  CHECK(run(10, {10, 20, 10}));
  CHECK_FALSE(run(1, {10, 15, 10}));
  CHECK_FALSE(run(50, {0, 5}));
  CHECK(run(20, {0, 5}));
  CHECK_FALSE(run(100, {0, 0}));
  CHECK_FALSE(run(100, {50}));  // alone
  CHECK_FALSE(run(100, {}));
}

TEST_CASE("every verdict has a name and a text of its own") {
  std::vector<std::string> names;
  for (size_t i = 0; i < kNumSaturations; ++i) {
    names.emplace_back(saturation_name(static_cast<Saturation>(i)));
    names.emplace_back(saturation_text(static_cast<Saturation>(i)));
  }
  std::ranges::sort(names);
  CHECK(std::ranges::adjacent_find(names) == names.end());
}
