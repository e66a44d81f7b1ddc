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

constexpr const char* kNoKernel = "no kernel for these rows and weights";
constexpr const char* kNoFragments = "the device has no fragments";
constexpr const char* kManyRows = "more rows than a matrix has";

// ---- gated_matmul

const char* take_gated(const Setting& setting, FuseState* state, const Ops& ops, Step* step) {
  const Matmul& matmul = at<Matmul>(setting, ops[0]);
  if (!can_gate(setting, matmul, at<GatedActivation>(setting, ops[1]))) return kNoKernel;
  *step = GatedMatmulStep{ops[0], ops[1], state->end(matmul.x)};
  return nullptr;
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

const char* take_normed(const Setting& setting, FuseState* state, const Ops& ops, Step* step) {
  const Matmul &matmul = at<Matmul>(setting, ops[0]), &next = at<Matmul>(setting, ops[2]);
  const RmsNorm& norm = at<RmsNorm>(setting, ops[1]);
  const Fragment& fragment = setting.traits().fragment;
  const uint32_t columns = setting.desc(norm.out).columns;
  const GroupPieces& group = setting.weights.group(matmul.group);
  if (fragment.m == 0) return kNoFragments;
  if (setting.list.rows_of(matmul.x) > fragment.n) return kManyRows;
  if (state->slot < 0) return "no norm before it kept its factor";
  if (columns != setting.hidden_columns || columns % (4 * fragment.m) != 0) return "no place for a norm so wide";
  if (group.pieces.size() != 1 || group.bias >= 0) return "the weights have several pieces or a bias";
  if (state->left == matmul.x) return "its own input is an unfinished norm";
  if (!takes_open_norm(setting, matmul) || !takes_open_norm(setting, next)) return kNoKernel;
  state->left = norm.out;
  state->eps = norm.eps;
  *step = NormedMatmulStep{ops[0], ops[1], static_cast<uint32_t>(state->slot)};
  return nullptr;
}

// ---- parts_matmul

const char* take_parts(const Setting& setting, FuseState* state, const Ops& ops, Step* step) {
  const Matmul& matmul = at<Matmul>(setting, ops[0]);
  const uint32_t quads = norm_quads(setting.traits(), setting.desc(matmul.out).columns);
  if (quads == 0) return "the norm's invocations keep no numbers";
  const std::optional<PieceLaunch> launch = choose_parts(setting, matmul);
  if (!launch) return kNoKernel;
  const uint32_t parts = launch->choice.parts;
  if (parts <= 1) return "no tile has several equal parts";
  if (parts * quads > setting.tuning().norm_parts_quads_max) return "too many parts for the norm";
  if (parts_bytes(setting, matmul, launch->choice) > setting.products_bytes) return "no room for the parts";
  state->end(matmul.x);
  state->parts_of = matmul.out;
  state->parts = parts;
  *step = PartsMatmulStep{ops[0], parts};
  return nullptr;
}

// ---- qkv_matmul

const char* take_qkv(const Setting& setting, FuseState* state, const Ops& ops, Step* step) {
  if (is_op<QkNorm>(setting, ops[1])) return "no kernel norms q and k too";
  if (ops.size() != 4 || !is_op<Rope>(setting, ops[1]) || !is_op<KvWrite>(setting, ops[2]) ||
      !is_op<PagedAttention>(setting, ops[3]))
    return "not rope, kv_write and attention in this order";
  const Matmul& matmul = at<Matmul>(setting, ops[0]);
  const Rope& rope = at<Rope>(setting, ops[1]);
  const KvDType dtype = setting.kv_groups[at<KvWrite>(setting, ops[2]).kv_group].dtype;
  if (setting.traits().fragment.m == 0) return kNoFragments;
  if (setting.list.rows_of(matmul.x) > setting.traits().fragment.n) return kManyRows;
  if (rope.rope_dim != rope.head_dim || rope.head_dim % 16 != 0) return "a part of the head turns";
  if (dtype != KvDType::kF16 && dtype != KvDType::kBF16) return "the pool is quantised";
  if (setting.desc(matmul.x).columns % 32 != 0) return kNoKernel;
  for (const Piece& piece : setting.weights.group(matmul.group).pieces)
    if (!takes_fragment(setting.target, product_of(setting, matmul, piece)) || piece.row_begin % rope.head_dim != 0 ||
        piece.num_rows % rope.head_dim != 0)
      return kNoKernel;
  *step = QkvMatmulStep{ops[0], ops[1], ops[2], state->end(matmul.x)};
  return nullptr;
}

// ---- qkv_heads

const char* take_heads(const Setting& setting, FuseState*, const Ops& ops, Step* step) {
  QkvHeadsStep heads;
  for (const uint32_t op : ops) {
    int& place = is_op<QkNorm>(setting, op) ? heads.norm : is_op<Rope>(setting, op) ? heads.rope : heads.kv_write;
    place = static_cast<int>(op);
  }
  *step = heads;
  return nullptr;
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

std::span<const Pattern> all_patterns() {
  static constexpr Pattern kPatterns[] = {
      {"qkv_heads", find_qkv_heads, take_heads, false, true},
      {"gated_matmul", find_gated_matmul, take_gated, true, false},
      {"normed_matmul", find_normed_matmul, take_normed, false, false},
      {"parts_matmul", find_parts_matmul, take_parts, false, false},
      {"qkv_matmul", find_qkv_matmul, take_qkv, false, false},
  };
  return kPatterns;
}

}  // namespace llmrt::vulkan
