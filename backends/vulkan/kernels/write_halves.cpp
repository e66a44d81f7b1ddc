#include "backends/vulkan/kernels/write_halves.h"

#include "core/base/checked_math.h"

namespace llmrt::vulkan {

Launch write_halves(const Piece& piece, uint32_t columns, const HalvesSlice& slice, const View& to) {
  constexpr uint32_t kRows = 8, kUnits = 32;  // of a group; twin: shaders/write_halves.comp
  const WriteHalvesKernel::Push push{.weight = piece.view,
                                     .result = to,
                                     .columns = columns,
                                     .row_words = row_words(piece.encoding, columns),
                                     .first = static_cast<uint32_t>(slice.first),
                                     .num_first = static_cast<uint32_t>(slice.num_first),
                                     .second = static_cast<uint32_t>(piece.num_rows / 2 + slice.first)};
  Launch launch;
  launch.kernel = make_kernel<WriteHalvesKernel>(kRows * kUnits, {.layout = layout_constant(piece)});
  launch.groups = {ceil_div(columns / unit_columns(piece.encoding), kUnits),
                   static_cast<uint32_t>((slice.num_first + slice.num_second) / kRows)};
  launch.push = PushBytes(push);
  return launch;
}

}  // namespace llmrt::vulkan
