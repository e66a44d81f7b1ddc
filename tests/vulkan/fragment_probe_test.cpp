// fragment_fits: any order of k that both factors agree on fits; elements in other lanes do not.
#include "backends/vulkan/fragment_probe.h"

#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/half.h"

namespace llmrt::vulkan {
namespace {

constexpr Fragment kShape{16, 8, 16, 4, 2};

// What the probe writes where number order[k] of a lane's is column k.
std::vector<uint16_t> written(const std::vector<uint32_t>& order) {
  std::vector<uint16_t> halves;
  for (const uint32_t rows : {kShape.m, kShape.n})
    for (uint32_t row = 0; row < rows; ++row)
      for (uint32_t k = 0; k < kShape.k; ++k) halves.push_back(f16_bits(static_cast<float>(row * kShape.k + order[k])));
  return halves;
}

std::vector<float> written_sums() {
  std::vector<float> sums(kShape.m * kShape.n);
  std::iota(sums.begin(), sums.end(), 0.0f);
  return sums;
}

TEST_CASE("a fragment fits when its factors agree, whatever the order of k") {
  std::vector<uint32_t> order(kShape.k);
  std::iota(order.begin(), order.end(), 0u);
  CHECK(fragment_fits(kShape, written(order), written_sums()));
  std::swap(order[3], order[12]);
  std::vector<uint16_t> swapped = written(order);
  CHECK(fragment_fits(kShape, swapped, written_sums()));

  std::swap(swapped[kShape.m * kShape.k + 3], swapped[kShape.m * kShape.k + 12]);  // in one row of one factor
  CHECK_FALSE(fragment_fits(kShape, swapped, written_sums()));
}

TEST_CASE("sums lie as a factor when a lane's numbers are the columns of its sums") {
  std::vector<uint32_t> order(kShape.k);
  std::iota(order.begin(), order.end(), 0u);
  CHECK_FALSE(sums_lie_as_factor(kShape, written(order)));
  // Of sums lane l has columns 2l and 2l + 1 of each matrix of 8, so its numbers 4l to 4l + 3 are those k, and 8 more.
  for (uint32_t number = 0; number < kShape.k; ++number)
    order[number % 4 / 2 * 8 + number / 4 * 2 + number % 2] = number;
  CHECK(sums_lie_as_factor(kShape, written(order)));
  std::swap(order[6], order[7]);
  CHECK_FALSE(sums_lie_as_factor(kShape, written(order)));
  CHECK_FALSE(sums_lie_as_factor({16, 16, 16, 4, 2}, written(order)));
}

TEST_CASE("a fragment does not fit when rows change places, a number is missing or nothing was written") {
  std::vector<uint32_t> order(kShape.k);
  std::iota(order.begin(), order.end(), 0u);
  std::vector<uint16_t> halves = written(order);
  for (uint32_t k = 0; k < kShape.k; ++k) std::swap(halves[k], halves[8 * kShape.k + k]);
  CHECK_FALSE(fragment_fits(kShape, halves, written_sums()));

  order[5] = 4;
  CHECK_FALSE(fragment_fits(kShape, written(order), written_sums()));
  CHECK_FALSE(fragment_fits(kShape, std::vector<uint16_t>(halves.size(), 0xffff), written_sums()));
  CHECK_FALSE(fragment_fits(kShape, {}, written_sums()));

  std::iota(order.begin(), order.end(), 0u);
  std::vector<float> sums = written_sums();
  std::swap(sums[2], sums[8]);  // column 2 of row 0, column 0 of row 1
  CHECK_FALSE(fragment_fits(kShape, written(order), sums));
  CHECK_FALSE(fragment_fits(kShape, written(order), {}));
}

}  // namespace
}  // namespace llmrt::vulkan
