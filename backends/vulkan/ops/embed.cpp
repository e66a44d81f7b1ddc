#include "backends/vulkan/recorder.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {

Status record(Recorder& r, const Embed& op) {
  const uint32_t columns = r.desc(op.out).columns;
  const uint32_t group_size = r.traits().cpu_kernels ? 8 : 64;
  const View tokens = r.tensor(op.tokens), out = r.tensor(op.out);
  for (const Piece& piece : r.weights().tensor(op.weight)) {
    if (columns % 8 != 0)
      return make_error(ErrorCode::kUnsupported, "vulkan: embed: expected columns in multiples of 8, found {}", columns);
    const View reads[] = {tokens, piece.view}, writes[] = {out};
    Push push;
    push.add(tokens).add(piece.view).add(out).add(r.live_count(op.out)).add(columns);
    push.add(row_words(piece.encoding, columns)).add(static_cast<uint32_t>(piece.row_begin));
    push.add(static_cast<uint32_t>(piece.num_rows));
    // A unit is at least 4 numbers.
    r.dispatch({"embed", group_size, {layout_constant(piece)}}, push,
               {ceil_div(columns / 4, group_size), r.list().num_tokens}, reads, writes);
  }
  return {};
}

}  // namespace llmrt::vulkan
