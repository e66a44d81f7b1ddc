// gated_delta and selective_scan: the tokens of each row in their order, with the state in registers. Blocks (32 value
// columns of a head, row); state_walk.cuh says what they do.
#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/state_entries.cuh"
#include "backends/cuda/ops/state_products.cuh"
#include "backends/cuda/ops/state_ring.cuh"
#include "backends/cuda/ops/state_walk.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kRowsAtOnce = 64;  // rows that have blocks of their own where a list has prompts
// The same beside products: most such lists have few rows, and blocks without one take time too.
constexpr uint32_t kShortRowsAtOnce = 16, kProductRowsAtOnce = 8;

template <int kGroup, int kChunks>
inline constexpr int kWalkBlocks = kChunks == 4  ? 2
                                   : kGroup == 1 ? 4
                                                 : 3;  // of a multiprocessor

// fn(row, source): each row of this block, and where its state lies. Rows are known before the kernel before has ended.
template <class Fn>
__device__ void each_row(const StateRecords& states, Fn fn) {
  const RowRecord* rows = input_array<RowRecord>(states.inputs, kFwdRows);
  const uint32_t num_rows = states.inputs[kFwdNumRows];
  if (blockIdx.y >= num_rows) grid_dependency_wait();
  for (uint32_t r = blockIdx.y; r < num_rows; r += gridDim.y) {
    const RowRecord row = rows[r];
    fn(row, states.source(row), r == blockIdx.y);
  }
}

template <bool kDelta, int kGroup, int kChunks>
__global__ void __launch_bounds__(kWalkThreads, kWalkBlocks<kGroup, kChunks>) state_walk_kernel(const WalkArgs args) {
  __shared__ Products<kGroup> products;
  auto* shared = dynamic_shared();
  Walk<kDelta, kGroup, kChunks> walk(args, reinterpret_cast<Tile<kGroup, kChunks>*>(shared), &products);
  each_row(args.states, [&](const RowRecord& row, const float* source, bool is_first) {
    if constexpr (kGroup > 1) {
      if (args.has_ring && row.num_tokens <= kRingRowTokens) {
        RingWalk<kDelta, kChunks> ring(args, reinterpret_cast<RingTile<kChunks>*>(shared));
        ring.load(row, source);
        if (is_first) grid_dependency_wait();
        ring.walk(row, source);
        __syncthreads();
        return;
      }
    }
    walk.load(args.has_ring && row.start < kRingTokens ? nullptr : source);
    if (is_first) grid_dependency_wait();
    walk.walk(row, source);
  });
}

template <bool kDelta, int kChunks>
__global__ void __launch_bounds__(kWalkThreads, kWalkBlocks<1, kChunks>) ring_walk_kernel(const WalkArgs args) {
  RingWalk<kDelta, kChunks> walk(args, reinterpret_cast<RingTile<kChunks>*>(dynamic_shared()));
  each_row(args.states, [&](const RowRecord& row, const float* source, bool is_first) {
    const bool is_own = row.num_tokens <= args.row_tokens_max;
    if (is_own) walk.load(row, source);
    if (is_first) grid_dependency_wait();
    if (is_own) walk.walk(row, source);
    __syncthreads();
  });
}

// Rows of more than kRingRowTokens tokens.
template <bool kDelta, int kChunks>
__global__ void __launch_bounds__(kWalkThreads, 1) product_walk_kernel(const WalkArgs args) {
  ProductWalk<kDelta, kChunks> walk(args, reinterpret_cast<ProductTile<kChunks>*>(dynamic_shared()));
  each_row(args.states, [&](const RowRecord& row, const float* source, bool is_first) {
    const bool is_own = row.num_tokens > kRingRowTokens;
    if (is_own) walk.load(row.start < kRingTokens ? nullptr : source);
    if (is_first) grid_dependency_wait();
    if (is_own) walk.walk(row, source);
  });
}

struct WalkShape {
  bool is_delta, has_ring, has_groups;  // groups of 4 tokens
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
uint32_t shared_bytes(const WalkShape& shape) {
  size_t bytes = 0;
  (void)with_walk(shape, [&]<bool, int kGroup, int kChunks>() {
    if (kGroup > 1 || !shape.has_ring) bytes = 2 * sizeof(Tile<kGroup, kChunks>);
    if (shape.has_ring) bytes = std::max(bytes, sizeof(RingTile<kChunks>));
    return Status();
  });
  return static_cast<uint32_t>(bytes);
}

uint32_t product_bytes(const WalkShape& shape) {
  return static_cast<uint32_t>(2 * (shape.chunks == 1 ? sizeof(ProductTile<1>) : sizeof(ProductTile<2>)));
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
  args.ring = ring_of(op);
  args.has_ring = op.state.ring_tokens > 0;
  args.row_tokens_max = 0xffffffffu;
  args.out = at.tensor<float>(op.out);
  return args;
}

using MakeArgs = std::function<WalkArgs(const OpContext&)>;

// Lists with prompts, where shared memory is plenty: short rows, then long ones.
void add_products(const char* name, const WalkShape& shape, const WalkHeads& heads, uint32_t num_tokens,
                  const MakeArgs& make, Launches* out) {
  WalkShape short_rows = shape;
  short_rows.has_groups = false;
  KernelChoice choice{.kernel = name, .variant = "ring of short rows"};
  choice.grid = {heads.num_heads * ceil_div(heads.value_dim, kBlockValues), std::min(num_tokens, kShortRowsAtOnce)};
  choice.threads = kWalkThreads;
  choice.shared_bytes = shared_bytes(short_rows);
  add_launch(out, choice, [short_rows, make](const KernelChoice& c, const OpContext& at) {
    WalkArgs args = make(at);
    args.row_tokens_max = kRingRowTokens;
    return with_walk(short_rows, [&]<bool kDelta, int, int kChunks>() {
      return launch(at, c, ring_walk_kernel<kDelta, kChunks>, args);
    });
  });
  choice.variant = "products";
  choice.grid = {heads.num_heads * ceil_div(heads.value_dim, kProductValues), std::min(num_tokens, kProductRowsAtOnce)};
  choice.shared_bytes = product_bytes(shape);
  add_launch(out, choice, [shape, make](const KernelChoice& c, const OpContext& at) {
    if (shape.is_delta)
      return shape.chunks == 1 ? launch(at, c, product_walk_kernel<true, 1>, make(at))
                               : launch(at, c, product_walk_kernel<true, 2>, make(at));
    return shape.chunks == 1 ? launch(at, c, product_walk_kernel<false, 1>, make(at))
                             : launch(at, c, product_walk_kernel<false, 2>, make(at));
  });
}

// make(at): the kernel's arguments.
Status add_walk(const char* name, bool is_delta, const WalkHeads& heads, const OpList& list,
                const CompileInputs& inputs, const StatePart& state, const MakeArgs& make, Launches* out) {
  if (Status status = check_state(name, state, inputs, true); !status) return status;
  const int chunks = heads.key_dim <= 64 ? 1 : heads.key_dim <= 128 ? 2 : 4;
  WalkShape shape{is_delta, state.ring_tokens > 0, !list.decode_only && !list.batch_invariant, chunks};
  if (shape.has_groups && shared_bytes(shape) > inputs.device.shared_bytes_max) shape.has_groups = false;
  const uint32_t rows_at_once = list.decode_only ? list.num_tokens : std::min(list.num_tokens, kRowsAtOnce);
  if (inputs.device.has_state_products && shape.has_ring && shape.has_groups && chunks <= 2 &&
      product_bytes(shape) <= inputs.device.shared_bytes_max) {
    add_products(name, shape, heads, list.num_tokens, make, out);
  } else {
    KernelChoice choice{.kernel = name, .variant = shape.has_groups ? "groups of 4" : shape.has_ring ? "ring" : ""};
    choice.grid = {heads.num_heads * ceil_div(heads.value_dim, kBlockValues), rows_at_once};
    choice.threads = kWalkThreads;
    choice.shared_bytes = shared_bytes(shape);
    add_launch(out, choice, [shape, make](const KernelChoice& c, const OpContext& at) {
      return with_walk(shape, [&]<bool kDelta, int kGroup, int kChunks>() {
        if (kGroup == 1 && shape.has_ring) return launch(at, c, ring_walk_kernel<kDelta, kChunks>, make(at));
        return launch(at, c, state_walk_kernel<kDelta, kGroup, kChunks>, make(at));
      });
    });
  }
  if (!shape.has_ring || (list.decode_only && !list.batch_invariant)) return {};
  KernelChoice entries{.kernel = "state_entries"};
  entries.grid = {kRingTokens - 1, std::min(rows_at_once, kRowsAtOnce)};
  entries.threads = 256;
  add_launch(out, entries, [is_delta, make](const KernelChoice& c, const OpContext& at) {
    return launch(at, c, is_delta ? state_entries_kernel<true> : state_entries_kernel<false>, make(at));
  });
  return {};
}

}  // namespace

Status choose(const GatedDelta& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
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
  return add_walk("gated_delta", true, heads, list, inputs, op.state, make, out);
}

Status choose(const SelectiveScan& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
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
  return add_walk("selective_scan", false, heads, list, inputs, op.state, make, out);
}

}  // namespace llmrt::cuda
