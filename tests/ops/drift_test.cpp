// Whether the state of a row that decodes for long drifts: one token a step, over thousands of steps, against the same
// recurrence in double. States decay slowly here, so an error stays for up to hundreds of tokens. What the error
// is of the last 1,000 tokens must not be above three times what it was of the first 1,000.
//
// LLMRT_DRIFT_TOKENS=100000 ops_test "[drift]" prints the errors of the whole length (docs/kernels/recurrent.md).
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "tests/ops/op_harness.h"
#include "tests/ops/test_devices.h"

namespace llmrt::optest {
namespace {

constexpr uint32_t kHeads = 4, kKeys = 32, kValues = 24, kKeyHeads = 2, kWindow = 1000, kBatch = 200, kSeed = 1;
constexpr float kDriftEps = 1e-6f;

using Row = std::vector<double>;

double softplus_of(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}
double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
}

struct Walk {
  std::vector<float> a, dt_bias;  // by head
  Row state = Row(kHeads * kKeys * kValues);

  // S = decay S, then S += key value^T, where the delta rule takes from the value what S has for the key.
  Row advance(double decay, uint32_t head, const double* key, Row value, const double* query, const double* beta) {
    double* own = state.data() + size_t{head} * kKeys * kValues;
    Row out(kValues);
    for (uint32_t v = 0; v < kValues; ++v) {
      double known = 0;
      for (uint32_t k = 0; k < kKeys; ++k) known += (own[k * kValues + v] *= decay) * key[k];
      if (beta) value[v] = *beta * (value[v] - known);
      for (uint32_t k = 0; k < kKeys; ++k) out[v] += (own[k * kValues + v] += key[k] * value[v]) * query[k];
    }
    return out;
  }
};

Row normalised(const double* numbers) {
  double sum = 0;
  for (uint32_t i = 0; i < kKeys; ++i) sum += numbers[i] * numbers[i];
  Row unit(numbers, numbers + kKeys);
  for (double& x : unit) x /= std::sqrt(sum + static_cast<double>(kDriftEps));
  return unit;
}

// q, k, v; alpha; beta.
constexpr uint32_t kDeltaColumns = 2 * kKeyHeads * kKeys + kHeads * kValues + 2 * kHeads;
Row delta_token(Walk& walk, const Row& in) {
  const double *q = in.data(), *k = q + kKeyHeads * kKeys, *v = k + kKeyHeads * kKeys, *alpha = v + kHeads * kValues;
  Row out;
  for (uint32_t h = 0; h < kHeads; ++h) {
    const uint32_t key_head = h / (kHeads / kKeyHeads);
    const double decay = std::exp(static_cast<double>(walk.a[h]) * softplus_of(alpha[h] + walk.dt_bias[h]));
    const double beta = sigmoid_of(alpha[kHeads + h]);
    const Row key = normalised(k + key_head * kKeys), query = normalised(q + key_head * kKeys);
    const Row head =
        walk.advance(decay, h, key.data(), Row(v + h * kValues, v + (h + 1) * kValues), query.data(), &beta);
    out.insert(out.end(), head.begin(), head.end());
  }
  return out;
}
Op delta_op(WeightId a, WeightId dt_bias, TensorId in, const StatePart& state, TensorId out) {
  const uint32_t alpha = 2 * kKeyHeads * kKeys + kHeads * kValues;
  return GatedDelta{{in, 0}, {in, alpha}, {in, alpha + kHeads},   a,     dt_bias, kKeyHeads, kHeads,
                    kKeys,   kValues,     KeyHeadOrder::kDivided, false, true,    kDriftEps, 1,
                    state,   out};
}

// x, b, c, dt.
constexpr uint32_t kScanColumns = kHeads * kValues + 2 * kKeyHeads * kKeys + kHeads;
Row scan_token(Walk& walk, const Row& in) {
  const double *x = in.data(), *b = x + kHeads * kValues, *c = b + kKeyHeads * kKeys, *dts = c + kKeyHeads * kKeys;
  Row out;
  for (uint32_t h = 0; h < kHeads; ++h) {
    const uint32_t group = h / (kHeads / kKeyHeads);
    const double dt = softplus_of(dts[h] + walk.dt_bias[h]);
    Row value(x + h * kValues, x + (h + 1) * kValues);
    for (double& number : value) number *= dt;
    const Row head = walk.advance(std::exp(static_cast<double>(walk.a[h]) * dt), h, b + group * kKeys, value,
                                  c + group * kKeys, nullptr);
    out.insert(out.end(), head.begin(), head.end());
  }
  return out;
}
Op scan_op(WeightId a, WeightId dt_bias, TensorId in, const StatePart& state, TensorId out) {
  const uint32_t b = kHeads * kValues, c = b + kKeyHeads * kKeys;
  return SelectiveScan{
      {in, 0}, {in, b}, {in, c}, {in, c + kKeyHeads * kKeys}, dt_bias, a, -1, kHeads, kValues, kKeyHeads, kKeys, 0,
      1e30f,   state,   out};
}

struct Rule {
  const char* name;
  uint32_t columns;
  Row (*token)(Walk& walk, const Row& in);
  Op (*op)(WeightId a, WeightId dt_bias, TensorId in, const StatePart& state, TensorId out);
};
const Rule kRules[] = {{"gated_delta", kDeltaColumns, delta_token, delta_op},
                       {"selective_scan", kScanColumns, scan_token, scan_op}};

// Squares of the errors and of the numbers of some tokens.
struct Error {
  double errors = 0, numbers = 0;
  double relative() const { return std::sqrt(errors / numbers); }
};

struct Decoding {
  const Rule& rule;
  Suite suite = {};
  Walk walk = {};
  WeightId a = -1, dt_bias = -1;
  std::mt19937_64 rng;
  KvGroup group = {.num_layers = 1, .block_tokens = 64, .num_blocks = 1};
  KvBytes record;

  explicit Decoding(const Rule& of) : rule(of), rng(kSeed) {
    // The slowest head remembers some 500 tokens, so that all do what they do for long within the first 1,000.
    walk.a = {-0.01f, -0.03f, -0.1f, -0.3f};
    walk.dt_bias = {-2, -1, -1.5f, -2};
    a = suite.add_f32(walk.a);
    dt_bias = suite.add_f32(walk.dt_bias);
    const StateRing ring{kHeads, kKeyHeads, kKeys, kValues};
    group.state_columns = static_cast<uint32_t>(ring.matrix_numbers() + ring.numbers());
    record = {{std::vector<std::byte>(group.data_bytes_block_layer())}};
    suite.cases.push_back(next(0, 1, nullptr));
    walk.state.assign(walk.state.size(), 0);
    rng.seed(kSeed);
  }

  // The steps of the tokens from `position` on; what must come of them.
  Case next(uint32_t position, uint32_t count, std::vector<Row>* expected) {
    Case steps;
    steps.name = rule.name;
    steps.groups = {group};
    steps.kv = {record};
    for (uint32_t i = 0; i < count; ++i) {
      Row in = random_normal(rng, rule.columns);
      for (double& number : in) number = static_cast<double>(static_cast<float>(number));
      if (expected) expected->push_back(rule.token(walk, in));
      Step& step = steps.steps.emplace_back();
      step.forward.ops = {UpdateRows{}};
      step.add_row(0, position + i, 1);
      step.patch_table(0, 0, {0});
      step.forward.decode_only = true;
      step.set_bucket(1);
      const TensorId tensor = step.input(Rows::kTokens, "in", rule.columns, DType::kF32, std::move(in));
      const TensorId out = step.output(Rows::kTokens, "out", kHeads * kValues, DType::kF32, Tolerance::kRecurrent);
      step.forward.ops.push_back(rule.op(a, dt_bias, tensor, {0, 0, 0, kRingTokens}, out));
    }
    return steps;
  }

  void run(Backend& backend, uint32_t position, uint32_t count, Error* error) {
    std::vector<Row> expected;
    const Case steps = next(position, count, &expected);
    Result<Outcome> outcome = execute(backend, steps);
    if (!outcome) FAIL(outcome.error().message);
    for (uint32_t i = 0; i < count; ++i) {
      const std::vector<std::byte>& bytes = outcome->tensors[i].at(steps.steps[i].outputs[0].tensor);
      for (size_t n = 0; n < expected[i].size(); ++n) {
        float number;
        std::memcpy(&number, bytes.data() + 4 * n, 4);
        const double off = static_cast<double>(number) - expected[i][n];
        error->errors += off * off;
        error->numbers += expected[i][n] * expected[i][n];
      }
    }
    record = outcome->kv[0];
  }
};

uint32_t tokens_wanted() {
  const char* text = std::getenv("LLMRT_DRIFT_TOKENS");
  return text ? std::max(3 * kWindow, static_cast<uint32_t>(std::strtoul(text, nullptr, 10))) : 3 * kWindow;
}

}  // namespace

TEST_CASE("a state does not drift while its row decodes", "[drift][recurrent]") {
  std::vector<std::string> devices = test_devices();
  devices.push_back("reference");  // it keeps records in f32, too
  for (const std::string& device : devices) {
    for (const Rule& rule : kRules) {
      Decoding decoding(rule);
      auto opened = open_test_device(device);
      if (!opened) FAIL(opened.error().message);
      const std::unique_ptr<Backend> backend = std::move(*opened);
      REQUIRE(backend->load_weights(decoding.suite.weights, {}).ok());
      REQUIRE(backend->create_state(state_config(decoding.suite, *backend)).ok());
      const uint32_t num_tokens = tokens_wanted() / kWindow * kWindow;
      double first = 0, last = 0;
      for (uint32_t begin = 0; begin < num_tokens; begin += kWindow) {
        Error error;
        for (uint32_t at = begin; at < begin + kWindow; at += kBatch) decoding.run(*backend, at, kBatch, &error);
        last = error.relative();
        if (begin == 0) first = last;
        if (begin % (10 * kWindow) == 0 || begin + kWindow == num_tokens)
          fmt::print("{} on {}: relative error {:.2e} of tokens {} to {}\n", rule.name, device, last, begin,
                     begin + kWindow);
      }
      INFO(rule.name << " on " << device << ": " << first << " of the first tokens, " << last << " of the last");
      CHECK(first < 1e-5);
      CHECK(last < 3 * first);
    }
  }
}

}  // namespace llmrt::optest
