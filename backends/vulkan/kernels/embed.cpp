#include "backends/vulkan/kernels/embed.h"

#include "backends/vulkan/emitter.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {

Status emit(Emitter& e, const Embed& op) {
  const uint32_t columns = e.desc(op.out).columns, group_size = e.traits().cpu_kernels ? 8 : 64;
  if (columns % 8 != 0)
    return make_error(ErrorCode::kUnsupported, "vulkan: embed: expected columns in multiples of 8, found {}", columns);
  const View tokens = e.tensor(op.tokens), out = e.tensor(op.out);
  for (const Piece& piece : e.weights().tensor(op.weight)) {
    const View reads[] = {tokens, piece.view}, writes[] = {out};
    const EmbedKernel::Push push{.tokens = tokens,
                                 .weight = piece.view,
                                 .result = out,
                                 .count = e.live_count(op.out),
                                 .columns = columns,
                                 .row_words = row_words(piece.encoding, columns),
                                 .row_begin = static_cast<uint32_t>(piece.row_begin),
                                 .num_rows = static_cast<uint32_t>(piece.num_rows)};
    // A unit is at least 4 numbers.
    const KernelChoice choice{make_kernel<EmbedKernel>(group_size, {.layout = layout_constant(piece)}),
                              {ceil_div(columns / 4, group_size), e.list().num_tokens}};
    e.launch(choice, PushBytes(push), reads, writes);
  }
  return {};
}

}  // namespace llmrt::vulkan
