// Whether matrices lie in lanes as matmul_fragment expects: the extension leaves that to the driver, so it is tried.
#pragma once

#include <cstdint>
#include <span>

#include "backends/vulkan/device.h"
#include "backends/vulkan/memory.h"
#include "backends/vulkan/pipelines.h"
#include "backends/vulkan/transfer.h"
#include "core/base/status.h"

namespace llmrt::vulkan {

// What shaders/fragment_probe.comp writes: f16 [m, k] and [n, k], and sums [m, n].
bool fragment_fits(const Fragment& shape, std::span<const uint16_t> halves, std::span<const float> sums);
// Fragment::sums_as_factor, for numbers that fit.
bool sums_lie_as_factor(const Fragment& shape, std::span<const uint16_t> halves);
// What is known of the device's, after trying it; nothing if it does not fit. Compiles and waits for one small
// dispatch.
Result<Fragment> probe_fragment(const Device& device, Pipelines* pipelines, Transfer* transfer, MemoryBook* book);

}  // namespace llmrt::vulkan
