// What each device says of a list before it runs it: its program as text, and the arena that it needs. Method: a gated
// feed-forward layer of one matmul and the activation of its result, which every GPU backend runs as one; an op between
// the two must show as a lost pattern.
#include <catch2/catch_test_macros.hpp>
#include <sstream>

#include "tests/ops/op_harness.h"
#include "tests/ops/test_devices.h"

namespace llmrt::optest {
namespace {

constexpr uint32_t kColumns = 256, kRows = 8;

// With `apart`, a sum of the matmul's result stands between it and the activation.
OpList gated_list(WeightGroupId group, DType activation, bool apart) {
  OpList list{"forward", kRows, 0, {}, {}};
  const auto add = [&](const char* name, uint32_t columns, DType dtype, Storage storage) {
    return list.add_tensor({name, Rows::kTokens, columns, dtype, storage});
  };
  const TensorId x = add("x", kColumns, activation, Storage::kPinned);
  const TensorId both = add("both", 2 * kColumns, DType::kF32, Storage::kArena);
  const TensorId activated = add("activated", kColumns, activation, Storage::kPinned);
  list.ops = {Matmul{x, group, both}};
  TensorId read = both;
  if (apart) {
    read = add("summed", 2 * kColumns, DType::kF32, Storage::kArena);
    list.ops.emplace_back(Add{both, both, read});
  }
  list.ops.emplace_back(GatedActivation{read, Activation::kSilu, activated});
  return list;
}

// Weights of the matmul.
Suite gated_weights(WeightGroupId* group) {
  auto rng = test_rng("explain");
  Suite suite;
  *group = suite.add_group({suite.add_weight(Encoding::kQ8_0, 2 * kColumns, kColumns, rng)}, false, rng);
  return suite;
}

// A suite whose state fits the list, and no larger one.
Suite suite_of(const OpList& list, const Suite& weights) {
  Suite suite = weights;
  Step step;
  step.add_row(0, 0, kRows);
  step.forward = list;
  suite.cases.emplace_back();
  suite.cases[0].steps = {step};
  return suite;
}

std::vector<std::string> devices_with_kernels() {
  std::vector<std::string> devices;
  for (const std::string& device : test_devices())
    if (!device.starts_with("reference")) devices.push_back(device);  // whose program is the list
  return devices;
}

DType activation_of(const std::string& device) {
  auto opened = open_test_device(device);
  REQUIRE(opened.ok());
  return (*opened)->caps().activation_dtype;
}

// Launches of the step in a program's text.
int count_launches(const std::string& text, const std::string& step) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);)
    count += !line.starts_with("lost") && line.find(" " + step + ": ") != std::string::npos;
  return count;
}

std::unique_ptr<Backend> open(const std::string& device, const Suite& suite, uint64_t arena_bytes_less = 0) {
  auto opened = open_test_device(device);
  INFO(device << ": " << (opened ? "" : opened.error().message));
  REQUIRE(opened.ok());
  StateConfig config = state_config(suite, **opened);
  config.arena_bytes -= arena_bytes_less;
  REQUIRE((*opened)->load_weights(suite.weights, {}).ok());
  REQUIRE((*opened)->create_state(config).ok());
  return *std::move(opened);
}

}  // namespace

TEST_CASE("a device prints its program, and the pattern that an op in its way loses", "[explain]") {
  const auto devices = devices_with_kernels();
  if (devices.empty()) SKIP("no device");
  WeightGroupId group;
  const Suite weights = gated_weights(&group);
  for (const std::string& device : devices) {
    for (const bool apart : {false, true}) {
      const OpList list = gated_list(group, activation_of(device), apart);
      const auto backend = open(device, suite_of(list, weights));
      const Result<std::string> text = backend->explain(list);
      REQUIRE(text.ok());
      INFO(device << "\n" << *text);
      CHECK(text->starts_with("forward"));
      CHECK(count_launches(*text, "gated_matmul") == (apart ? 0 : 1));
      CHECK(count_launches(*text, "matmul") == (apart ? 1 : 0));
      CHECK(count_launches(*text, "gated_activation") == (apart ? 1 : 0));
      const size_t lost = text->find("\nlost");
      CHECK((lost != std::string::npos) == apart);
      if (!apart) continue;
      const std::string line = text->substr(lost + 1, text->find('\n', lost + 1) - lost - 1);
      CHECK(line.find("gated_matmul") != std::string::npos);
      CHECK(line.find("stands between") != std::string::npos);
    }
  }
}

TEST_CASE("a device says why a list has no program", "[explain]") {
  const auto devices = devices_with_kernels();
  if (devices.empty()) SKIP("no device");
  WeightGroupId group;
  const Suite weights = gated_weights(&group);
  for (const std::string& device : devices) {
    const OpList list = gated_list(group, activation_of(device), false);
    const auto backend = open(device, suite_of(list, weights));
    OpList routed = list;
    routed.routed_per_row = 2;
    routed.tensors[0].rows = Rows::kRouted;
    const Result<std::string> text = backend->explain(routed);
    REQUIRE_FALSE(text.ok());
    CHECK(text.error().code == ErrorCode::kUnsupported);
    CHECK(text.error().message.find("tensor x") != std::string::npos);
  }
}

TEST_CASE("the arena that a device asks for holds the list, and a smaller one does not", "[explain]") {
  const auto devices = devices_with_kernels();
  if (devices.empty()) SKIP("no device");
  WeightGroupId group;
  const Suite weights = gated_weights(&group);
  for (const std::string& device : devices) {
    for (const bool apart : {false, true}) {
      const OpList list = gated_list(group, activation_of(device), apart);
      const Suite suite = suite_of(list, weights);
      INFO(device << "\n" << print(list));
      CHECK(open(device, suite)->prepare(SealedList(list)).ok());
      CHECK_FALSE(open(device, suite, 1)->prepare(SealedList(list)).ok());
    }
  }
}

}  // namespace llmrt::optest
