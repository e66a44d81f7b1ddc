// The noise source on the host: close to its formula, finite at both ends, of the right shape, and without echoes
// between neighbouring seeds, positions, branches and tokens. Devices are compared with it bit for bit in
// filter_sample_test.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "core/sample/gumbel.h"
#include "tests/ops/statistics.h"

namespace llmrt::optest {
namespace {

double exact_gumbel(uint32_t hash) {
  const double w = (hash + 0.5) / 4294967296.0;
  return -std::log(-std::log1p(-w));
}

// Correlation of the noise of (seed, branch, position, token) with that of a neighbour in one of them.
double correlation(const std::array<uint32_t, 4>& step, uint32_t count) {
  double sum = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const auto uniform = [&](uint32_t k) {
      const uint32_t seed = i % 1000 + k * step[0], branch = k * step[1], position = i / 1000 + k * step[2],
                     token = 17 + k * step[3];
      const uint32_t hash =
          noise_hash(noise_key(seed, 5, branch, position, 0), noise_key(seed, 5, branch, position, 1), token);
      return (hash + 0.5) / 4294967296.0 - 0.5;
    };
    sum += uniform(0) * uniform(1);
  }
  return sum / count * 12;
}

}  // namespace

TEST_CASE("the noise follows its formula and is finite at both ends", "[noise]") {
  const auto check = [](uint32_t hash) {
    const double want = exact_gumbel(hash), got = gumbel(hash);
    INFO("hash " << hash);
    CHECK(std::isfinite(got));
    // From w = 2^-12 on only 24 bits of 1 - w are kept, and its lowest half is dropped: the error of E = -log(1 - w).
    const double w = (hash + 0.5) / 4294967296.0, rest = 4294967295.0 - hash;
    const double error = hash < 0x00100000u || rest == 0 ? 0 : std::ldexp(1.1, -24) + 0.55 / rest;
    CHECK(std::abs(want - got) < 3e-6 * std::max(1.0, std::abs(want)) + error / -std::log1p(-w));
  };
  check(0);
  check(0xffffffffu);
  for (uint32_t bit = 0; bit < 32; ++bit)
    for (uint32_t around : {0u, 1u, 0xffffffffu}) {
      check((1u << bit) + around);
      check(~(1u << bit) + around);
    }
  uint32_t hash = 1;
  for (int i = 0; i < 20000; ++i) check(hash = noise_mix(hash + 0x9e3779b9u));
}

TEST_CASE("the noise falls as its hash grows", "[noise]") {
  float before = gumbel(0);
  for (uint64_t hash = 1 << 12; hash < (1ull << 32); hash += 1 << 12) {
    const float now = gumbel(static_cast<uint32_t>(hash));
    if (now > before + 4e-6f * std::max(1.0f, std::abs(before)))
      FAIL("at " << hash << ": " << before << " then " << now);
    before = now;
  }
  CHECK(gumbel(0) > 22.0f);
  CHECK(gumbel(0xffffffffu) < -3.0f);
}

TEST_CASE("hashes fill their range evenly", "[noise]") {
  std::vector<double> counts(1000, 0);
  constexpr uint32_t kDraws = 1000000;
  for (uint32_t i = 0; i < kDraws; ++i)
    ++counts[noise_hash(noise_key(i % 97, 0, 0, i / 97, 0), noise_key(i % 97, 0, 0, i / 97, 1), i % 13) / 4294968u];
  CHECK(chi_square_p(counts, std::vector<double>(1000, 1.0 / 1000)) > 1e-4);
}

TEST_CASE("neighbours in seed, branch, position and token are uncorrelated", "[noise]") {
  constexpr uint32_t kCount = 1000000;
  for (const std::array<uint32_t, 4>& step :
       {std::array{1u, 0u, 0u, 0u}, {0u, 1u, 0u, 0u}, {0u, 0u, 1u, 0u}, {0u, 0u, 0u, 1u}, {1u, 0u, 1u, 0u}})
    CHECK(std::abs(correlation(step, kCount)) < 4 / std::sqrt(double{kCount}));
}

}  // namespace llmrt::optest
