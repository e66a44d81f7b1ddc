// Which matmul kernel multiplies a piece of a weight group, and in what shape: values made from op, shapes, traits and
// tuning, without a device. choose_matmul.cpp has the order in which kernels are asked; the other files have a family
// each: few (one matrix of rows of x), batch (several), wide (many, and weights written out in f16), sums (the others).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/setting.h"
#include "core/ops/ops.h"

namespace llmrt::vulkan {

// Rows of x by one piece of a group.
struct Product {
  Piece piece;
  uint32_t rows, columns, out_columns;
  DType x;
  bool batch_invariant;
  double share = 1;  // of the device, where several pieces of a group run at a time

  uint32_t num_rows() const { return static_cast<uint32_t>(piece.num_rows); }
  bool is_quantized() const { return llmrt::is_quantized(piece.encoding); }
  // Whether kernels may round weights to f16.
  bool fits_f16() const { return piece.encoding != Encoding::kF32 && !piece.is_beyond_f16; }
  bool is_k() const { return is_k_block(piece.encoding); }
};

// What a kernel does besides the product.
struct Ends {
  bool bias = false;
  const GatedActivation* activation = nullptr;
  const Rope* rope = nullptr;  // with kv_write into a pool of that dtype
  uint32_t pool_dtype = 0;
  bool leaves_norm = false;
  float norm_eps = 0;  // above 0: x is a norm that this kernel ends
  bool leaves_parts = false;

  uint32_t activates() const { return activation != nullptr; }
  uint32_t activation_constant() const { return activation ? static_cast<uint32_t>(activation->activation) : 0; }
  uint32_t rope_pairing() const;
  uint32_t norm_eps_bits() const;
};

// Which struct of kernels/matmul_push.h the kernel takes.
enum class PushKind : uint8_t { kPlain, kSplit, kRuns, kEnds };

struct MatmulChoice : KernelChoice {
  PushKind push = PushKind::kPlain;
  // kSplit: how many workgroups may share the columns of a tile, the bytes that each then hands over, how many of them
  // fill a core, and tiles that all numbers of rows count alike (0: no matrix units).
  uint32_t splits_max = 1, split_bytes = 0, core_groups = 1, invariant_tiles = 0;
  uint64_t shared_bytes = 0;    // kRuns: what their workgroups hand over
  uint32_t group_arrivals = 1;  // words of a workgroup that count arrivals
  uint32_t parts = 1;           // kRuns: workgroups that have an equal part of each tile; 0: they have unequal ones

  // Words that count arrivals; where one workgroup has all tiles, one that no kernel reads.
  uint64_t num_arrivals() const {
    return shared_bytes > 0 && groups.x == 1 ? 1 : uint64_t{groups.x} * groups.y * group_arrivals;
  }
};
// Kernel and groups, then what its workgroups share.
std::string print(const MatmulChoice& choice);

// ---- the kernels, each with its condition ---------------------------------------------------------------------------

bool takes_lanes(const Traits& traits);
// At most one matrix of rows of x: matmul_fragment or matmul_row.
bool takes_few(const Target& target, const Piece& piece, uint32_t rows);
// One row in whole turns: matmul_row. `turns`: with rope.
bool takes_row(const Target& target, const Product& product, bool activates, bool turns);
// matmul_fragment, matmul_row or matmul_batch.
bool takes_fragment(const Target& target, const Product& product);
bool takes_wide(const Target& target, const Product& product, bool activates);

MatmulChoice choose_few(const Target& target, const Product& product, const Ends& ends);
MatmulChoice choose_batch(const Target& target, const Product& product, const Ends& ends);
MatmulChoice choose_fragment(const Target& target, const Product& product, const Ends& ends);
MatmulChoice choose_wide(const Target& target, const Product& product, const Ends& ends);
MatmulChoice choose_lanes(const Target& target, const Product& product, const Ends& ends);
// `serial`: splits that one workgroup makes one after the other.
MatmulChoice choose_matrix(const Target& target, const Product& product, const Ends& ends, uint32_t serial);
MatmulChoice choose_vector(const Target& target, const Product& product, const Ends& ends);
MatmulChoice choose_tile(const Target& target, const Product& product, const Ends& ends);
// Whichever of them the product takes.
MatmulChoice choose_product(const Target& target, const Product& product, const Ends& ends, uint32_t serial = 1);

uint32_t unit_columns(Encoding encoding);  // twin: shaders/dequant.glsl kUnitVecs

// ---- weights in f16 -------------------------------------------------------------------------------------------------

// Rows [first, first + num_first) of a piece, and behind them num_second rows from the middle of it plus `first` on (of
// an up behind its gate). Both are multiples of 8.
struct HalvesSlice {
  uint64_t first, num_first, num_second;
};
// Whether the piece can be multiplied in f16, with its copy, or written out in every step.
bool can_write_halves(const Target& target, const Piece& piece, uint64_t columns);
// Whether this product is.
bool takes_halves(const Setting& setting, const Product& product, bool activates);
// All rows of a piece that has a copy, as a piece of f16.
Piece copy_of(const Piece& piece);

// ---- a group --------------------------------------------------------------------------------------------------------

// One launch of matmul, with the place of its sums in Resources::products and of its counts in Resources::arrivals.
// With a slice its rows are written to Resources::halves first.
struct PieceLaunch {
  Piece piece;  // a slice's view starts at address 0; it gets its place when it is emitted
  std::optional<HalvesSlice> slice;
  Piece source = {};  // the piece that a slice is written from
  MatmulChoice choice;
  uint64_t products_first = 0, products_bytes = 0, arrivals_first = 0, arrivals_bytes = 0;
};

// A product of weights that are written out slice by slice.
std::vector<PieceLaunch> choose_slices(const Setting& setting, const Product& product, const Ends& ends);
Product product_of(const Setting& setting, const Matmul& op, const Piece& piece);
// A matmul by itself. Errors: unsupported shapes.
Result<std::vector<PieceLaunch>> choose_matmul(const Setting& setting, const Matmul& op, float norm_eps);
// A matmul with the gated activation of its result; `can_gate` says whether a kernel makes both.
bool can_gate(const Setting& setting, const Matmul& op, const GatedActivation& activation);
std::vector<PieceLaunch> choose_gated(const Setting& setting, const Matmul& op, const GatedActivation& activation,
                                      float norm_eps);
// A matmul that leaves its result in parts, where its kernel's workgroups share tiles evenly.
std::optional<PieceLaunch> choose_parts(const Setting& setting, const Matmul& op);
uint64_t parts_bytes(const Setting& setting, const Matmul& op, const MatmulChoice& choice);

}  // namespace llmrt::vulkan
