// Which kernels multiply routed rows by experts' matrices, and in which shape: values made from shapes, traits and
// tuning, without a device. Rows reach experts by items: at most so many rows of one expert, which one workgroup takes.
// How many items a step has is known on the device alone; grids have room for as many as the list's rows can make, and
// a workgroup without one leaves.
#pragma once

#include <cstdint>

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/setting.h"
#include "core/ops/ops.h"

namespace llmrt::vulkan {

// Twin: shaders/expert_items.glsl.
enum class ItemKind : uint32_t { kOfOne, kSorted, kOfMatrix };

// How routed rows are dealt out.
struct ExpertItems {
  ItemKind kind = ItemKind::kSorted;
  uint32_t rows_max = 1;    // of an item
  uint32_t items_max = 1;   // as many as there can be
  uint32_t rows_first = 0;  // word of the sorted rows. Twin: shaders/expert_items.glsl

  uint64_t bytes(uint32_t rows) const { return (rows_first + uint64_t{rows}) * 4; }
  bool operator==(const ExpertItems&) const = default;
};

// Rows by the matrices of experts, or by one matrix (a router's).
struct ExpertProduct {
  Piece weight, up;          // up: where the rows of up are, counted as gate's are; only gated
  uint32_t up_first = 0;     // row of `up` that is the first expert's first
  uint32_t expert_rows = 0;  // rows from an expert to the next
  uint32_t num_experts = 0;  // 0: one matrix
  uint32_t outputs = 0;      // of an expert
  uint32_t columns = 0;
  uint32_t rows = 0, per_row = 1;  // routed rows of the bucket, and how many of them a row of the list has
  DType x = DType::kF32, out = DType::kF32;
  bool is_up = false;  // of ExpertGateUp: x has one row for all of its routed ones
  bool gated = false, bias = false, batch_invariant = false;
  bool term = false;  // of ExpertGateUp: something is added to its products
  Activation activation = Activation::kSilu;
};

struct ExpertChoice {
  KernelChoice kernel;
  ExpertItems items;
  bool joins = false;  // ExpertDown as a whole; else products, which expert_sum adds up
};

// Errors: unsupported (experts' rows that are not in one piece).
Result<ExpertProduct> product_of(const Setting& setting, const ExpertGateUp& op);
Result<ExpertProduct> product_of(const Setting& setting, const ExpertDown& op);
Result<ExpertProduct> product_of(const Setting& setting, const RouteExperts& op);

// Whether x is rounded to f16 by a dispatch before the product, which then reads it as such.
bool rounds_x(const Target& target, const ExpertProduct& product);
ExpertChoice choose_experts(const Target& target, const ExpertProduct& product);

// Rows of a dispatch of the router, and outputs of one of ExpertDown, whose results fit in Resources::products.
uint32_t scores_rows(const Setting& setting, uint32_t num_experts, uint32_t rows);
uint32_t sums_outputs(const Setting& setting, const ExpertProduct& product);

// Bytes of Resources::routes for lists of so many rows: items and the rows' order; behind them x in f16.
uint64_t routes_bytes_max(uint32_t rows);
uint64_t routed_x_bytes_max(const WeightPieces& weights, uint32_t rows);

// Lanes of a workgroup of sort_experts and of route_experts.
uint32_t sort_lanes(const Traits& traits);
uint32_t route_lanes(const Traits& traits);

}  // namespace llmrt::vulkan
