// Programs that a device keeps for lists that it has run: an equal list gets them again, and never those that were made
// before weights or state came anew. Method: one list over weights that change their encoding, which no key shows.
#include <catch2/catch_test_macros.hpp>
#include <utility>

#include "tests/ops/op_harness.h"
#include "tests/ops/test_devices.h"
#include "tests/reference/backend.h"

namespace llmrt::optest {
namespace {

Suite suite_of(Encoding encoding, const Step& step) {
  auto rng = test_rng("sealed list");
  Suite suite;
  suite.add_group({suite.add_weight(encoding, 64, 64, rng)}, false, rng);
  suite.cases.emplace_back();
  suite.cases[0].steps = {step};
  return suite;
}

Outcome expected_of(const Suite& suite) {
  const auto reference = make_reference_backend();
  REQUIRE(reference->load_weights(suite.weights, {}).ok());
  REQUIRE(reference->create_state(state_config(suite, *reference)).ok());
  auto outcome = execute(*reference, suite.cases[0]);
  REQUIRE(outcome.ok());
  return *std::move(outcome);
}

}  // namespace

TEST_CASE("a list that has run before runs with what is loaded now", "[sealed_list]") {
  const auto devices = test_devices();
  if (devices.empty()) SKIP("no device");
  auto rng = test_rng("sealed list");
  Step step;
  step.add_row(0, 0, 4);
  const TensorId x = step.input(Rows::kTokens, "x", 64, DType::kF32, random_normal(rng, 4 * 64));
  const TensorId out = step.output(Rows::kTokens, "out", 64, DType::kF32, Tolerance::kMatmul);
  step.forward.ops = {Matmul{x, 0, out}};
  const Suite suites[] = {suite_of(Encoding::kQ8_0, step), suite_of(Encoding::kF16, step)};
  const Outcome expected[] = {expected_of(suites[0]), expected_of(suites[1])};
  for (const std::string& device : devices) {
    auto opened = open_test_device(device);
    INFO(device << ": " << (opened ? "" : opened.error().message));
    REQUIRE(opened.ok());
    Backend& backend = **opened;
    bool has_state = false;
    for (const size_t i : {0, 1, 0}) {
      const Suite& suite = suites[i];
      REQUIRE(backend.load_weights(suite.weights, {}).ok());
      for (const bool with_new_state : {false, true}) {
        if (with_new_state || !std::exchange(has_state, true))
          REQUIRE(backend.create_state(state_config(suite, backend)).ok());
        for (int again = 0; again < 2; ++again) {
          const auto outcome = execute(backend, suite.cases[0]);
          INFO((outcome ? "" : outcome.error().message));
          REQUIRE(outcome.ok());
          CHECK(compare(suite.cases[0], expected[i], *outcome, backend.caps()).empty());
        }
      }
    }
  }
}

}  // namespace llmrt::optest
