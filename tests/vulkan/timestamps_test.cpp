// elapsed_ms: a counter that has begun again in between counts on.
#include <catch2/catch_test_macros.hpp>

#include "backends/vulkan/device.h"

namespace llmrt::vulkan {
namespace {

TEST_CASE("time goes on where a counter of few bits begins again") {
  Traits traits;
  traits.timestamp_ns = 100;
  traits.timestamp_bits = 36;
  const uint64_t most = (uint64_t{1} << 36) - 1;
  CHECK(elapsed_ms(traits, 5, 25) == 20 * 100 * 1e-6);
  CHECK(elapsed_ms(traits, most - 9, 10) == 20 * 100 * 1e-6);
  traits.timestamp_bits = 64;
  CHECK(elapsed_ms(traits, ~uint64_t{0} - 9, 10) == 20 * 100 * 1e-6);
}

}  // namespace
}  // namespace llmrt::vulkan
