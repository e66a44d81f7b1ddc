// What the expert kernels share: their push constants, where a row of weights is, how x is read, and what becomes of
// products. With kGated an output is activation(gate product, up product) of an expert's rows of gate and of up, each with
// its bias, and with kTerm what adapters add to it, in kOutDType. With kActivation kSquaredRelu it is that of the one product that there is. Else it is the product
// itself, in f32, of outputs output_first and on: a part of ExpertDown's, which expert_sum.comp adds up, or scores of a router.
//
// Needs types.glsl, dequant.glsl, activation.glsl, gated.glsl, expert_items.glsl.
layout(constant_id = 11) const uint kXDType = kF32;
layout(constant_id = 12) const uint kItems = kItemsSorted;
layout(constant_id = 13) const uint kOutDType = kF32;
layout(constant_id = 14) const bool kGated = false;
layout(constant_id = 15) const uint kActivation = kSilu;
layout(constant_id = 16) const bool kBias = false;    // with an activation, or where a kernel joins products itself
layout(constant_id = 17) const bool kRagged = false;  // rows of floats that are no whole units
layout(constant_id = 18) const bool kTerm = false;    // with an activation

layout(push_constant) uniform Push {
  Words x, weight, up;  // up: like weight; the rows up_first and on are those of up, in the order of gate's
  Floats bias;
  Words result, items, count;
  uint columns, row_words, num_outputs, output_first;  // num_outputs: that this dispatch makes, from output_first on
  uint expert_rows, up_first;                          // rows from an expert to the next
  uint bias_up;                                        // from a bias of gate to that of up
  uint per_row, x_per_row;                             // routed rows of a live one, of a row of x
  uint rows_first, result_columns;
  Floats weights;  // of routed rows, where a kernel joins products itself
  Floats term;     // of routed rows: numbers of gate's products, then of up's
};

Item take_item(uint i, uint rows_max) { return item_at(kItems, items, i, count.w[0] * per_row, rows_max, rows_first); }
uint row_of(Item item, uint n) { return routed_row(kItems, items, rows_first, item, n); }

// Row of the weight of output `i` of this dispatch.
uint gate_row(Item item, uint i) { return item.expert * expert_rows + output_first + min(i, num_outputs - 1u); }

// Units of a row, the last of which may be filled up by zeros.
uint all_units() { return kRagged ? (columns + kUnitVecs * 4u - 1u) / (kUnitVecs * 4u) : num_units(columns); }

float load1(uint idx) {
  if (kXDType == kF32) return uintBitsToFloat(x.w[idx]);
  vec2 pair = unpack16(x.w[idx >> 1], kXDType);
  return (idx & 1u) == 0u ? pair.x : pair.y;
}
// vec4 `at` of row `row` of x.
vec4 x_vec4(uint row, uint at) {
  if (!kRagged) return load4(x, row * (columns / 4u) + at, kXDType);
  vec4 y = vec4(0.0);
  [[unroll]] for (uint e = 0; e < 4; ++e)
    if (at * 4u + e < columns) y[e] = load1(row * columns + at * 4u + e);
  return y;
}

// Output `i` of routed row `row` of an item: of its products.
float output_of(Item item, uint row, uint i, float gate, float up_product) {
  if (!kGated && kActivation != kSquaredRelu) return gate;
  if (kBias) {
    uint at = item.expert * expert_rows + output_first + i;
    gate += bias.f[at];
    if (kGated) up_product += bias.f[at + bias_up];
  }
  if (kTerm) {
    uint at = row * (kGated ? 2u : 1u) * result_columns + i;
    gate += term.f[at];
    if (kGated) up_product += term.f[at + result_columns];
  }
  return kGated ? gated(kActivation, gate, up_product) : squared_relu(gate);
}
