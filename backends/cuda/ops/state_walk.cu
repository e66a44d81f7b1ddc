// gated_delta and selective_scan: the tokens of each row in their order, with the state in registers. Blocks (32 value
// columns of a head, row); state_walk.cuh says what they do.
#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/state_walk.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kRowsAtOnce = 64;  // rows that have blocks of their own where a list has prompts

template <int kGroup, int kChunks>
inline constexpr int kWalkBlocks = kChunks == 4  ? 2
                                   : kGroup == 1 ? 4
                                                 : 3;  // of a multiprocessor

template <bool kDelta, int kGroup, int kChunks>
__global__ void __launch_bounds__(kWalkThreads, kWalkBlocks<kGroup, kChunks>) state_walk_kernel(const WalkArgs args) {
  __shared__ Products<kGroup> products;
  using Tiles = Tile<kGroup, kChunks>;
  Walk<kDelta, kGroup, kChunks> walk(args, reinterpret_cast<Tiles*>(dynamic_shared()), &products);
  const uint32_t* inputs = args.states.inputs;
  const RowRecord* rows = input_array<RowRecord>(inputs, kFwdRows);
  const uint32_t num_rows = inputs[kFwdNumRows];
  bool is_first = true;
  if (blockIdx.y >= num_rows) grid_dependency_wait();
  for (uint32_t r = blockIdx.y; r < num_rows; r += gridDim.y) {
    const RowRecord row = rows[r];
    walk.load(args.states.source(row));
    if (is_first) grid_dependency_wait();
    is_first = false;
    walk.walk(row);
  }
}

struct WalkShape {
  bool is_delta, has_groups;  // groups of 4 tokens
  int chunks;
};
template <class Fn>
Status with_walk(const WalkShape& shape, Fn fn) {
  const auto by_chunks = [&]<bool kDelta, int kGroup>() {
    if (shape.chunks == 1) return fn.template operator()<kDelta, kGroup, 1>();
    if (shape.chunks == 2) return fn.template operator()<kDelta, kGroup, 2>();
    return fn.template operator()<kDelta, kGroup, 4>();
  };
  if (shape.is_delta)
    return shape.has_groups ? by_chunks.template operator()<true, 4>() : by_chunks.template operator()<true, 1>();
  return shape.has_groups ? by_chunks.template operator()<false, 4>() : by_chunks.template operator()<false, 1>();
}
uint32_t tile_bytes(const WalkShape& shape) {
  uint32_t bytes = 0;
  (void)with_walk(shape, [&]<bool, int kGroup, int kChunks>() {
    bytes = 2 * sizeof(Tile<kGroup, kChunks>);
    return Status();
  });
  return bytes;
}

// What both ops have by their own names.
struct WalkHeads {
  uint32_t num_heads, key_heads, key_dim, value_dim;
};
template <class Op>
WalkArgs walk_args(const Op& op, const WalkHeads& heads, bool has_fours, const OpContext& at) {
  WalkArgs args{};
  args.states = state_records(op.state, at);
  args.a = at.weight_vector(op.a);
  args.dt_bias = at.weight_vector(op.dt_bias);
  args.num_heads = heads.num_heads;
  args.heads_shared = heads.num_heads / heads.key_heads;
  args.key_heads = heads.key_heads;
  args.key_dim = heads.key_dim;
  args.value_dim = heads.value_dim;
  args.slices = ceil_div(heads.value_dim, kBlockValues);
  args.has_fours = has_fours;
  args.out = at.tensor<float>(op.out);
  return args;
}

// make(at): the kernel's arguments.
Status add_walk(const char* name, bool is_delta, const WalkHeads& heads, const OpList& list,
                const CompileInputs& inputs, std::function<WalkArgs(const OpContext&)> make, Launches* out) {
  const int chunks = heads.key_dim <= 64 ? 1 : heads.key_dim <= 128 ? 2 : 4;
  WalkShape shape{is_delta, !list.decode_only && !list.batch_invariant, chunks};
  if (shape.has_groups && tile_bytes(shape) > inputs.device.shared_bytes_max) shape.has_groups = false;
  KernelChoice choice{.kernel = name, .variant = shape.has_groups ? "groups of 4" : ""};
  choice.grid = {heads.num_heads * ceil_div(heads.value_dim, kBlockValues),
                 list.decode_only ? list.num_tokens : std::min(list.num_tokens, kRowsAtOnce)};
  choice.threads = kWalkThreads;
  choice.shared_bytes = tile_bytes(shape);
  add_launch(out, choice, [shape, make = std::move(make)](const KernelChoice& c, const OpContext& at) {
    return with_walk(shape, [&]<bool kDelta, int kGroup, int kChunks>() {
      return launch(at, c, state_walk_kernel<kDelta, kGroup, kChunks>, make(at));
    });
  });
  return {};
}

}  // namespace

Status choose(const GatedDelta& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  if (Status status = check_state("gated_delta", op.state, inputs); !status) return status;
  const WalkHeads heads{op.value_heads, op.key_heads, op.key_dim, op.value_dim};
  const bool has_fours = has_whole_fours(op.qkv, list);
  const auto make = [=](const OpContext& at) {
    WalkArgs args = walk_args(op, heads, has_fours, at);
    args.q = args.k = args.v = columns_in(op.qkv, at);
    args.k.first += op.key_heads * op.key_dim;
    args.v.first += 2 * op.key_heads * op.key_dim;
    args.gate = columns_in(op.alpha, at);
    args.strength = columns_in(op.beta, at);
    args.has_key_modulo = op.order == KeyHeadOrder::kModulo;
    args.gates_in_turn = op.gates_in_turn;
    args.normalise = op.normalise;
    args.eps = op.eps;
    args.scale = op.scale;
    return args;
  };
  return add_walk("gated_delta", true, heads, list, inputs, make, out);
}

Status choose(const SelectiveScan& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  if (Status status = check_state("selective_scan", op.state, inputs); !status) return status;
  const WalkHeads heads{op.num_heads, op.num_groups, op.state_dim, op.head_dim};
  const bool has_fours = has_whole_fours(op.x, list) && has_whole_fours(op.b, list) && has_whole_fours(op.c, list);
  const auto make = [=](const OpContext& at) {
    WalkArgs args = walk_args(op, heads, has_fours, at);
    args.q = columns_in(op.c, at);
    args.k = columns_in(op.b, at);
    args.v = columns_in(op.x, at);
    args.gate = columns_in(op.dt, at);
    args.d = op.d >= 0 ? at.weight_vector(op.d) : nullptr;
    args.scale = 1;
    args.dt_min = op.dt_min;
    args.dt_max = op.dt_max;
    return args;
  };
  return add_walk("selective_scan", false, heads, list, inputs, make, out);
}

}  // namespace llmrt::cuda
