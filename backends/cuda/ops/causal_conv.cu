// causal_conv: a depthwise convolution over the last `width` tokens of each row, its activation or gates, and its
// state. x and gates f32, sums f32 in the order of the taps. A thread walks the tokens of a tile with W neighbouring
// channels, the last inputs in registers. Blocks (tile, channels); a tile of tokens may hold several rows.
//
// The state (core/ops/recurrent_ops.h) has inputs by position modulo its slots: a row that decodes writes one of them.
// It is what the row's first tokens read and what its last ones leave, so one thread must do both, or one block
// would overwrite what another still reads. The tile that holds a row's first token therefore takes all tokens that
// need the state, also those beyond its end, and writes the new states, whose numbers it finds in x.
#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/recurrent.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kConvThreads = 128;
constexpr uint32_t kConvTileTokens = 16;  // a tile reads up to width - 1 tokens before it again
constexpr int kTokensAtOnce = 4;          // whose x is under way

struct ConvArgs {
  StateRecords states;
  ColumnsIn x, gate_in, gate_out;
  const float *weight, *bias;  // bias: or null
  uint32_t channels, width, weight_stride, tile_tokens;
  bool silu;
};

// kTaps: width, or more; the first weights are then 0.
template <class Out, int W, int kTaps>
class Convolution {
 public:
  using In = Vec<float, W>;

  __device__ Convolution(const ConvArgs& args, Out* out, uint32_t channel)
      : args_(args), out_(out), channel_(channel), kept_(args.width - 1), slots_(conv_slots(args.width)) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      bias_.v[i] = args.bias ? args.bias[channel + i] : 0.0f;
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
        const int tap = j - kTaps + static_cast<int>(args.width);
        taps_[j].v[i] = tap >= 0 ? args.weight[uint64_t{channel + i} * args.weight_stride + tap] : 0.0f;
      }
    }
  }

  // What the state before the row's first token holds.
  __device__ void begin_row(const RowRecord& row) {
    const float* source = args_.states.source(row);
    is_own_ = source == args_.states.own(row);
    const uint32_t slot = row.start % slots_;
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) {
      const uint32_t back = kTaps - 1 - j;
      const bool counts = back <= kept_ && back <= row.start && source;
      window_[j] = counts ? load(source + uint64_t{slot_before(slot, back)} * args_.channels) : In{};
    }
  }
  // What the tokens before `token` hold; they are in the same row.
  __device__ void go_on(uint32_t token) {
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) {
      const int back = kTaps - 1 - j;
      window_[j] = back <= static_cast<int>(kept_) ? input(token - back) : In{};
    }
  }
  // The states that a row leaves, while the window is that of its first token.
  __device__ void save(const RowRecord& row) {
    for (StateSaves saves(args_.states, row); saves.position() != StateSaves::kNone;) {
      const uint32_t end = saves.position();
      store_state(row, before(end, kept_), end, saves.take());
    }
    const uint32_t end = row.start + row.num_tokens, first = is_own_ ? row.start : before(row.start, kept_);
    store_state(row, max(first, before(end, slots_)), end, args_.states.own(row));
  }
  __device__ void walk(uint32_t begin, uint32_t end) {
    for (uint32_t token = begin; token < end; token += kTokensAtOnce) {
      In inputs[kTokensAtOnce];
#pragma unroll
      for (int i = 0; i < kTokensAtOnce; ++i)
        if (token + i < end) inputs[i] = input(token + i);
#pragma unroll
      for (int i = 0; i < kTokensAtOnce; ++i)
        if (token + i < end) step(token + i, inputs[i]);
    }
  }

 private:
  __device__ In load(const float* channels) const {
    return *reinterpret_cast<const In*>(channels + channel_);
  }
  __device__ In input(uint32_t token) const {
    In u = load(args_.x.of(token));
    if (!args_.gate_in.first) return u;
    const In gate = load(args_.gate_in.of(token));
#pragma unroll
    for (int i = 0; i < W; ++i) u.v[i] *= gate.v[i];
    return u;
  }
  __device__ void step(uint32_t token, const In& u) {
    In sum = bias_;
#pragma unroll
    for (int j = 0; j < kTaps; ++j)
#pragma unroll
      for (int i = 0; i < W; ++i) sum.v[i] += taps_[j].v[i] * (j + 1 < kTaps ? window_[j].v[i] : u.v[i]);
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) window_[j] = j + 2 < kTaps ? window_[j + 1] : u;
    const In gate = args_.gate_out.first ? load(args_.gate_out.of(token)) : In{};
    Vec<Out, W> result;
#pragma unroll
    for (int i = 0; i < W; ++i) {
      float value = sum.v[i];
      if (args_.silu) value *= sigmoid(value);
      if (args_.gate_out.first) value *= gate.v[i];
      result.v[i] = from_float<Out>(value);
    }
    *reinterpret_cast<Vec<Out, W>*>(out_ + uint64_t{token} * args_.channels + channel_) = result;
  }
  // Inputs of positions from `first` on, up to `end`, which is in the row or at its end.
  __device__ void store_state(const RowRecord& row, uint32_t first, uint32_t end, float* record) const {
    if (!record) return;
    if (first < row.start) {
      const uint32_t slot = row.start % slots_;
#pragma unroll
      for (int j = 0; j + 1 < kTaps; ++j)
        if (const uint32_t back = kTaps - 1 - j; first + back <= row.start)
          store(record + uint64_t{slot_before(slot, back)} * args_.channels, window_[j]);
      first = row.start;
    }
    uint32_t slot = first % slots_;
#pragma unroll 1
    for (uint32_t position = first; position < end; ++position) {
      store(record + uint64_t{slot} * args_.channels, input(row.token_first + (position - row.start)));
      slot = slot + 1 < slots_ ? slot + 1 : 0;
    }
  }
  static __device__ uint32_t before(uint32_t position, uint32_t count) {
    return position - min(position, count);
  }
  // That of `back` positions before one in `slot`, at most all of them.
  __device__ uint32_t slot_before(uint32_t slot, uint32_t back) const {
    return slot < back ? slot + slots_ - back : slot - back;
  }
  __device__ void store(float* channels, const In& value) const {
    *reinterpret_cast<In*>(channels + channel_) = value;
  }

  const ConvArgs& args_;
  Out* out_;
  uint32_t channel_, kept_, slots_;
  bool is_own_ = false;  // the row goes on in the record that it began from
  In taps_[kTaps], bias_, window_[kTaps - 1];
};

template <int W, int kTaps>
inline constexpr int kConvBlocks = W == 1       ? 8
                                   : kTaps == 8 ? 3
                                                : 5;  // of a multiprocessor: what the registers are for

template <class Out, int W, int kTaps>
__global__ void __launch_bounds__(kConvThreads, kConvBlocks<W, kTaps>)
    causal_conv_kernel(const ConvArgs args, Out* out) {
  const uint32_t channel = (blockIdx.y * kConvThreads + threadIdx.x) * W, kept = args.width - 1;
  const uint32_t* inputs = args.states.inputs;
  const RowRecord* rows = input_array<RowRecord>(inputs, kFwdRows);
  const uint32_t* token_rows = input_array<uint32_t>(inputs, kFwdTokenRows);
  const uint32_t begin = blockIdx.x * args.tile_tokens, end = min(begin + args.tile_tokens, inputs[kFwdNumTokens]);
  if (channel >= args.channels || begin >= end) {
    grid_dependency_wait();
    return;
  }
  Convolution<Out, W, kTaps> convolution(args, out, channel);
  RowRecord row = rows[token_rows[begin]];
  if (row.token_first == begin) convolution.begin_row(row);
  grid_dependency_wait();
  for (uint32_t token = begin; token < end;) {
    if (token > begin) row = rows[token_rows[token]];
    const uint32_t idx = token - row.token_first, row_end = row.token_first + row.num_tokens;
    const uint32_t kept_end = min(row_end, row.token_first + kept);
    if (idx > 0 && idx < kept) {  // taken by the tile before
      token = kept_end;
      continue;
    }
    uint32_t part_end = min(row_end, end);
    if (idx == 0) {
      if (token > begin) convolution.begin_row(row);
      convolution.save(row);
      part_end = max(part_end, kept_end);
    } else {
      convolution.go_on(token);
    }
    convolution.walk(token, part_end);
    token = part_end;
  }
}

template <class Out>
auto causal_conv_kernel_of(uint32_t width, bool has_fours) {
  if (width <= 4) return has_fours ? causal_conv_kernel<Out, 4, 4> : causal_conv_kernel<Out, 1, 4>;
  return has_fours ? causal_conv_kernel<Out, 4, 8> : causal_conv_kernel<Out, 1, 8>;
}
static_assert(kConvWidthMax == 8);

}  // namespace

Status choose(const CausalConv& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  if (Status status = check_state("causal_conv", op.state, inputs, false); !status) return status;
  const uint32_t channels = list.tensors[static_cast<size_t>(op.out)].columns;
  const bool has_fours = channels % 4 == 0 && has_whole_fours(op.x, list) && has_whole_fours(op.gate_in, list) &&
                         has_whole_fours(op.gate_out, list);
  const uint32_t weight_stride = inputs.tensors[static_cast<size_t>(op.weight)].row_stride / sizeof(float);
  const uint32_t tile_tokens = list.decode_only ? 1 : kConvTileTokens;
  KernelChoice choice{.kernel = "causal_conv", .variant = list.decode_only ? "token" : "tile"};
  choice.grid = {ceil_div(list.rows_of(op.out), tile_tokens), ceil_div(channels, kConvThreads * (has_fours ? 4 : 1))};
  choice.threads = kConvThreads;
  add_launch(out, choice, [op, weight_stride, tile_tokens, has_fours](const KernelChoice& c, const OpContext& at) {
    const ConvArgs args{state_records(op.state, at),
                        columns_in(op.x, at),
                        columns_in(op.gate_in, at),
                        columns_in(op.gate_out, at),
                        at.weight_vector(op.weight),
                        op.bias >= 0 ? at.weight_vector(op.bias) : nullptr,
                        at.desc(op.out).columns,
                        op.width,
                        weight_stride,
                        tile_tokens,
                        op.silu};
    return with_float_type(at.desc(op.out).dtype, "causal_conv out", [&](auto type) {
      using Out = decltype(type);
      return launch(at, c, causal_conv_kernel_of<Out>(op.width, has_fours), args, at.tensor<Out>(op.out));
    });
  });
  return {};
}

}  // namespace llmrt::cuda
