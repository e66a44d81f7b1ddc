#include "backends/vulkan/choose_matmul.h"

#include <fmt/format.h>

#include <algorithm>

namespace llmrt::vulkan {
namespace {

// Workgroups that share the columns of each tile: enough to fill the device once.
uint32_t num_splits(const Traits& traits, const std::vector<PieceLaunch>& launches) {
  uint32_t tiles = 0, splits = UINT32_MAX, core_groups = 1;
  for (const PieceLaunch& launch : launches) {
    const MatmulChoice& choice = launch.choice;
    LLMRT_CHECK(choice.core_groups * choice.split_bytes <= kSplitBytesCore, "matmul: products");
    tiles += choice.groups.x * choice.groups.y;
    splits = std::min(splits, choice.splits_max);
    core_groups = choice.core_groups;
  }
  return std::max(1u, std::min(splits, traits.num_cores * core_groups / tiles));
}

// Splits of a batch-invariant list, a function of the weights' shape: of the columns, in steps of 64 within a split.
uint32_t num_invariant_splits(const Traits& traits, const std::vector<PieceLaunch>& launches) {
  uint32_t tiles = 0, splits = UINT32_MAX;
  for (const PieceLaunch& launch : launches) {
    tiles += launch.choice.invariant_tiles;
    splits = std::min(splits, launch.choice.splits_max);
  }
  return tiles == 0 ? 1 : std::clamp(traits.num_cores / tiles, 1u, splits);
}

// Each launch gets its splits and a place of its own for what they hand over.
void place_sums(const Setting& setting, uint32_t splits, std::vector<PieceLaunch>* launches) {
  uint64_t products = 0, arrivals = 0;
  for (PieceLaunch& launch : *launches) {
    MatmulChoice& choice = launch.choice;
    launch.products_bytes = choice.shared_bytes;
    if (choice.shared_bytes == 0) {
      choice.groups.z = splits;
      launch.products_bytes = splits > 1 ? choice.num_arrivals() * splits * choice.split_bytes : 0;
    }
    if (launch.products_bytes == 0) continue;
    launch.arrivals_bytes = choice.num_arrivals() * 4;
    launch.products_first = products;
    launch.arrivals_first = arrivals;
    products += launch.products_bytes;
    arrivals += launch.arrivals_bytes;
  }
  LLMRT_CHECK(products <= setting.products_bytes && arrivals <= setting.arrivals_bytes,
              "matmul: sums that workgroups hand over");
}

PieceLaunch launch_of(const Product& product, MatmulChoice choice) {
  PieceLaunch launch;
  launch.piece = product.piece;
  launch.products_bytes = choice.shared_bytes;
  launch.arrivals_bytes = choice.shared_bytes > 0 ? choice.num_arrivals() * 4 : 0;
  launch.choice = std::move(choice);
  return launch;
}

}  // namespace

std::string print(const MatmulChoice& choice) {
  std::string text = print(static_cast<const KernelChoice&>(choice));
  if (choice.groups.z > 1) text += fmt::format(" split_bytes={}", choice.split_bytes);
  if (choice.shared_bytes > 0) text += fmt::format(" shared_bytes={} tile_parts={}", choice.shared_bytes, choice.parts);
  if (choice.groups.z > 1 || choice.shared_bytes > 0) text += fmt::format(" arrivals={}", choice.num_arrivals());
  return text;
}

uint32_t unit_columns(Encoding encoding) {
  return !is_quantized(encoding) ? 8 : is_of_bytes(encoding) ? 16 : 32;
}

MatmulChoice choose_product(const Target& target, const Product& product, const Ends& ends, uint32_t serial) {
  const Traits& traits = target.traits;
  if (takes_fragment(target, product)) return choose_fragment(target, product, ends);
  if (takes_wide(target, product, false)) return choose_wide(target, product, ends);
  if (takes_lanes(traits)) return choose_lanes(target, product, ends);
  // Matrix units multiply f16: f32 factors keep their precision elsewhere.
  const bool fits_matrix =
      traits.tier >= Tier::kMatrix && product.x == DType::kF16 && product.fits_f16() && product.columns % 64 == 0;
  if (fits_matrix && (product.rows > target.tuning.vector_rows_max_beside_matrix || product.batch_invariant))
    return choose_matrix(target, product, ends, serial);
  if (product.rows <= vector_rows_max(target, product.is_quantized()) && !product.batch_invariant)
    return choose_vector(target, product, ends);
  return choose_tile(target, product, ends);
}

Product product_of(const Setting& setting, const Matmul& op, const Piece& piece) {
  return {piece,
          setting.list.rows_of(op.x),
          setting.desc(op.x).columns,
          setting.desc(op.out).columns,
          setting.desc(op.x).dtype,
          setting.list.batch_invariant};
}

Result<std::vector<PieceLaunch>> choose_matmul(const Setting& setting, const Matmul& op, float norm_eps) {
  const GroupPieces& group = setting.weights.group(op.group);
  const uint32_t columns = setting.desc(op.x).columns;
  if (columns % 32 != 0)
    return make_error(ErrorCode::kUnsupported, "vulkan: matmul: expected columns in multiples of 32, found {}",
                      columns);
  const Ends ends{.bias = group.bias >= 0, .norm_eps = norm_eps};
  // Slices first: the other pieces then run at the same time.
  std::vector<PieceLaunch> slices, launches;
  std::vector<Product> products;
  for (const Piece& piece : group.pieces) {
    Product product = product_of(setting, op, piece);
    const bool in_f16 = takes_halves(setting, product, false);
    if (in_f16 && !piece.has_copy()) {
      for (PieceLaunch& slice : choose_slices(setting, product, ends)) slices.push_back(std::move(slice));
      continue;
    }
    if (in_f16) product.piece = copy_of(piece);
    product.share = static_cast<double>(piece.num_rows) / product.out_columns;
    launches.push_back(launch_of(product, choose_product(setting.target, product, ends)));
    products.push_back(product);
  }
  if (!launches.empty()) {
    uint32_t splits = setting.list.batch_invariant ? num_invariant_splits(setting.traits(), launches)
                                                   : num_splits(setting.traits(), launches);
    // Several workgroups make the splits of one tile of rows; of more tiles one workgroup makes all, one after another.
    if (setting.list.batch_invariant && splits > 1 && launches[0].choice.groups.x > 1) {
      for (size_t i = 0; i < launches.size(); ++i)
        launches[i] = launch_of(products[i], choose_product(setting.target, products[i], ends, splits));
      splits = 1;
    }
    place_sums(setting, splits, &launches);
  }
  slices.insert(slices.end(), launches.begin(), launches.end());
  return slices;
}

bool can_gate(const Setting& setting, const Matmul& op, const GatedActivation& activation) {
  const GroupPieces& group = setting.weights.group(op.group);
  const TensorDesc& out = setting.desc(activation.out);
  if (activation.activation != Activation::kSilu && activation.activation != Activation::kGelu) return false;
  if (group.pieces.size() != 1 || group.bias >= 0 || setting.desc(op.x).columns % 32 != 0) return false;
  if (takes_lanes(setting.traits())) return out.dtype == DType::kF32;
  Product product = product_of(setting, op, group.pieces[0]);
  product.out_columns = out.columns;
  return out.dtype == DType::kF16 && out.columns % 4 == 0 &&
         (takes_fragment(setting.target, product) || takes_halves(setting, product, true) ||
          takes_wide(setting.target, product, true));
}

std::vector<PieceLaunch> choose_gated(const Setting& setting, const Matmul& op, const GatedActivation& activation,
                                      float norm_eps) {
  const Piece& piece = setting.weights.group(op.group).pieces[0];
  const Ends ends{.activation = &activation, .norm_eps = norm_eps};
  Product product = product_of(setting, op, piece);
  product.out_columns = setting.desc(activation.out).columns;
  const bool in_f16 = takes_halves(setting, product, true);
  if (in_f16 && !piece.has_copy()) return choose_slices(setting, product, ends);
  if (in_f16) product.piece = copy_of(piece);
  const Target& target = setting.target;
  return {launch_of(product, takes_lanes(target.traits)        ? choose_lanes(target, product, ends)
                             : takes_fragment(target, product) ? choose_fragment(target, product, ends)
                                                               : choose_wide(target, product, ends))};
}

std::optional<PieceLaunch> choose_parts(const Setting& setting, const Matmul& op) {
  const Target& target = setting.target;
  const GroupPieces& group = setting.weights.group(op.group);
  if (group.pieces.size() != 1 || group.bias >= 0 || setting.desc(op.x).columns % 32 != 0) return {};
  Product product = product_of(setting, op, group.pieces[0]);
  if (takes_few(target, product.piece, product.rows)) return {};
  if (takes_halves(setting, product, false)) {
    if (!product.piece.has_copy()) return {};
    product.piece = copy_of(product.piece);
  }
  const Ends ends{.leaves_parts = true};
  if (takes_fragment(target, product)) return launch_of(product, choose_batch(target, product, ends));
  if (takes_wide(target, product, false)) return launch_of(product, choose_wide(target, product, ends));
  return {};
}

uint64_t parts_bytes(const Setting& setting, const Matmul& op, const MatmulChoice& choice) {
  return uint64_t{choice.parts} * setting.list.rows_of(op.x) * setting.desc(op.out).columns * 4;
}

}  // namespace llmrt::vulkan
