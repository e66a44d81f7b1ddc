// Verdicts of saturation in simulated services: a healthy one raises none, and a script of everything that goes wrong
// raises each of them where it should. Method: load_sim.h; times are simulated, an hour takes seconds.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "tests/sim/load_sim.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kInstrumented = true;  // twenty times slower
#else
constexpr bool kInstrumented = false;
#endif

constexpr std::array kAll = {Saturation::kTtftOverSlo, Saturation::kTpotOverSlo,     Saturation::kKvShort,
                             Saturation::kQueueRising, Saturation::kPreemptionSpike, Saturation::kHitRateDrop,
                             Saturation::kLoadRising,  Saturation::kWorkerSkew};
static_assert(kAll.size() == kNumSaturations);

// When each verdict was first raised in a phase, and when its figure first passed the limit; below 0 = never.
struct Seen {
  std::array<double, kNumSaturations> raised_s, over_s;
  Seen() {
    raised_s.fill(-1);
    over_s.fill(-1);
  }
  double raised(Saturation which) const { return raised_s[static_cast<size_t>(which)]; }
  double over(Saturation which) const { return over_s[static_cast<size_t>(which)]; }
};

Seen watch(LoadSim& sim, const LoadPhase& phase) {
  Seen seen;
  const double begin_s = sim.now_s();
  sim.run(phase, [&](double now_s) {
    for (const Saturation which : kAll) {
      const auto i = static_cast<size_t>(which);
      const SaturationVerdict& verdict = sim.verdict(which);
      if (verdict.is_raised && seen.raised_s[i] < 0) seen.raised_s[i] = now_s - begin_s;
      if (verdict.limit > 0 && verdict.value > verdict.limit && seen.over_s[i] < 0) seen.over_s[i] = now_s - begin_s;
    }
  });
  return seen;
}

void check_calm(const Seen& seen) {
  for (const Saturation which : kAll) {
    INFO(saturation_name(which) << " raised after " << seen.raised(which) << " s");
    CHECK(seen.raised(which) < 0);
  }
}

}  // namespace

TEST_CASE("a healthy service raises no verdict, and Little's law holds within 5 % over a stable window") {
  const int seed = GENERATE(range(1, kInstrumented ? 2 : 4));
  INFO("seed " << seed);
  LoadSim sim(static_cast<uint64_t>(seed), 2);
  check_calm(watch(sim, {.seconds = 600}));
  double worst = 0;
  uint64_t num_looks = 0;
  sim.run({.seconds = 900}, [&](double) {
    for (const Saturation which : kAll) CHECK_FALSE(sim.verdict(which).is_raised);
    const auto residual = sim.stats(0).littles_law.residual();
    REQUIRE(residual.has_value());
    worst = std::max(worst, *residual);
    ++num_looks;
  });
  const LittlesLaw law = sim.stats(0).littles_law;
  INFO("L " << law.in_system << ", lambda " << law.arrivals_per_s << " /s, W " << law.time_in_system_s << " s, worst "
            << worst);
  CHECK(num_looks > 800);
  CHECK(worst <= 0.05);
  CHECK(law.in_system > 2);
  CHECK(std::abs(law.arrivals_per_s - 3) < 0.5);
}

TEST_CASE("a script of troubles raises each verdict, and load that rises warns before p95 does") {
  if (kInstrumented) SKIP("three simulated hours: run without a sanitizer");
  const LoadPhase healthy{.seconds = 660};
  LoadSim sim(7, 2);
  std::array<bool, kNumSaturations> raised = {};
  const auto expect = [&](const Seen& seen, Saturation which) {
    INFO(saturation_name(which) << " at second " << sim.now_s());
    CHECK(seen.raised(which) >= 0);
    raised[static_cast<size_t>(which)] = true;
  };
  check_calm(watch(sim, healthy));

  const Seen cold = watch(sim, {.seconds = 120, .shared_share = 0});
  expect(cold, Saturation::kHitRateDrop);
  CHECK(cold.raised(Saturation::kQueueRising) < 0);
  watch(sim, healthy);

  const Seen skewed = watch(sim, {.seconds = 150, .arrivals_per_s = 1.5, .all_to_first = true});
  expect(skewed, Saturation::kWorkerSkew);
  CHECK(skewed.raised(Saturation::kWorkerSkew) >= 60);
  watch(sim, healthy);

  // Steps get slower and slower at the same arrivals, in the end too slow for them.
  const Seen slow = watch(sim, {.seconds = 900, .slow_to = 6});
  expect(slow, Saturation::kLoadRising);
  expect(slow, Saturation::kQueueRising);
  expect(slow, Saturation::kTtftOverSlo);
  expect(slow, Saturation::kTpotOverSlo);
  INFO("load_rising at " << slow.raised(Saturation::kLoadRising) << " s, p95 of TTFT over its SLO at "
                         << slow.over(Saturation::kTtftOverSlo) << " s, of TPOT at "
                         << slow.over(Saturation::kTpotOverSlo) << " s");
  CHECK(slow.raised(Saturation::kLoadRising) < slow.over(Saturation::kTtftOverSlo));
  CHECK(slow.raised(Saturation::kLoadRising) < slow.over(Saturation::kTpotOverSlo));
  // "For 5 minutes": not at once.
  CHECK(slow.raised(Saturation::kTpotOverSlo) >= slow.over(Saturation::kTpotOverSlo) + 290);
  watch(sim, healthy);

  const Seen longer = watch(sim, {.seconds = 240, .arrivals_per_s = 1, .output_tokens = 240});
  expect(longer, Saturation::kKvShort);
  expect(longer, Saturation::kPreemptionSpike);

  for (const Saturation which : kAll) {
    INFO(saturation_name(which));
    CHECK(raised[static_cast<size_t>(which)]);
  }
  CHECK(sim.num_finished() > 10000);
  // All of it passes, once the requests that have piled up are served.
  watch(sim, healthy);
  watch(sim, healthy);
  check_calm(watch(sim, {.seconds = 600}));
}
