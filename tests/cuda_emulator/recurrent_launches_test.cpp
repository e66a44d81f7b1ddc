// The launches of the recurrent part of a layer, pinned: which kernels, on which grids, without a device.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>

#include "backends/cuda/choose.h"

namespace llmrt::cuda {
namespace {

// Qwen3.5-27B: 16 key heads and 48 value heads, all of 128 numbers.
constexpr uint32_t kConv = 2 * 16 * 128 + 48 * 128, kAll = kConv + 48 * 128 + 2 * 48;

struct Layer {
  std::vector<PackedMatrix> tensors;
  KvGroup states{.num_layers = 1,
                 .num_blocks = 8,
                 .state_columns = conv_slots(4) * kConv + 48 * 128 * 128 +
                                  static_cast<uint32_t>(StateRing{48, 16, 128, 128}.numbers())};
  CompileInputs inputs;

  Layer() {
    for (const auto& [rows, columns] : {std::pair{kConv, 4u}, {1u, 48u}, {1u, 128u}}) {
      PackedMatrix& matrix = tensors.emplace_back();
      matrix.rows = rows;
      matrix.columns = columns;
      matrix.row_stride = static_cast<uint32_t>(plane_row_bytes(Encoding::kF32, 0, columns));
    }
    inputs.device.num_sms = 132;
    inputs.device.shared_bytes_max = 227 << 10;
    inputs.tensors = tensors;
    inputs.pools = {&states, 1};
  }

  // "kernel variant x by y threads shared", a line a launch.
  std::string launches(uint32_t rows, bool decode_only, bool batch_invariant, uint32_t first = 0,
                       uint32_t ring_tokens = kRingTokens) const {
    OpList list{"forward", rows, 0, {}, {}};
    list.decode_only = decode_only;
    list.batch_invariant = batch_invariant;
    const auto tensor = [&](uint32_t columns) {
      return list.add_tensor({"", Rows::kTokens, columns, DType::kF32, Storage::kArena});
    };
    const TensorId all = tensor(kAll + 4), qkv = tensor(kConv), mixed = tensor(48 * 128), out = tensor(48 * 128);
    Launches found;
    CausalConv conv{};
    conv.x = {all, first};
    conv.weight = 0;
    conv.bias = -1;
    conv.width = 4;
    conv.silu = true;
    conv.out = qkv;
    REQUIRE(choose(conv, list, inputs, &found).ok());
    GatedDelta delta{};
    delta.qkv = {qkv};
    delta.alpha = delta.beta = {all, kAll - 48};
    delta.a = delta.dt_bias = 1;
    delta.key_heads = 16;
    delta.value_heads = 48;
    delta.key_dim = delta.value_dim = 128;
    delta.state = {0, 0, conv_slots(4) * kConv, ring_tokens};
    delta.out = mixed;
    REQUIRE(choose(delta, list, inputs, &found).ok());
    REQUIRE(choose(GatedNorm{mixed, {all, kConv}, 2, 128, 1e-6f, false, out}, list, inputs, &found).ok());
    std::string text;
    for (const Launch& launch : found) {
      const KernelChoice& choice = launch.choice;
      text += fmt::format("{} {} {} x {} of {}, {}\n", choice.kernel, choice.variant, choice.grid.x, choice.grid.y,
                          choice.threads, choice.shared_bytes);
    }
    return text;
  }
};

}  // namespace

TEST_CASE("a recurrent layer's launches are pinned", "[program][recurrent]") {
  const Layer layer;
  const std::string one =
      "causal_conv token 1 x 20 of 128, 0\ngated_delta ring 192 x 1 of 128, 11712\ngated_norm  12 x 1 of 128, 0\n";
  CHECK(layer.launches(1, true, false) == one);
  CHECK(layer.launches(256, true, false) ==
        "causal_conv token 256 x 20 of 128, 0\ngated_delta ring 192 x 256 of 128, 11712\n"
        "gated_norm  3072 x 1 of 128, 0\n");
  Layer asked = layer;
  asked.inputs.device.has_state_products = true;
  CHECK(asked.launches(2048, false, false) ==
        "causal_conv tile 128 x 20 of 128, 0\ngated_delta ring of short rows 192 x 16 of 128, 11712\n"
        "gated_delta products 96 x 8 of 128, 202368\nstate_entries  15 x 64 of 256, 0\n"
        "gated_norm  24576 x 1 of 128, 0\n");
  asked.inputs.device.shared_bytes_max = 99 << 10;
  CHECK(asked.launches(2048, false, false) == layer.launches(2048, false, false));
  CHECK(layer.launches(2048, false, false) ==
        "causal_conv tile 128 x 20 of 128, 0\ngated_delta groups of 4 192 x 64 of 128, 38656\n"
        "state_entries  15 x 64 of 256, 0\ngated_norm  24576 x 1 of 128, 0\n");
  // Invariant: one token at a time, and rows of any length. x that is not at a multiple of four: a channel a thread.
  CHECK(layer.launches(2048, false, true, 1) ==
        "causal_conv tile 128 x 80 of 128, 0\ngated_delta ring 192 x 64 of 128, 11712\n"
        "state_entries  15 x 64 of 256, 0\ngated_norm  24576 x 1 of 128, 0\n");
  CHECK(layer.launches(1, true, true) ==
        "causal_conv token 1 x 20 of 128, 0\ngated_delta ring 192 x 1 of 128, 11712\n"
        "state_entries  15 x 1 of 256, 0\ngated_norm  12 x 1 of 128, 0\n");
  // No ring.
  CHECK(layer.launches(1, true, false, 0, 0) ==
        "causal_conv token 1 x 20 of 128, 0\ngated_delta  192 x 1 of 128, 9472\ngated_norm  12 x 1 of 128, 0\n");
  CHECK(layer.launches(2048, false, false, 0, 0) ==
        "causal_conv tile 128 x 20 of 128, 0\ngated_delta groups of 4 192 x 64 of 128, 38656\n"
        "gated_norm  24576 x 1 of 128, 0\n");
}

TEST_CASE("recurrent ops are refused without a group of states, or with a ring that they have not",
          "[program][recurrent]") {
  Layer layer;
  OpList list{"forward", 1, 0, {}, {}};
  const TensorId x = list.add_tensor({"", Rows::kTokens, 4, DType::kF32, Storage::kArena});
  CausalConv conv{};
  conv.x = {x};
  conv.weight = 0;
  conv.width = 4;
  conv.out = x;
  conv.state.ring_tokens = 16;
  Launches found;
  CHECK(choose(conv, list, layer.inputs, &found).error().code == ErrorCode::kUnsupported);
  conv.state = {1, 0, 0};
  CHECK(choose(conv, list, layer.inputs, &found).error().code == ErrorCode::kInvalidArgument);
  conv.state = {0, 0, 0};
  layer.states.state_columns = 0;
  CHECK(choose(conv, list, layer.inputs, &found).error().code == ErrorCode::kInvalidArgument);
  CHECK(found.empty());
}

}  // namespace llmrt::cuda
