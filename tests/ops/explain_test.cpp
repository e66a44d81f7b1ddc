// What each device says of a list before it runs it: its program as text, and the arena that it needs. Method: a gated
// feed-forward layer of one matmul and the activation of its result, which every GPU backend runs as one; an op between
// the two must show as a lost pattern.
#include <catch2/catch_test_macros.hpp>
#include <functional>
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

// Launches of the step in a program's text.
int count_launches(const std::string& text, const std::string& step) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);)
    count += !line.starts_with("lost") && line.find(" " + step + ": ") != std::string::npos;
  return count;
}

// The list of one device, and its weights.
struct Gated {
  std::string device;
  Suite weights;
  WeightGroupId group = 0;
  DType activation = DType::kF32;

  OpList list(bool apart) const { return gated_list(group, activation, apart); }
  std::unique_ptr<Backend> open(const OpList& list, uint64_t arena_bytes_less = 0) const {
    auto opened = open_test_device(device);
    REQUIRE(opened.ok());
    const Suite suite = suite_of(list, weights);
    StateConfig config = state_config(suite, **opened);
    config.arena_bytes -= arena_bytes_less;
    REQUIRE((*opened)->load_weights(suite.weights, {}).ok());
    REQUIRE((*opened)->create_state(config).ok());
    return *std::move(opened);
  }
};

// Every device whose program is not the list itself.
void each_device(const std::function<void(const Gated&)>& check) {
  auto rng = test_rng("explain");
  Gated gated;
  Suite& weights = gated.weights;
  gated.group = weights.add_group({weights.add_weight(Encoding::kQ8_0, 2 * kColumns, kColumns, rng)}, false, rng);
  bool has_any = false;
  for (const std::string& device : test_devices()) {
    if (device.starts_with("reference")) continue;
    has_any = true;
    const auto opened = open_test_device(device);
    INFO(device << ": " << (opened ? "" : opened.error().message));
    REQUIRE(opened.ok());
    gated.device = device;
    gated.activation = (*opened)->caps().activation_dtype;
    check(gated);
  }
  if (!has_any) SKIP("no device");
}

}  // namespace

TEST_CASE("a device prints its program, and the pattern that an op in its way loses", "[explain]") {
  each_device([](const Gated& gated) {
    for (const bool apart : {false, true}) {
      const OpList list = gated.list(apart);
      const auto backend = gated.open(list);
      const Result<std::string> text = backend->explain(list);
      REQUIRE(text.ok());
      INFO(gated.device << "\n" << *text);
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
  });
}

TEST_CASE("a device prints the launches of adapters, and what they keep apart", "[explain][adapters]") {
  each_device([](const Gated& gated) {
    OpList list = gated.list(false);
    const Matmul matmul = std::get<Matmul>(list.ops[0]);
    const TensorId y = list.add_tensor({"y", Rows::kTokens, 16, DType::kF32, Storage::kArena});
    list.ops.insert(list.ops.begin() + 1,
                    {AdapterShrink{matmul.x, gated.group, y}, AdapterExpand{y, gated.group, matmul.out}});
    const auto backend = gated.open(list);
    REQUIRE(backend->create_adapter_pool({.bytes = 1 << 16, .slots_max = 2}).ok());
    const Result<std::string> text = backend->explain(list);
    REQUIRE(text.ok());
    INFO(gated.device << "\n" << *text);
    CHECK(count_launches(*text, "gated_matmul") == 0);
    CHECK(count_launches(*text, "adapter_shrink") == 1);
    CHECK(count_launches(*text, "adapter_expand") == 1);
    const size_t lost = text->find("\nlost");
    REQUIRE(lost != std::string::npos);
    const std::string line = text->substr(lost + 1, text->find('\n', lost + 1) - lost - 1);
    CHECK(line.find("gated_matmul") != std::string::npos);
    CHECK(line.find("adapter_expand") != std::string::npos);
  });
}

TEST_CASE("a device says why a list has no program", "[explain]") {
  each_device([](const Gated& gated) {
    const OpList list = gated.list(false);
    const auto backend = gated.open(list);
    OpList routed = list;
    routed.routed_per_row = 2;
    routed.tensors[0].rows = Rows::kRouted;
    const Result<std::string> text = backend->explain(routed);
    REQUIRE_FALSE(text.ok());
    CHECK(text.error().code == ErrorCode::kUnsupported);
    CHECK(text.error().message.find("tensor x") != std::string::npos);
  });
}

TEST_CASE("the arena that a device asks for holds the list, and a smaller one does not", "[explain]") {
  each_device([](const Gated& gated) {
    for (const bool apart : {false, true}) {
      const OpList list = gated.list(apart);
      INFO(gated.device << "\n" << print(list));
      CHECK(gated.open(list)->prepare(SealedList(list)).ok());
      CHECK_FALSE(gated.open(list, 1)->prepare(SealedList(list)).ok());
    }
  });
}

}  // namespace llmrt::optest
