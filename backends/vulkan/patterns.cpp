#include "backends/vulkan/patterns.h"

#include <algorithm>

#include "backends/vulkan/choose_matmul.h"
#include "backends/vulkan/kernels/rms_norm.h"

namespace llmrt::vulkan {
namespace {

using Ops = std::vector<uint32_t>;

template <class T>
const T& at(const Setting& setting, uint32_t op) {
  return std::get<T>(setting.list.ops[op]);
}

template <class T>
bool is_op(const Setting& setting, uint32_t op) {
  return std::holds_alternative<T>(setting.list.ops[op]);
}

// ---- gated_matmul

const char* refuses_gated(const Setting& setting, const FuseState&, const Ops& ops) {
  return can_gate(setting, at<Matmul>(setting, ops[0]), at<GatedActivation>(setting, ops[1]))
             ? nullptr
             : "no kernel for these rows and weights";
}
Step make_gated(const Setting& setting, FuseState* state, const Ops& ops) {
  return GatedMatmulStep{ops[0], ops[1], state->end(at<Matmul>(setting, ops[0]).x)};
}

// ---- normed_matmul

// Whether a matmul can leave a norm or end one. In matmul_fragment of 16-bit weights it costs more than the dispatch.
bool takes_open_norm(const Setting& setting, const Matmul& op) {
  return setting.desc(op.x).columns % 32 == 0 &&
         std::ranges::all_of(setting.weights.group(op.group).pieces, [&](const Piece& piece) {
           const Product product = product_of(setting, op, piece);
           return (product.is_quantized() || takes_row(setting.target, product, false, false)) &&
                  takes_fragment(setting.target, product);
         });
}

const char* refuses_normed(const Setting& setting, const FuseState& state, const Ops& ops) {
  const Matmul &matmul = at<Matmul>(setting, ops[0]), &next = at<Matmul>(setting, ops[2]);
  const Fragment& fragment = setting.traits().fragment;
  const uint32_t columns = setting.desc(at<RmsNorm>(setting, ops[1]).out).columns;
  const GroupPieces& group = setting.weights.group(matmul.group);
  if (fragment.m == 0) return "the device has no fragments";
  if (setting.list.rows_of(matmul.x) > fragment.n) return "more rows than a matrix has";
  if (state.slot < 0) return "no norm before it kept its factor";
  if (columns != setting.hidden_columns || columns % (4 * fragment.m) != 0) return "no place for a norm so wide";
  if (group.pieces.size() != 1 || group.bias >= 0) return "the weights have several pieces or a bias";
  if (state.left == matmul.x) return "its own input is an unfinished norm";
  return takes_open_norm(setting, matmul) && takes_open_norm(setting, next) ? nullptr
                                                                            : "no kernel for these rows and weights";
}
Step make_normed(const Setting& setting, FuseState* state, const Ops& ops) {
  const RmsNorm& norm = at<RmsNorm>(setting, ops[1]);
  state->left = norm.out;
  state->eps = norm.eps;
  return NormedMatmulStep{ops[0], ops[1], static_cast<uint32_t>(state->slot)};
}

// ---- parts_matmul

const char* refuses_parts(const Setting& setting, const FuseState&, const Ops& ops) {
  const Matmul& matmul = at<Matmul>(setting, ops[0]);
  const uint32_t quads = norm_quads(setting.traits(), setting.desc(matmul.out).columns);
  if (quads == 0) return "the norm's invocations keep no numbers";
  const std::optional<PieceLaunch> launch = choose_parts(setting, matmul);
  if (!launch) return "no kernel for these rows and weights";
  if (launch->choice.parts <= 1) return "no tile has several equal parts";
  if (launch->choice.parts * quads > setting.tuning().norm_parts_quads_max) return "too many parts for the norm";
  return parts_bytes(setting, matmul, launch->choice) <= setting.products_bytes ? nullptr : "no room for the parts";
}
Step make_parts(const Setting& setting, FuseState* state, const Ops& ops) {
  const Matmul& matmul = at<Matmul>(setting, ops[0]);
  state->end(matmul.x);
  state->parts_of = matmul.out;
  state->parts = choose_parts(setting, matmul)->choice.parts;
  return PartsMatmulStep{ops[0], state->parts};
}

// ---- qkv_matmul

const char* refuses_qkv(const Setting& setting, const FuseState&, const Ops& ops) {
  if (is_op<QkNorm>(setting, ops[1])) return "no kernel norms q and k too";
  if (ops.size() != 4 || !is_op<Rope>(setting, ops[1]) || !is_op<KvWrite>(setting, ops[2]) ||
      !is_op<PagedAttention>(setting, ops[3]))
    return "not rope, kv_write and attention in this order";
  const Matmul& matmul = at<Matmul>(setting, ops[0]);
  const Rope& rope = at<Rope>(setting, ops[1]);
  const KvDType dtype = setting.kv_groups[at<KvWrite>(setting, ops[2]).kv_group].dtype;
  if (setting.traits().fragment.m == 0) return "the device has no fragments";
  if (setting.list.rows_of(matmul.x) > setting.traits().fragment.n) return "more rows than a matrix has";
  if (rope.rope_dim != rope.head_dim || rope.head_dim % 16 != 0) return "a part of the head turns";
  if (dtype != KvDType::kF16 && dtype != KvDType::kBF16) return "the pool is quantised";
  const auto fits = [&](const Piece& piece) {
    return takes_fragment(setting.target, product_of(setting, matmul, piece)) && piece.row_begin % rope.head_dim == 0 &&
           piece.num_rows % rope.head_dim == 0;
  };
  return setting.desc(matmul.x).columns % 32 == 0 &&
                 std::ranges::all_of(setting.weights.group(matmul.group).pieces, fits)
             ? nullptr
             : "no kernel for these rows and weights";
}
Step make_qkv(const Setting& setting, FuseState* state, const Ops& ops) {
  return QkvMatmulStep{ops[0], ops[1], ops[2], state->end(at<Matmul>(setting, ops[0]).x)};
}

// ---- qkv_heads

const char* refuses_nothing(const Setting&, const FuseState&, const Ops&) {
  return nullptr;
}
Step make_heads(const Setting& setting, FuseState*, const Ops& ops) {
  QkvHeadsStep step;
  for (const uint32_t op : ops) {
    int& place = is_op<QkNorm>(setting, op) ? step.norm : is_op<Rope>(setting, op) ? step.rope : step.kv_write;
    place = static_cast<int>(op);
  }
  return step;
}

}  // namespace

NormEnd FuseState::end(TensorId x) {
  if (left != x) return {};
  const NormEnd found{slot, eps};
  slot = 1 - slot;
  left = kNoTensor;
  eps = 0;
  return found;
}

// In the order in which they are tried at an op.
std::span<const Pattern> all_patterns() {
  static constexpr Pattern kPatterns[] = {
      {"qkv_heads", find_qkv_heads, refuses_nothing, make_heads, false},
      {"gated_matmul", find_gated_matmul, refuses_gated, make_gated, true},
      {"normed_matmul", find_normed_matmul, refuses_normed, make_normed, false},
      {"parts_matmul", find_parts_matmul, refuses_parts, make_parts, false},
      {"qkv_matmul", find_qkv_matmul, refuses_qkv, make_qkv, false},
  };
  return kPatterns;
}

}  // namespace llmrt::vulkan
