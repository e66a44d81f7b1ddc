// What a device has no kernel for is refused when it is prepared or made, by name.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"
#include "tests/ops/test_devices.h"

namespace llmrt::optest {

TEST_CASE("a device refuses routed rows by name", "[refusals]") {
  const auto devices = test_devices();
  auto rng = test_rng("routed");
  Suite suite;
  const WeightGroupId group = suite.add_group({suite.add_weight(Encoding::kQ8_0, 64, 64, rng)}, false, rng);
  Step step;
  step.add_row(0, 0, 4);
  step.forward.routed_per_row = 2;
  const TensorId x = step.forward.add_tensor({"x", Rows::kRouted, 64, DType::kF32, Storage::kPinned});
  const TensorId out = step.forward.add_tensor({"out", Rows::kRouted, 64, DType::kF32, Storage::kPinned});
  step.forward.ops = {Matmul{x, group, out}};
  suite.cases = {{}};
  suite.cases[0].steps = {step};
  uint32_t num_tried = 0;
  for (const std::string& device : devices) {
    if (device.starts_with("reference")) continue;  // plain loops take any rows
    auto opened = open_test_device(device);
    INFO(device << ": " << (opened ? "" : opened.error().message));
    REQUIRE(opened.ok());
    REQUIRE((*opened)->load_weights(suite.weights, {}).ok());
    REQUIRE((*opened)->create_state(state_config(suite, **opened)).ok());
    const Status prepared = (*opened)->prepare(SealedList(step.forward));
    REQUIRE_FALSE(prepared.ok());
    CHECK(prepared.error().code == ErrorCode::kUnsupported);
    CHECK(prepared.error().message.find("tensor x: expected rows of tokens or of samples") != std::string::npos);
    ++num_tried;
  }
  if (num_tried == 0) SKIP("no device");
}

// Devices that execute running_sum have other tests.
TEST_CASE("a device without the op refuses running_sum and pools of states by name", "[refusals][running_sum]") {
  Suite suite;
  Step step;
  step.add_row(0, 0, 4);
  const TensorId x = step.forward.add_tensor({"x", Rows::kTokens, 64, DType::kF32, Storage::kPinned});
  const TensorId out = step.forward.add_tensor({"out", Rows::kTokens, 64, DType::kF32, Storage::kPinned});
  step.forward.ops = {RunningSum{x, 0, 0, out}};
  suite.cases = {{}};
  suite.cases[0].steps = {step};
  const KvGroup states{.num_layers = 1, .num_blocks = 4, .state_columns = 64};
  uint32_t num_tried = 0;
  for (const std::string& device : test_devices()) {
    auto opened = open_test_device(device);
    INFO(device << ": " << (opened ? "" : opened.error().message));
    REQUIRE(opened.ok());
    if (!std::ranges::count((*opened)->unsupported(), "running_sum")) continue;
    REQUIRE((*opened)->load_weights(suite.weights, {}).ok());
    REQUIRE((*opened)->create_state(state_config(suite, **opened)).ok());
    const Status prepared = (*opened)->prepare(SealedList(step.forward));
    REQUIRE_FALSE(prepared.ok());
    CHECK(prepared.error().code == ErrorCode::kUnsupported);
    CHECK(prepared.error().message.find("running_sum") != std::string::npos);
    // Pools of states are there for ops that have one.
    const Status pools = (*opened)->create_kv_pools({&states, 1});
    ++num_tried;
    if (!std::ranges::count((*opened)->unsupported(), "gated_delta")) {
      CHECK(pools.ok());
      continue;
    }
    REQUIRE_FALSE(pools.ok());
    CHECK(pools.error().code == ErrorCode::kUnsupported);
    CHECK(pools.error().message.find("states") != std::string::npos);
  }
  if (num_tried == 0) SKIP("no device without it");
}

}  // namespace llmrt::optest
