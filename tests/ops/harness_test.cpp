// The harness itself: devices that do one thing wrong must be caught, or every green op test says nothing.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>

#include "core/backend/forwarding.h"
#include "tests/ops/op_harness.h"
#include "tests/reference/backend.h"

namespace llmrt::optest {
namespace {

enum class Fault { kNone, kOneNumber, kSmallNoise, kNan, kGuard, kInput, kUnwritten, kKv, kKvOutside };

// The reference, with its answers spoiled on the way out.
class FaultyBackend final : public ForwardingBackend {
 public:
  explicit FaultyBackend(Fault fault) : ForwardingBackend(make_reference_backend()), fault_(fault) {}

  Status write_tensor(const SealedList& list, TensorId id, std::span<const std::byte> bytes) override {
    before_.assign(bytes.begin(), bytes.end());
    return inner().write_tensor(list, id, bytes);
  }
  Status read_tensor(const SealedList& sealed, TensorId id, std::span<std::byte> bytes) override {
    const Status status = inner().read_tensor(sealed, id, bytes);
    const std::string& name = sealed.list.tensors[static_cast<size_t>(id)].name;
    if (fault_ == Fault::kGuard && name == "out.guard") bytes[0] ^= std::byte{1};
    if (fault_ == Fault::kInput && name == "x") bytes[0] ^= std::byte{1};
    if (name != "out") return status;
    auto* numbers = reinterpret_cast<float*>(bytes.data());
    if (fault_ == Fault::kOneNumber) numbers[7] += 0.01f;
    if (fault_ == Fault::kNan) numbers[7] = NAN;
    if (fault_ == Fault::kSmallNoise)
      for (size_t i = 0; i < bytes.size() / 4; ++i) numbers[i] *= i % 2 ? 1.0001f : 0.9999f;
    if (fault_ == Fault::kUnwritten) std::memset(bytes.data() + bytes.size() / 4, 0x7f, 4);
    return status;
  }
  Status write_kv(uint32_t g, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) override {
    return inner().write_kv(g, layer, block, bytes);
  }
  Status read_kv(uint32_t g, uint32_t layer, uint32_t block, std::span<std::byte> bytes) override {
    const Status status = inner().read_kv(g, layer, block, bytes);
    // Block 0 is written at offset 3 by the case below, everything else is not.
    if (fault_ == Fault::kKv && block == 0) bytes[3 * 64 * 2] ^= std::byte{4};
    if (fault_ == Fault::kKvOutside && block == 0) bytes[4 * 64 * 2] ^= std::byte{1};
    return status;
  }

 private:
  Fault fault_;
  std::vector<std::byte> before_;
};

std::vector<std::string> failures_of(const Suite& suite, Fault fault) {
  auto good = make_reference_backend();
  FaultyBackend bad(fault);
  for (Backend* backend : {good.get(), static_cast<Backend*>(&bad)}) {
    REQUIRE(backend->load_weights(suite.weights, {}).ok());
    REQUIRE(backend->create_state(state_config(suite, *backend)).ok());
  }
  const auto expected = execute(*good, suite.cases[0]), actual = execute(bad, suite.cases[0]);
  REQUIRE(expected.ok());
  REQUIRE(actual.ok());
  return compare(suite.cases[0], *expected, *actual, Caps{});
}

}  // namespace

TEST_CASE("the harness sees a wrong number, noise, NaN, and writes outside", "[harness]") {
  auto rng = test_rng("harness");
  Suite suite;
  const WeightGroupId group = suite.add_group({suite.add_weight(Encoding::kQ8_0, 40, 64, rng)}, false, rng);
  Step step;
  step.add_row(0, 0, 3);
  step.set_bucket(4);
  const TensorId x = step.input(Rows::kTokens, "x", 64, DType::kF32, random_normal(rng, 3 * 64));
  const TensorId out = step.output(Rows::kTokens, "out", 40, DType::kF32, Tolerance::kMatmul);
  step.forward.ops = {Matmul{x, group, out}};
  suite.cases = {{}};
  suite.cases[0].steps = {step};

  CHECK(failures_of(suite, Fault::kNone).empty());
  for (Fault fault :
       {Fault::kOneNumber, Fault::kSmallNoise, Fault::kNan, Fault::kGuard, Fault::kInput, Fault::kUnwritten}) {
    INFO("fault " << static_cast<int>(fault));
    CHECK(failures_of(suite, fault).size() == 1);
  }
}

TEST_CASE("the harness sees a wrong KV number and one outside the slots", "[harness]") {
  auto rng = test_rng("harness kv");
  const KvGroup kv{1, 1, 64, 16, 2, KvDType::kF16};
  Step step;
  step.add_row(0, 0, 1);
  const TensorId qkv = step.input(Rows::kTokens, "qkv", 192, DType::kF32, random_normal(rng, 192));
  const TensorId slots = step.input(Rows::kTokens, "kv_slots", 1, DType::kI32, {3});
  step.forward.ops = {KvWrite{qkv, slots, 0, 0, 1, 1, 64}};
  Suite suite;
  suite.cases = {{}};
  suite.cases[0].steps = {step};
  suite.cases[0].groups = {kv};
  suite.cases[0].kv = {random_kv(kv, rng)};
  CHECK(failures_of(suite, Fault::kNone).empty());
  CHECK(failures_of(suite, Fault::kKv).size() == 1);
  CHECK(failures_of(suite, Fault::kKvOutside).size() == 1);
}

}  // namespace llmrt::optest
