// Allocation failure: sizes that no device has are typed errors, and what worked before still works afterwards.
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"
#include "tests/ops/test_devices.h"

namespace llmrt::optest {
namespace {

bool is_typed(const Status& status) {
  return !status &&
         (status.error().code == ErrorCode::kOutOfMemory || status.error().code == ErrorCode::kMissingFeature ||
          status.error().code == ErrorCode::kUnsupported);
}

}  // namespace

TEST_CASE("a pool or a state that no device can hold is a typed error and harms nothing", "[allocation]") {
  const auto devices = test_devices();
  if (devices.empty()) SKIP("no device");
  auto rng = test_rng("allocation");
  Suite suite;
  const WeightGroupId group = suite.add_group({suite.add_weight(Encoding::kQ8_0, 64, 64, rng)}, false, rng);
  Step step;
  step.add_row(0, 0, 4);
  const TensorId x = step.input(Rows::kTokens, "x", 64, DType::kF32, random_normal(rng, 4 * 64));
  const TensorId out = step.output(Rows::kTokens, "out", 64, DType::kF32, Tolerance::kMatmul);
  step.forward.ops = {Matmul{x, group, out}};
  suite.cases = {{}};
  suite.cases[0].steps = {step};
  suite.cases[0].groups = {{2, 2, 64, 16, 8, KvDType::kF16}};

  for (const std::string& device : devices) {
    if (device.starts_with("reference")) continue;  // it allocates from the host like any program
    auto opened = open_test_device(device);
    INFO(device << ": " << (opened ? "" : opened.error().message));
    REQUIRE(opened.ok());
    Backend& backend = **opened;
    REQUIRE(backend.load_weights(suite.weights, {}).ok());
    StateConfig huge = state_config(suite, backend);
    huge.arena_bytes = 1ull << 50;
    const Status state = backend.create_state(huge);
    INFO("state: " << (state ? "no error" : state.error().message));
    CHECK(is_typed(state));
    REQUIRE(backend.create_state(state_config(suite, backend)).ok());

    // 2^28 blocks of 32 heads: a pebibyte over 64 layers.
    const KvGroup group_huge{64, 32, 128, 16, 1u << 28, KvDType::kF16};
    const Status pools = backend.create_kv_pools(std::span(&group_huge, 1));
    INFO("pool: " << (pools ? "no error" : pools.error().message));
    CHECK(is_typed(pools));

    const auto outcome = execute(backend, suite.cases[0]);
    INFO((outcome ? "" : outcome.error().message));
    CHECK(outcome.ok());
  }
}

}  // namespace llmrt::optest
