#include "backends/vulkan/fragment_probe.h"

#include <cstring>
#include <vector>

#include "backends/vulkan/kernels/fragment_probe.h"
#include "backends/vulkan/recorder.h"
#include "core/base/half.h"

namespace llmrt::vulkan {
bool fragment_fits(const Fragment& shape, std::span<const uint16_t> halves, std::span<const float> sums) {
  if (halves.size() != (shape.m + shape.n) * size_t{shape.k} || sums.size() != shape.m * size_t{shape.n}) return false;
  for (size_t i = 0; i < sums.size(); ++i)
    if (sums[i] != static_cast<float>(i)) return false;
  std::vector<bool> seen(shape.k);
  for (uint32_t k = 0; k < shape.k; ++k) {
    const float number = f16_value(halves[k]);  // of k, as the lane with row 0 had it in mind
    if (!(number >= 0 && number < static_cast<float>(shape.k)) || seen[static_cast<uint32_t>(number)]) return false;
    seen[static_cast<uint32_t>(number)] = true;
    for (uint32_t row = 0; row < shape.m + shape.n; ++row) {
      const uint32_t line = row < shape.m ? row : row - shape.m;
      if (f16_value(halves[row * shape.k + k]) != static_cast<float>(line * shape.k) + number) return false;
    }
  }
  return true;
}

bool sums_lie_as_factor(const Fragment& shape, std::span<const uint16_t> halves) {
  const uint32_t lane_numbers = shape.k / shape.row_lanes;
  if (shape.sum_run * shape.row_lanes != shape.n || shape.k % shape.n != 0) return false;
  for (uint32_t k = 0; k < shape.k; ++k) {
    const uint32_t number = static_cast<uint32_t>(f16_value(halves[k]));  // of k, as the lane with row 0 had it in mind
    const uint32_t lane = number / lane_numbers, j = number % lane_numbers;
    if (k != j / shape.sum_run * shape.n + lane * shape.sum_run + j % shape.sum_run) return false;
  }
  return true;
}

Result<Fragment> probe_fragment(const Device& device, Pipelines* pipelines, Transfer* transfer, MemoryBook* book) {
  Fragment shape = device.traits().fragment;
  Launch launch;
  launch.kernel = make_kernel<FragmentProbeKernel>(
      device.traits().subgroup_size,
      {.m = shape.m, .n = shape.n, .k = shape.k, .row_lanes = shape.row_lanes, .sum_run = shape.sum_run});
  if (Status status = pipelines->compile({&launch.kernel, 1}); !status) return status.error();
  std::vector<uint16_t> halves((shape.m + shape.n) * size_t{shape.k}, 0xffff);
  std::vector<float> sums(shape.m * size_t{shape.n}, -1.0f);
  const uint64_t halves_bytes = halves.size() * sizeof(uint16_t), bytes = halves_bytes + sums.size() * sizeof(float);
  auto buffer = Buffer::create(device, book, MemoryKind::kOther, Buffer::Where::kHostRead, bytes);
  if (!buffer) return buffer.error();
  std::memcpy(buffer->mapped(), halves.data(), halves_bytes);
  std::memcpy(buffer->mapped() + halves_bytes, sums.data(), bytes - halves_bytes);
  launch.push = PushBytes(FragmentProbeKernel::Push{.result = View{buffer->address(), &*buffer, 0, bytes}});
  Status status =
      transfer->execute([&](VkCommandBuffer commands) { record_launch(device, *pipelines, commands, launch); });
  if (!status) return status.error();
  std::memcpy(halves.data(), buffer->mapped(), halves_bytes);
  std::memcpy(sums.data(), buffer->mapped() + halves_bytes, bytes - halves_bytes);
  if (!fragment_fits(shape, halves, sums)) return Fragment{};
  shape.sums_as_factor = sums_lie_as_factor(shape, halves);
  return shape;
}

}  // namespace llmrt::vulkan
