// validating: one right step passes; each of many small lies is refused with the name of the op or array and the field.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>

#include "core/backend/validating.h"
#include "tests/ops/op_harness.h"
#include "tests/reference/backend.h"

namespace llmrt::optest {
namespace {

// A tiny decoder step: two rows (a prompt of 3 tokens and a decode token), everything that a real step has.
struct World {
  Suite suite;
  std::vector<KvGroup> groups = {{1, 1, 32, 16, 8, KvDType::kF16, 3}};
  StateConfig state;
  OpList memory{"memory", 0, 0, {}, {StoreBlocks{0}, LoadBlocks{0}, CopyBlocks{0}}};
  OpList forward{"forward", 8, 0, {}, {}}, sample{"sample", 0, 4, {}, {}};
  ForwardInputs forward_inputs;
  SampleInputs sample_inputs;
  bool want_logprobs = true;
  // Tensors by name, for the lies.
  TensorId tokens, positions, row_slots, kv_slots, x, normed, qkv, attended, hidden, gathered, logits, processed, kept;

  World() {
    auto rng = test_rng("validating");
    const WeightId embedding = suite.add_weight(Encoding::kF16, 50, 32, rng);
    const WeightId norm = suite.add_weight(Encoding::kF32, 1, 32, rng);
    const WeightId freqs = suite.add_weight(Encoding::kF32, 1, 16, rng);
    const WeightGroupId qkv_group = suite.add_group({suite.add_weight(Encoding::kQ8_0, 128, 32, rng)}, true, rng);
    const WeightGroupId head = suite.add_group({embedding}, false, rng);
    make_forward(embedding, norm, freqs, qkv_group);
    make_sample(head);
    make_inputs();
    make_state();
  }

  TensorId add(OpList& list, const char* name, Rows rows, uint32_t columns, DType dtype = DType::kF32,
               Storage storage = Storage::kArena) {
    return list.add_tensor({name, rows, columns, dtype, storage});
  }

  void make_forward(WeightId embedding, WeightId norm, WeightId freqs, WeightGroupId qkv_group) {
    tokens = add(forward, "tokens", Rows::kTokens, 1, DType::kI32);
    positions = add(forward, "positions", Rows::kTokens, 1, DType::kI32);
    row_slots = add(forward, "row_slots", Rows::kTokens, 1, DType::kI32);
    kv_slots = add(forward, "kv_slots", Rows::kTokens, 1, DType::kI32);
    x = add(forward, "x", Rows::kTokens, 32);
    normed = add(forward, "normed", Rows::kTokens, 32);
    qkv = add(forward, "qkv", Rows::kTokens, 128);
    attended = add(forward, "attended", Rows::kTokens, 64);
    hidden = add(forward, "hidden", Rows::kTokens, 32, DType::kF32, Storage::kHidden);
    forward.ops = {UpdateRows{},
                   PrepareRows{tokens, positions, row_slots, {kv_slots}},
                   Embed{tokens, embedding, x},
                   RmsNorm{x, kNoTensor, norm, 1e-5f, normed},
                   Matmul{normed, qkv_group, qkv},
                   Rope{qkv, positions, freqs, 2, 1, 32, 32, RopePairing::kHalves, 1},
                   KvWrite{qkv, kv_slots, 0, 0, 2, 1, 32},
                   PagedAttention{qkv, attended, 0, 0, 2, 1, 32, 0.2f, 0, 0},
                   Add{x, x, hidden}};
  }

  void make_sample(WeightGroupId head) {
    const TensorId handed = add(sample, "hidden", Rows::kTokens, 32, DType::kF32, Storage::kHidden);
    gathered = add(sample, "gathered", Rows::kSampled, 32);
    logits = add(sample, "logits", Rows::kSampled, 50);
    processed = add(sample, "processed", Rows::kSampled, 50);
    kept = add(sample, "kept", Rows::kSampled, 8, DType::kI32);
    sample.ops = {GatherRows{handed, gathered},      Matmul{gathered, head, logits},
                  ApplyPenalties{logits, processed}, ApplyBias{processed},
                  Filter{logits, processed, kept},   Sample{logits, processed, kept},
                  Logprobs{logits, processed, kept}};
  }

  void make_inputs() {
    Step step;
    RowSampling sampling;
    sampling.flags = kRowPenalties | kRowBias;
    sampling.penalty_slot = 1;
    step.set_sampling(0, sampling);
    step.add_update(RowUpdateKind::kRecount, 0, 1, 2, {3, 4, 5});
    step.patch_table(0, 0, {3, 5});
    step.set_sampling(2, {});
    step.patch_table(2, 0, {1, 2});
    step.add_update(RowUpdateKind::kCopySlot, 3, 2, 0);
    step.add_row(0, 0, 3, {7, 8, 9});
    step.add_row(2, 20, 1, {kLastSampled});
    step.add_prompt_items(0);
    step.add_decode_items(1, 16);
    forward_inputs = step.forward_inputs;
    forward_inputs.block_stores = {{4, 1, 16}, {4, 2, 16}};
    forward_inputs.block_loads = {{2, 4, 16}};
    forward_inputs.block_copies = {{0, 6, 16}, {0, 7, 3}};
    sample_inputs.records = {{0, 2, 0, kSampleLogprobs, -1, 0, 2}, {2, 3, 5, kSampleForced, 4}};
    sample_inputs.bias_entries = {{3, 1.5f}, {4, -INFINITY}};
    sample_inputs.mask_records = {{MaskKind::kBits, 0, 2}, {MaskKind::kList, 2, 3}};
    sample_inputs.mask_words = {0x8000'0001u, 0x2'0000u, 3, 7, 49};
    sample_inputs.records[0].mask = 1;
  }

  void make_state() {
    state.step_tokens_max = 8;
    state.sample_rows_max = 4;
    state.slots_max = 4;
    state.penalty_rows_max = 2;
    state.blocks_row_max = 4;
    state.partials_max = 4;
    state.heads_max = 2;
    state.head_dim_max = 32;
    state.hidden_columns = 32;
    state.vocab_size = 50;
    state.forward_words_max = state.sample_words_max = 1000;
    state.arena_bytes = 1 << 16;
  }

  // The error text of loading everything and submitting one step, or "".
  std::string submit() {
    auto backend = make_validating(make_reference_backend());
    if (Status status = backend->load_weights(suite.weights, {}); !status) return status.error().message;
    if (Status status = backend->create_state(state); !status) return status.error().message;
    if (Status status = backend->create_kv_pools(groups); !status) return status.error().message;
    std::vector<uint32_t> forward_words, sample_words;
    pack(forward_inputs, &forward_words);
    pack(sample_inputs, &sample_words);
    const SealedList sealed_memory(memory), sealed_forward(forward), sealed_sample(sample);
    auto ticket = backend->submit({&sealed_memory, &sealed_forward, forward_words, &sealed_sample, sample_words,
                                   static_cast<uint32_t>(sample_inputs.records.size()), want_logprobs});
    if (!ticket) {
      CHECK(ticket.error().code == ErrorCode::kInvalidArgument);
      return ticket.error().message;
    }
    auto output = backend->wait(*ticket);
    return output ? "" : output.error().message;
  }

  AttentionWork& work() { return forward_inputs.attention[0]; }
  template <class T>
  T& op() {
    for (OpList* list : {&memory, &forward, &sample})
      for (Op& op : list->ops)
        if (T* found = std::get_if<T>(&op)) return *found;
    FAIL("no such op");
    return std::get<T>(forward.ops[0]);
  }
  TensorDesc& tensor(OpList& list, TensorId id) { return list.tensors[static_cast<size_t>(id)]; }
};

// A second group with larger blocks, whose table the step sets for both rows; attention looks at it.
void add_group(World& w) {
  w.state.num_kv_groups = 2;
  w.groups.push_back({1, 1, 32, 32, 4, KvDType::kF16, 2});
  w.forward_inputs.attention[1] = w.work();
  w.op<PagedAttention>().kv_group = 1;
  for (const uint32_t slot : {0u, 2u}) {
    const uint32_t first = static_cast<uint32_t>(w.forward_inputs.row_payload.size());
    w.forward_inputs.row_payload.push_back(slot + 1);
    w.forward_inputs.row_updates.push_back({RowUpdateKind::kPatchTable, slot, 0, 1, first, 1});
  }
  w.memory.ops.push_back(CopyBlocks{1});
  w.forward_inputs.block_copies.push_back({0, 2, 32, 1});
}

// A second group, of states, with a record for either row and a sum over x.
void add_states(World& w) {
  w.state.num_kv_groups = 2;
  w.groups.push_back({.num_layers = 2, .block_tokens = 48, .num_blocks = 4, .num_host_blocks = 2, .state_columns = 32});
  for (const uint32_t slot : {0u, 2u}) {
    const uint32_t first = static_cast<uint32_t>(w.forward_inputs.row_payload.size());
    w.forward_inputs.row_payload.push_back(slot + 1);
    w.forward_inputs.row_updates.push_back({RowUpdateKind::kPatchTable, slot, 0, 1, first, 1});
  }
  w.memory.ops.insert(w.memory.ops.end(), {StoreBlocks{1}, LoadBlocks{1}, CopyBlocks{1}});
  w.forward_inputs.block_stores.push_back({1, 0, 48, 1});
  w.forward_inputs.block_loads.push_back({1, 2, 48, 1});
  w.forward_inputs.block_copies.push_back({2, 0, 48, 1});
  const TensorId sums = w.add(w.forward, "sums", Rows::kTokens, 32);
  w.forward.ops.push_back(RunningSum{w.x, 1, 1, sums});
}

// Ops of recurrent layers over parts of one record, row 2 from record 3 on.
void add_recurrent(World& w) {
  add_states(w);
  w.forward.ops.pop_back();
  w.groups[1].state_columns = 288;
  auto rng = test_rng("validating recurrent");
  const WeightId conv = w.suite.add_weight(Encoding::kF32, 32, 4, rng);
  const WeightId norm = w.op<RmsNorm>().weight, two = w.suite.add_f32({-1, -2});
  const auto out = [&w](const char* name, uint32_t columns) { return w.add(w.forward, name, Rows::kTokens, columns); };
  const std::vector<Op> ops = {
      CausalConv{{w.x}, {}, {}, conv, norm, 4, true, {1, 1, 0}, out("convolved", 32)},
      GatedDelta{{w.x},
                 {w.x, 16},
                 {w.x, 18},
                 two,
                 two,
                 1,
                 2,
                 4,
                 4,
                 KeyHeadOrder::kModulo,
                 false,
                 true,
                 1e-6f,
                 0.5f,
                 {1, 1, 192},
                 out("delta", 8)},
      SelectiveScan{
          {w.x}, {w.x, 8}, {w.x, 16}, {w.x, 24}, two, two, -1, 2, 4, 1, 8, 0, 1e30f, {1, 0, 224}, out("scanned", 8)},
      GatedNorm{w.x, {w.attended, 32}, norm, 16, 1e-5f, false, out("gated", 32)}};
  w.forward.ops.insert(w.forward.ops.end(), ops.begin(), ops.end());
  w.memory.ops.resize(3);
  w.forward_inputs.block_loads.pop_back();
  w.forward_inputs.block_stores.pop_back();
  w.forward_inputs.block_copies.pop_back();
  w.forward_inputs.rows[1].num_places = 1;
  w.forward_inputs.state_places = {{1, 2, 20}};
}

// A second group, of rows of latents, and a layer over them.
void add_latent(World& w) {
  add_group(w);
  w.groups[1] = {.num_layers = 2,
                 .num_kv_heads = 1,
                 .head_dim = 48,
                 .block_tokens = 32,
                 .num_blocks = 4,
                 .num_host_blocks = 2,
                 .keys_only = true};
  w.op<PagedAttention>().kv_group = 0;
  auto rng = test_rng("validating latent");
  const WeightId norm = w.suite.add_f32(std::vector<float>(32, 1.0f)), freqs = w.suite.add_f32(rope_frequencies(16));
  const WeightId keys = w.suite.add_weight(Encoding::kF16, 2 * 32, 8, rng);
  const WeightGroupId group = w.suite.add_group({keys}, false, rng);
  const auto add = [&w](const char* name, uint32_t columns) { return w.add(w.forward, name, Rows::kTokens, columns); };
  const TensorId q = add("latent_q", 2 * 24), kv = add("latent_kv", 48), query = add("latent_query", 2 * 48);
  for (const TensorId id : {q, kv}) w.forward.tensors[static_cast<size_t>(id)].storage = Storage::kPinned;
  const TensorId out = add("latent_out", 2 * 32);
  const std::vector<Op> ops = {LatentRows{q,
                                          kv,
                                          w.positions,
                                          w.kv_slots,
                                          norm,
                                          freqs,
                                          1,
                                          1,
                                          2,
                                          8,
                                          32,
                                          16,
                                          RopePairing::kInterleaved,
                                          1,
                                          1e-5f,
                                          {},
                                          query},
                               HeadMatmul{q, group, 2, query, false},
                               LatentAttention{query, out, 1, 1, 2, 32, 16, 0.2f}};
  w.forward.ops.insert(w.forward.ops.end(), ops.begin(), ops.end());
}

// A third group, of keys that the first row has of the latents, and attention over them.
void add_expanded(World& w) {
  add_latent(w);
  w.groups.push_back({.num_layers = 1,
                      .num_kv_heads = 1,
                      .head_dim = 24,
                      .block_tokens = kExpandItemKeys,
                      .num_blocks = 3,
                      .is_expanded = true});
  w.state.num_kv_groups = 3;
  auto rng = test_rng("validating expanded");
  const auto add_heads = [&](uint32_t dim) {
    return w.suite.add_group({w.suite.add_weight(Encoding::kF16, 2 * dim, 32, rng)}, false, rng);
  };
  const WeightGroupId keys = add_heads(8), values = add_heads(16);
  const TensorId out = w.add(w.forward, "expanded_out", Rows::kTokens, 2 * 16);
  w.forward.tensors[static_cast<size_t>(out)].storage = Storage::kPinned;
  w.forward.ops.push_back(ExpandLatent{keys, values, 1, 1, 2, 0, 2, 8, 32, 16, 16});
  PagedAttention attention{w.op<LatentRows>().q, out, 2, 0, 2, 2, 24, 0.2f, 0, 0};
  attention.queries_only = true;
  attention.value_dim = 16;
  w.forward.ops.push_back(attention);
  // Row 0 has 3 tokens from position 0 on. Its tables of both groups.
  for (const uint32_t group : {1u, 2u}) {
    w.forward_inputs.row_updates.push_back(
        {RowUpdateKind::kPatchTable, 0, 0, group, static_cast<uint32_t>(w.forward_inputs.row_payload.size()), 1});
    w.forward_inputs.row_payload.push_back(0);
  }
  w.forward_inputs.attention[1].prompt_items.clear();
  w.forward_inputs.attention[2].prompt_items = w.forward_inputs.attention[0].prompt_items;
  w.forward_inputs.attention[2].expand_items = {{0, 0, 3, 0}};
}

// The prompt item of 3 tokens `times` over, with partial results from 2 on, which nothing merges.
void split_prompt(World& w, uint32_t times) {
  w.state.partials_max = 2 + times * 3;
  const AttentionItem item = w.work().prompt_items[0];
  w.work().prompt_items.assign(times, item);
  for (uint32_t i = 0; i < times; ++i) w.work().prompt_items[i].partial = static_cast<int32_t>(2 + i * 3);
}

// A layer of 4 experts of 16 behind the rest, two a row.
void add_experts(World& w) {
  auto rng = test_rng("validating experts");
  const WeightId router = w.suite.add_weight(Encoding::kF32, 4, 32, rng);
  const WeightGroupId gate_up = w.suite.add_group({w.suite.add_weight(Encoding::kF16, 128, 32, rng)}, false, rng);
  const WeightGroupId down = w.suite.add_group({w.suite.add_weight(Encoding::kF16, 128, 16, rng)}, false, rng);
  w.forward.routed_per_row = 2;
  const TensorId ids = w.add(w.forward, "ids", Rows::kRouted, 1, DType::kI32);
  const TensorId weights = w.add(w.forward, "weights", Rows::kRouted, 1);
  const TensorId activated = w.add(w.forward, "activated", Rows::kRouted, 16, DType::kF16);
  const TensorId sum = w.add(w.forward, "sum", Rows::kTokens, 32);
  w.forward.ops.push_back(RouteExperts{w.x, router, -1, -1, -1, {}, ids, weights});
  w.forward.ops.push_back(ExpertGateUp{w.x, ids, gate_up, 4, false, Activation::kSilu, activated});
  w.forward.ops.push_back(ExpertDown{activated, ids, weights, down, 4, sum});
}

struct Lie {
  const char* names;  // what the message must say
  void (*tell)(World& w);
};

}  // namespace

TEST_CASE("validating lets a step of two groups through", "[validating]") {
  World world;
  add_group(world);
  CHECK(world.submit() == "");
}

TEST_CASE("validating lets a right step through", "[validating]") {
  CHECK(World().submit() == "");
}

TEST_CASE("validating lets a step of a group of states through", "[validating][running_sum]") {
  World world;
  add_states(world);
  CHECK(world.submit() == "");
}

TEST_CASE("validating lets ops of recurrent layers and places of states through", "[validating][recurrent]") {
  World world;
  add_recurrent(world);
  CHECK(world.submit() == "");
}

TEST_CASE("validating refuses wrong ops of recurrent layers", "[validating][recurrent]") {
  const Lie lies[] = {
      {"causal_conv: x: expected a tensor", [](World& w) { w.op<CausalConv>().x = {}; }},
      {"causal_conv: x: columns: expected at most 32, found 33", [](World& w) { w.op<CausalConv>().x.first = 1; }},
      {"causal_conv: gate_in: expected [T, any] f32", [](World& w) { w.op<CausalConv>().gate_in = {w.positions}; }},
      {"causal_conv: width: expected 2 to 8", [](World& w) { w.op<CausalConv>().width = 9; }},
      {"causal_conv: weight: expected [32, 3] f32, found [32, 4]", [](World& w) { w.op<CausalConv>().width = 3; }},
      {"causal_conv: bias: expected [1, 32] f32", [](World& w) { w.op<CausalConv>().bias = w.op<GatedDelta>().a; }},
      {"causal_conv: kv_group: expected a group of states", [](World& w) { w.op<CausalConv>().state.kv_group = 0; }},
      {"causal_conv: layer: expected below 2", [](World& w) { w.op<CausalConv>().state.layer = 2; }},
      {"causal_conv: state_first: expected a multiple of 4", [](World& w) { w.op<CausalConv>().state.first = 2; }},
      {"causal_conv: state: expected at most 288, found 292", [](World& w) { w.op<CausalConv>().state.first = 100; }},
      {"causal_conv: ring_tokens: expected 0", [](World& w) { w.op<CausalConv>().state.ring_tokens = 16; }},
      {"state_columns: expected a multiple of 4", [](World& w) { w.groups[1].state_columns = 290; }},
      {"gated_delta: beta: columns: expected at most 32", [](World& w) { w.op<GatedDelta>().beta.first = 31; }},
      {"gated_delta: qkv: columns: expected at most 32", [](World& w) { w.op<GatedDelta>().qkv.first = 20; }},
      {"gated_delta: ring_tokens: expected 0 or 16", [](World& w) { w.op<GatedDelta>().state.ring_tokens = 8; }},
      {"gated_delta: state: expected at most 288", [](World& w) { w.op<GatedDelta>().state.ring_tokens = 16; }},
      {"gated_delta: key_dim: expected a multiple of 4 up to 256", [](World& w) { w.op<GatedDelta>().key_dim = 6; }},
      {"gated_delta: value_dim: expected a multiple of 4", [](World& w) { w.op<GatedDelta>().value_dim = 260; }},
      {"gated_delta: value_heads: expected a multiple of 0", [](World& w) { w.op<GatedDelta>().key_heads = 0; }},
      {"gated_delta: order: expected divided", [](World& w) { w.op<GatedDelta>().gates_in_turn = true; }},
      {"gated_delta: a: expected [1, 2] f32", [](World& w) { w.op<GatedDelta>().a = w.op<RmsNorm>().weight; }},
      {"gated_delta: out: expected [T, 8] f32", [](World& w) { w.op<GatedDelta>().out = w.normed; }},
      {"selective_scan: num_heads: expected a multiple of 3", [](World& w) { w.op<SelectiveScan>().num_groups = 3; }},
      {"selective_scan: dt: columns: expected at most 32", [](World& w) { w.op<SelectiveScan>().dt.first = 31; }},
      {"selective_scan: dt_min: expected 0 to", [](World& w) { w.op<SelectiveScan>().dt_min = -1; }},
      {"selective_scan: dt_max: expected a finite number", [](World& w) { w.op<SelectiveScan>().dt_max = INFINITY; }},
      {"selective_scan: d: expected [1, 2] f32", [](World& w) { w.op<SelectiveScan>().d = w.op<RmsNorm>().weight; }},
      {"selective_scan: state: expected at most 288", [](World& w) { w.op<SelectiveScan>().state.first = 228; }},
      {"gated_norm: group_columns: expected a part of 32", [](World& w) { w.op<GatedNorm>().group_columns = 5; }},
      {"gated_norm: gate: columns: expected at most 64, found 65", [](World& w) { w.op<GatedNorm>().gate.first = 33; }},
      {"gated_norm: weight: expected [1, 32] f32", [](World& w) { w.op<GatedNorm>().weight = w.op<GatedDelta>().a; }},
  };
  for (const Lie& lie : lies) {
    World world;
    add_recurrent(world);
    lie.tell(world);
    CHECK_THAT(world.submit(), Catch::Matchers::ContainsSubstring(lie.names));
  }
}

TEST_CASE("validating passes ops of latent attention and refuses wrong ones", "[validating][latent]") {
  World right;
  add_latent(right);
  CHECK(right.submit() == "");
  const Lie lies[] = {
      {"latent_rows: rank: expected a multiple of 16, found 24", [](World& w) { w.op<LatentRows>().rank = 24; }},
      {"latent_rows: rank + rope_dim: expected 48, found 64", [](World& w) { w.op<LatentRows>().rope_dim = 32; }},
      {"latent_rows: q: expected [T, 48] f32", [](World& w) { w.op<LatentRows>().q = w.x; }},
      {"latent_rows: norm: expected [1, 32] f32", [](World& w) { w.op<LatentRows>().norm = w.op<LatentRows>().freqs; }},
      {"latent_rows: kv_group: expected one of keys only, found one of keys and values",
       [](World& w) { w.op<LatentRows>().kv_group = 0; }},
      {"latent_rows: layer: expected below 2", [](World& w) { w.op<LatentRows>().layer = 2; }},
      {"head_matmul: num_heads: expected a part of 64 rows, found 3",
       [](World& w) { w.op<HeadMatmul>().num_heads = 3; }},
      {"head_matmul: x columns: expected 8 heads of at least 8", [](World& w) { w.op<HeadMatmul>().num_heads = 8; }},
      {"head_matmul: out columns: expected 2 heads of at least 32", [](World& w) { w.op<HeadMatmul>().out = w.x; }},
      {"head_matmul: fills_out: expected false, found true", [](World& w) { w.op<HeadMatmul>().fills_out = true; }},
      {"head_matmul: group: expected no bias, found one", [](World& w) { w.op<HeadMatmul>().group = 0; }},
      {"latent_attention: query: expected [T, 96] f32", [](World& w) { w.op<LatentAttention>().query = w.x; }},
      {"latent_attention: query: expected [T, 144] f32", [](World& w) { w.op<LatentAttention>().num_heads = 3; }},
      {"latent_attention: kv_group: expected below 2", [](World& w) { w.op<LatentAttention>().kv_group = 2; }},
      {"paged_attention: kv_group: expected one of keys and values, found one of keys only",
       [](World& w) { w.op<PagedAttention>().kv_group = 1; }},
  };
  for (const Lie& lie : lies) {
    World world;
    add_latent(world);
    lie.tell(world);
    INFO(lie.names);
    CHECK_THAT(world.submit(), Catch::Matchers::ContainsSubstring(lie.names));
  }
}

TEST_CASE("validating refuses expanded latents that are not there", "[validating][latent_attention]") {
  const auto attention = [](World& w) -> PagedAttention& { return std::get<PagedAttention>(w.forward.ops.back()); };
  const auto item = [](World& w) -> ExpandItem& { return w.forward_inputs.attention[2].expand_items[0]; };
  const std::vector<std::pair<const char*, std::function<void(World&)>>> lies = {
      {"expand_latent: nope + rope_dim: expected 32, found 24", [](World& w) { w.groups[2].head_dim = 32; }},
      {"expand_latent: key_group: rows: expected 8 of each of at least 3 heads, found 16",
       [](World& w) { w.op<ExpandLatent>().head_first = 1; }},
      {"expand_latent: expanded_group: expected one for expanded keys, found a cache",
       [](World& w) { w.op<ExpandLatent>().expanded_group = 0; }},
      {"expand_latent: value_group: rows: expected 32 of each of at least 2 heads, found 32",
       [](World& w) { w.op<ExpandLatent>().value_dim = 32; }},
      {"paged_attention: out: expected [T, 48]", [&](World& w) { attention(w).value_dim = 0; }},
      {"paged_attention: value_dim: expected 0 over a cache, found 16", [&](World& w) { attention(w).kv_group = 0; }},
      {"paged_attention: value_dim: expected 0 but for queries over all keys without sinks, found 16",
       [&](World& w) { attention(w).window = 5; }},
      {"paged_attention: head_first + num_heads: expected at most 2, found 3",
       [&](World& w) { attention(w).head_first = 1; }},
      {"expand_items[0]: slot: expected that of a row, found 1", [&](World& w) { item(w).slot = 1; }},
      {"expand_items[0]: key_begin: expected a multiple of 64, found 1", [&](World& w) { item(w).key_begin = 1; }},
      {"expand_items[0]: num_keys: expected 1 to 64, found 0", [&](World& w) { item(w).num_keys = 0; }},
      {"expand_items[0]: keys: expected at most 3, found 4", [&](World& w) { item(w).num_keys = 4; }},
      {"expand_items[0]: block: expected below 1, found 1", [&](World& w) { item(w).block = 1; }},
      {"group 1: items: tokens: expected at most 3, found 4", [](World& w) { w.forward_inputs.num_absorbed = 3; }},
      {"group 2: prompt_items[0]: keys: expected ones that are expanded, found 0",
       [&](World& w) { item(w).num_keys = 2; }},
      {"group 2: prompt_items[0]: keys: expected ones that are expanded, found 0",
       [](World& w) { w.forward_inputs.attention[2].expand_items.clear(); }},
  };
  World right;
  add_expanded(right);
  CHECK(right.submit() == "");
  for (const auto& [names, tell] : lies) {
    World world;
    add_expanded(world);
    tell(world);
    INFO(names);
    CHECK_THAT(world.submit(), Catch::Matchers::ContainsSubstring(names));
  }
}

TEST_CASE("validating refuses wrong places of states", "[validating][recurrent]") {
  const auto place = [](World& w) -> StatePlace& { return w.forward_inputs.state_places[0]; };
  const Lie lies[] = {
      {"state_places[0]: kv_group: expected below 2", [](World& w) { w.forward_inputs.state_places[0].kv_group = 2; }},
      {"state_places[0]: kv_group: expected a group of states",
       [](World& w) { w.forward_inputs.state_places[0].kv_group = 0; }},
      {"state_places[0]: record: expected below 4", [](World& w) { w.forward_inputs.state_places[0].record = 4; }},
      {"state_places[0]: position: expected 20 to 21",
       [](World& w) { w.forward_inputs.state_places[0].position = 19; }},
      {"state_places[0]: position: expected 20 to 21",
       [](World& w) { w.forward_inputs.state_places[0].position = 22; }},
      {"state_places[0]: position: expected a multiple of 64",
       [](World& w) { w.forward_inputs.state_places[0].position = 21; }},
      {"state_places[0]: record: expected one of group 1 that no row writes, found 3",
       [](World& w) { w.forward_inputs.state_places[0].record = 3; }},
      {"state_places[0]: record: expected one of group 1 that no row writes, found 1",
       [](World& w) { w.forward_inputs.state_places[0].record = 1; }},
      {"state_places: places of rows: expected 1, found 2",
       [](World& w) {
         w.forward_inputs.state_places.push_back({1, 0, 20});
       }},
      {"rows[1]: places: expected at most 1", [](World& w) { w.forward_inputs.rows[1].num_places = 2; }},
      {"rows[1]: places_first: expected 0", [](World& w) { w.forward_inputs.rows[1].places_first = 1; }},
      {"state_places[1]: position: expected one place of a group",
       [](World& w) {
         w.forward_inputs.rows[1].num_places = 2;
         w.forward_inputs.state_places.push_back({1, 0, 20});
       }},
  };
  for (const Lie& lie : lies) {
    World world;
    add_recurrent(world);
    CHECK(place(world).position == 20);
    lie.tell(world);
    CHECK_THAT(world.submit(), Catch::Matchers::ContainsSubstring(lie.names));
  }
  // A row that ends at a multiple of 64, whose places are written.
  const auto submit = [](uint32_t first, uint32_t second, uint32_t record) {
    World world;
    add_recurrent(world);
    world.forward_inputs.rows[1].start = 63;
    world.tensor(world.forward, world.attended).storage = Storage::kPinned;
    std::erase_if(world.forward.ops, [](const Op& op) { return std::holds_alternative<PagedAttention>(op); });
    world.forward_inputs.row_payload.insert(world.forward_inputs.row_payload.end(), {1, 2, 4, 0});
    world.forward_inputs.row_updates.push_back(
        {RowUpdateKind::kPatchTable, 2, 0, 0, static_cast<uint32_t>(world.forward_inputs.row_payload.size()) - 4, 4});
    world.forward_inputs.rows[1].num_places = 2;
    world.forward_inputs.state_places = {{1, 0, first}, {1, record, second}};
    return world.submit();
  };
  CHECK(submit(63, 64, 2) == "");
  CHECK_THAT(submit(64, 63, 2), Catch::Matchers::ContainsSubstring("state_places[1]: position: expected at least 64"));
  CHECK_THAT(submit(63, 64, 1), Catch::Matchers::ContainsSubstring("that nothing else writes"));
  CHECK_THAT(submit(63, 64, 0), Catch::Matchers::ContainsSubstring("that no row writes"));
}

TEST_CASE("validating refuses a wrong op list and names op and field", "[validating]") {
  const Lie lies[] = {
      {"rms_norm: x: expected below 9", [](World& w) { w.op<RmsNorm>().x = 99; }},
      {"embed: weight: expected below", [](World& w) { w.op<Embed>().weight = -1; }},
      {"matmul: group: expected below 2", [](World& w) { w.op<Matmul>().group = 2; }},
      {"rms_norm: weight: expected [1, 32] f32", [](World& w) { w.op<RmsNorm>().weight = 2; }},
      {"rms_norm: out: expected not a tensor that the op reads", [](World& w) { w.op<RmsNorm>().out = w.x; }},
      {"rms_norm: eps: expected a finite number", [](World& w) { w.op<RmsNorm>().eps = NAN; }},
      {"matmul: out: expected [T, 128] f32", [](World& w) { w.op<Matmul>().out = w.attended; }},
      {"matmul: x: expected [T, 32] f32, f16 or bf16, found [T, 1] i32",
       [](World& w) { w.op<Matmul>().x = w.positions; }},
      {"embed: tokens: expected a tensor that was written before",
       [](World& w) { std::swap(w.forward.ops[1], w.forward.ops[2]); }},
      {"rope: rope_dim: expected even, at most 32", [](World& w) { w.op<Rope>().rope_dim = 33; }},
      {"rope: qkv: expected [T, 160] f32", [](World& w) { w.op<Rope>().num_heads = 3; }},
      {"rope: freqs: expected [1, 8] f32", [](World& w) { w.op<Rope>().rope_dim = 16; }},
      {"kv_write: layer: expected below 1", [](World& w) { w.op<KvWrite>().layer = 1; }},
      {"kv_write: kv_group: expected below 1", [](World& w) { w.op<KvWrite>().kv_group = 1; }},
      {"paged_attention: num_heads: expected at most 1", [](World& w) { w.state.heads_max = 1; }},
      {"paged_attention: num_heads: expected a multiple of num_kv_heads",
       [](World& w) { w.op<PagedAttention>().num_kv_heads = 0; }},
      {"paged_attention: out: expected [T, 64]", [](World& w) { w.tensor(w.forward, w.attended).columns = 63; }},
      {"copy_blocks: kv_group", [](World& w) { w.op<CopyBlocks>().kv_group = 7; }},
      {"store_blocks: kv_group", [](World& w) { w.op<StoreBlocks>().kv_group = 1; }},
      {"load_blocks: kv_group", [](World& w) { w.op<LoadBlocks>().kv_group = 1; }},
      {"forward list: op 7 copy_blocks: list: expected an op of this part",
       [](World& w) { w.forward.ops.insert(w.forward.ops.begin() + 7, CopyBlocks{0}); }},
      {"memory list: op 3 update_rows: list: expected an op of this part",
       [](World& w) { w.memory.ops.push_back(UpdateRows{}); }},
      {"add: b: expected [T, 32] f32", [](World& w) { w.op<Add>().b = w.attended; }},
      {"tensor hidden: shape", [](World& w) { w.state.hidden_columns = 64; }},
      {"forward list: num_tokens: expected at most 4", [](World& w) { w.state.step_tokens_max = 4; }},
      {"sample list: num_sampled: expected at most 3", [](World& w) { w.state.sample_rows_max = 3; }},
      {"forward list: arena bytes", [](World& w) { w.state.arena_bytes = 100; }},
      {"name: expected one tensor of a name", [](World& w) { w.tensor(w.forward, w.x).name = "qkv"; }},
      {"gather_rows: out: expected [R, 32] f32", [](World& w) { w.op<GatherRows>().out = w.logits; }},
      {"filter: kept: expected [R, 8] i32", [](World& w) { w.tensor(w.sample, w.kept).columns = 7; }},
      {"logits columns: expected at most 49", [](World& w) { w.state.vocab_size = 49; }},
      {"sample: kept: expected a tensor that was written before",
       [](World& w) { std::swap(w.sample.ops[4], w.sample.ops[5]); }},
      {"list: expected an op of this part", [](World& w) { w.sample.ops.push_back(UpdateRows{}); }},
      {"list: expected an op of this part",
       [](World& w) {
         w.forward.ops.push_back(GatherRows{w.x, w.normed});
       }},
      {"rms_norm: out: expected [T, 32] f32, f16 or bf16, found [K, 32] f32",
       [](World& w) {
         w.forward.routed_per_row = 2;
         w.tensor(w.forward, w.normed).rows = Rows::kRouted;
       }},
      {"tensor routed: rows: expected routed_per_row of at least 1",
       [](World& w) { w.add(w.forward, "routed", Rows::kRouted, 32); }},
      {"matmul: x: expected rows T or R, found K",
       [](World& w) {
         w.forward.routed_per_row = 2;
         const TensorId routed = w.add(w.forward, "routed", Rows::kRouted, 32, DType::kF32, Storage::kPinned);
         w.forward.ops.push_back(Matmul{routed, 0, w.add(w.forward, "product", Rows::kRouted, 128)});
       }},
      {"gated_activation: out: expected rows T or R, found K",
       [](World& w) {
         w.forward.routed_per_row = 2;
         const TensorId routed = w.add(w.forward, "routed", Rows::kRouted, 64, DType::kF32, Storage::kPinned);
         w.forward.ops.push_back(
             GatedActivation{routed, Activation::kSilu, w.add(w.forward, "activated", Rows::kRouted, 32)});
       }},
      {"route_experts: weights: expected [K, 1] f32",
       [](World& w) { add_experts(w), w.op<RouteExperts>().weights = w.attended; }},
      {"route_experts: num_shared: expected below routed_per_row 2",
       [](World& w) { add_experts(w), w.op<RouteExperts>().rule.num_shared = 2; }},
      {"route_experts: groups: expected a part of 4 experts",
       [](World& w) { add_experts(w), w.op<RouteExperts>().rule.groups = 3; }},
      {"route_experts: groups_used: expected 1 to 4",
       [](World& w) {
         add_experts(w), w.op<RouteExperts>().rule.groups = 4, w.op<RouteExperts>().rule.groups_used = 5;
       }},
      {"route_experts: chosen experts: expected at most 1",
       [](World& w) { add_experts(w), w.op<RouteExperts>().rule.groups = 4; }},
      {"route_experts: bias: expected [1, 4] f32",
       [](World& w) { add_experts(w), w.op<RouteExperts>().bias = w.op<RmsNorm>().weight; }},
      {"expert_gate_up: group: expected [160, 32] of 5 experts, found [128, 32]",
       [](World& w) { add_experts(w), w.op<ExpertGateUp>().num_experts = 5; }},
      {"expert_gate_up: out: expected [K, any]",
       [](World& w) { add_experts(w), w.op<ExpertGateUp>().out = w.attended; }},
      {"expert_down: group: expected [128, 16] of 4 experts, found [128, 32]",
       [](World& w) { add_experts(w), w.op<ExpertDown>().group = w.op<ExpertGateUp>().group; }},
      {"expert_down: out: expected rows T or R",
       [](World& w) { add_experts(w), w.op<ExpertDown>().out = w.add(w.forward, "routed", Rows::kRouted, 32); }},
      {"columns: expected a multiple of 32", [](World& w) { w.suite.weights.tensors[3].columns = 33; }},
      {"expected rows within 128", [](World& w) { w.suite.weights.groups[0].segments[0].row_begin = 1; }},
      {"kv groups: expected at most 1", [](World& w) { w.groups.push_back(w.groups[0]); }},
      {"num_kv_groups: expected 1 to 4", [](World& w) { w.state.num_kv_groups = 5; }},
      {"kv_slots: group: expected below 1",
       [](World& w) {
         w.op<PrepareRows>().kv_slots = {kNoTensor, w.kv_slots};
       }},
      {"block_tokens: expected 16, 32 or 64", [](World& w) { w.groups[0].block_tokens = 8; }},
      {"running_sum: kv_group: expected below 2", [](World& w) { add_states(w), w.op<RunningSum>().kv_group = 2; }},
      {"running_sum: kv_group: expected a group of states, found one of blocks",
       [](World& w) { add_states(w), w.op<RunningSum>().kv_group = 0; }},
      {"running_sum: layer: expected below 2", [](World& w) { add_states(w), w.op<RunningSum>().layer = 2; }},
      {"running_sum: x: expected [T, 33] f32", [](World& w) { add_states(w), w.groups[1].state_columns = 33; }},
      {"running_sum: out: expected [T, 32] f32", [](World& w) { add_states(w), w.op<RunningSum>().out = w.attended; }},
      {"kv_write: kv_group: expected a group of blocks, found one of states",
       [](World& w) { add_states(w), w.op<KvWrite>().kv_group = 1; }},
      {"paged_attention: kv_group: expected a group of blocks, found one of states",
       [](World& w) { add_states(w), w.op<PagedAttention>().kv_group = 1; }},
      {"kv_slots: group: expected one of blocks, found one of states",
       [](World& w) { add_states(w), w.op<PrepareRows>().kv_slots[1] = w.kv_slots; }},
      {"sample list: op 7 running_sum: list: expected an op of this part",
       [](World& w) {
         w.sample.ops.push_back(RunningSum{w.gathered, 0, 0, w.logits});
       }},
  };
  for (const Lie& lie : lies) {
    World world;
    lie.tell(world);
    CHECK_THAT(world.submit(), Catch::Matchers::ContainsSubstring(lie.names));
  }
}

TEST_CASE("validating refuses wrong inputs and names array and field", "[validating]") {
  const Lie lies[] = {
      {"tokens: expected at most 3", [](World& w) { w.forward.num_tokens = 3; }},
      {"tokens[0]: token: expected below 50", [](World& w) { w.forward_inputs.tokens[0] = 50; }},
      {"tokens[0]: token: expected below 50", [](World& w) { w.forward_inputs.tokens[0] = -2; }},
      {"token_rows[1]: row: expected 0", [](World& w) { w.forward_inputs.token_rows[1] = 1; }},
      {"rows[1]: slot: expected below 4", [](World& w) { w.forward_inputs.rows[1].slot = 4; }},
      {"rows[1]: slot: expected a slot of one row", [](World& w) { w.forward_inputs.rows[1].slot = 0; }},
      {"rows[1]: token_first: expected 3", [](World& w) { w.forward_inputs.rows[1].token_first = 2; }},
      {"rows[1]: adapter_id: expected at most 0", [](World& w) { w.forward_inputs.rows[1].adapter_id = 1; }},
      {"rows[1]: positions: expected at most 64", [](World& w) { w.forward_inputs.rows[1].start = 64; }},
      {"rows[1]: block table: expected a block of group 0 for position 40",
       [](World& w) { w.forward_inputs.rows[1].start = 40; }},
      {"arg1 (kv group): expected below 1", [](World& w) { w.forward_inputs.row_updates[2].arg1 = 1; }},
      {"block: expected below 4", [](World& w) { add_group(w), w.forward_inputs.row_payload.back() = 4; }},
      {"group 1: decode_items[0]: block table: expected a block of group 1 for key 0",
       [](World& w) { add_group(w), w.forward_inputs.row_updates.pop_back(); }},
      {"group 1: prompt_items[0]: block table: expected a block of group 1 for key 0",
       [](World& w) { add_group(w), w.forward_inputs.row_updates[6].arg1 = 0; }},
      {"group 1: merge_items[0]: token",
       [](World& w) { add_group(w), w.forward_inputs.attention[1].merge_items[0].token = 4; }},
      {"rows[1]: table: expected a record of group 1, found none",
       [](World& w) { add_states(w), w.forward_inputs.row_updates.pop_back(); }},
      {"rows[1]: table: expected a record of group 1 that one row writes, found 1",
       [](World& w) { add_states(w), w.forward_inputs.row_payload.back() = 1; }},
      {"block: expected below 4", [](World& w) { add_states(w), w.forward_inputs.row_payload.back() = 4; }},
      {"block_copies[2]: num_tokens: expected 48 to 48",
       [](World& w) { add_states(w), w.forward_inputs.block_copies[2].num_tokens = 7; }},
      {"block_copies: expected none without copy_blocks of group 1",
       [](World& w) { w.forward_inputs.block_copies[0].kv_group = 1; }},
      {"block_copies[2]: target: expected below 4",
       [](World& w) { add_group(w), w.forward_inputs.block_copies[2].target = 6; }},
      {"block_copies[2]: num_tokens: expected 1 to 32",
       [](World& w) { add_group(w), w.forward_inputs.block_copies[2].num_tokens = 33; }},
      {"rows: tokens in all: expected 5",
       [](World& w) { w.forward_inputs.tokens.push_back(1), w.forward_inputs.token_rows.push_back(1); }},
      {"kv_slots: expected a place that one token writes",
       [](World& w) {
         w.forward_inputs.row_payload[16 + 3] = 2, w.forward_inputs.rows[1].start = 16 + 1,
                                           w.work().decode_items.clear(), w.work().merge_items.clear();
       }},
      {"update 0: slot: expected below 4", [](World& w) { w.forward_inputs.row_updates[0].slot = 4; }},
      {"update 0: payload_words: expected 16", [](World& w) { w.forward_inputs.row_updates[0].payload_words = 15; }},
      {"update 0: penalty_slot: expected below 2", [](World& w) { w.forward_inputs.row_payload[11] = 2; }},
      {"update 0: temperature", [](World& w) { w.forward_inputs.row_payload[1] = 0xbf800000u; }},
      {"update 1: arg0 (penalty slot)", [](World& w) { w.forward_inputs.row_updates[1].arg0 = 2; }},
      {"update 1: arg1 (prompt tokens)", [](World& w) { w.forward_inputs.row_updates[1].arg1 = 4; }},
      {"update 1: token: expected below 50", [](World& w) { w.forward_inputs.row_payload[16] = 50; }},
      {"update 2: table entries: expected at most 4", [](World& w) { w.forward_inputs.row_updates[2].arg0 = 3; }},
      {"update 2: block: expected below 8", [](World& w) { w.forward_inputs.row_payload[16 + 3] = 8; }},
      {"update 5: arg0 (source slot)", [](World& w) { w.forward_inputs.row_updates[5].arg0 = 9; }},
      {"update 5: kind", [](World& w) { w.forward_inputs.row_updates[5].kind = static_cast<RowUpdateKind>(77); }},
      {"block_copies[0]: source: expected below 8", [](World& w) { w.forward_inputs.block_copies[0].source = 8; }},
      {"block_copies[1]: num_tokens: expected 1 to 16",
       [](World& w) { w.forward_inputs.block_copies[1].num_tokens = 17; }},
      {"block_copies[1]: target: expected a block that is written once",
       [](World& w) { w.forward_inputs.block_copies[1].target = 6; }},
      {"block_copies: expected none without copy_blocks of group 0", [](World& w) { w.memory.ops.pop_back(); }},
      {"block_stores[1]: target: expected below 3", [](World& w) { w.forward_inputs.block_stores[1].target = 3; }},
      {"block_stores[1]: target: expected a block that is written once",
       [](World& w) { w.forward_inputs.block_stores[1].target = 1; }},
      {"block_stores[0]: num_tokens: expected 16 to 16",
       [](World& w) { w.forward_inputs.block_stores[0].num_tokens = 15; }},
      {"block_loads[0]: source: expected below 3", [](World& w) { w.forward_inputs.block_loads[0].source = 3; }},
      {"block_loads[0]: target: expected below 8", [](World& w) { w.forward_inputs.block_loads[0].target = 8; }},
      {"copy_blocks: target: expected not a source", [](World& w) { w.forward_inputs.block_copies[1].source = 6; }},
      {"prompt_items[0]: num_tokens: expected 1 to 64", [](World& w) { w.work().prompt_items[0].num_tokens = 0; }},
      {"prompt_items[0]: slot: expected 0", [](World& w) { w.work().prompt_items[0].slot = 2; }},
      {"prompt_items[0]: position_first: expected 0", [](World& w) { w.work().prompt_items[0].position_first = 1; }},
      {"prompt_items[0]: key_end: expected at most 3", [](World& w) { w.work().prompt_items[0].key_end = 4; }},
      {"decode_items[0]: tokens: expected at most 4", [](World& w) { w.work().decode_items[0].token_first = 4; }},
      {"decode_items[1]: partials: expected at most 4", [](World& w) { w.work().decode_items[1].partial = 4; }},
      {"decode_items[0]: merge_idx: expected below 0", [](World& w) { w.work().merge_items.clear(); }},
      {"decode_items[1]: merge_idx: expected a merge of partial 1",
       [](World& w) { w.work().merge_items[0].num_partials = 1; }},
      {"decode_items[0]: merge_idx: expected below 1", [](World& w) { w.work().decode_items[0].num_tokens = 2; }},
      {"decode_items[2]: num_tokens: expected 1 to 1",
       [](World& w) {
         w.work().decode_items.push_back({0, 0, 3, 0, 0, 3, -1});
       }},
      {"decode_items[2]: num_tokens: expected 1 to 8",
       [](World& w) {
         w.forward.has_runs = true;
         w.work().decode_items.push_back({0, 0, 9, 0, 0, 3, -1});
       }},
      {"decode_items[2]: merge_idx: expected a merge of 2 partials of token 0",
       [](World& w) {
         w.forward.has_runs = true;
         w.work().merge_items.push_back({1, 2, 2});
         w.work().decode_items.push_back({0, 0, 2, 0, 0, 2, 0, 0});
       }},
      {"prompt_items: items of a decode-only list: expected at most 0", [](World& w) { w.forward.decode_only = true; }},
      {"merge_items[0]: partials: expected at most 4", [](World& w) { w.work().merge_items[0].num_partials = 5; }},
      {"merge_items[0]: token: expected below 4", [](World& w) { w.work().merge_items[0].token = 4; }},
      {"row_updates: expected none without update_rows", [](World& w) { w.forward.ops.erase(w.forward.ops.begin()); }},
      {"forward inputs: words: expected at most 100", [](World& w) { w.state.forward_words_max = 100; }},
      {"records[0]: slot: expected below 4", [](World& w) { w.sample_inputs.records[0].slot = 4; }},
      {"records[0]: token_idx: expected below 4", [](World& w) { w.sample_inputs.records[0].token_idx = 4; }},
      {"records[1]: forced_token: expected below 50", [](World& w) { w.sample_inputs.records[1].forced_token = -1; }},
      {"records[1]: slot: expected a slot that draws once",
       [](World& w) { w.sample_inputs.records[1] = w.sample_inputs.records[0]; }},
      {"records[1]: flags: expected kSampleVerify for a record of a run",
       [](World& w) { w.sample_inputs.records[1].flags = 1u << kSampleRunShift; }},
      {"records[1]: run: expected the record before it in its run right before it",
       [](World& w) { w.sample_inputs.records[1].flags = kSampleVerify | 1u << kSampleRunShift; }},
      {"records[0]: records before it in its run: expected at most 0",
       [](World& w) { w.sample_inputs.records[0].flags = kSampleVerify | 1u << kSampleRunShift; }},
      {"records[1]: draft of the record before: expected below 50",
       [](World& w) {
         w.sample_inputs.records[0].flags |= kSampleVerify;
         w.sample_inputs.records[1] = w.sample_inputs.records[0];
         w.sample_inputs.records[1].flags |= 1u << kSampleRunShift;
       }},
      {"records[1]: num_bias: expected 0 for a row without kRowBias",
       [](World& w) { w.sample_inputs.records[1].num_bias = 1; }},
      {"records[0]: bias entries: expected at most 2", [](World& w) { w.sample_inputs.records[0].bias_first = 1; }},
      {"records[0]: bias token: expected one entry a token",
       [](World& w) { w.sample_inputs.bias_entries[1].token = 3; }},
      {"records[0]: bias: expected a finite number or -inf",
       [](World& w) { w.sample_inputs.bias_entries[1].bias = NAN; }},
      {"records[0]: mask: expected -1 or one of the step's masks",
       [](World& w) { w.sample_inputs.records[0].mask = 2; }},
      {"records[0]: mask: expected -1 or one of the step's masks",
       [](World& w) { w.sample_inputs.records[0].mask = -2; }},
      {"records[1]: mask: expected -1 for a sample that is forced",
       [](World& w) { w.sample_inputs.records[1].mask = 0; }},
      {"mask_records[1]: kind: expected a known one",
       [](World& w) { w.sample_inputs.mask_records[1].kind = static_cast<MaskKind>(2); }},
      {"mask_records[0]: words of bits: expected at most 2",
       [](World& w) { w.sample_inputs.mask_records[0].count = 3; }},
      {"mask_records[0]: bits: expected no token beyond the vocabulary",
       [](World& w) { w.sample_inputs.mask_words[1] = 1u << 18; }},
      {"mask_records[1]: token: expected below 50", [](World& w) { w.sample_inputs.mask_words[4] = 50; }},
      {"mask_records[1]: tokens: expected ascending ones", [](World& w) { w.sample_inputs.mask_words[4] = 3; }},
      {"want_logprobs", [](World& w) { w.want_logprobs = false; }},
  };
  for (const Lie& lie : lies) {
    World world;
    lie.tell(world);
    CHECK_THAT(world.submit(), Catch::Matchers::ContainsSubstring(lie.names));
  }
}

TEST_CASE("the reference refuses work lists that miss or repeat a key", "[validating][paged_attention]") {
  const Lie lies[] = {
      {"key 0 is not covered", [](World& w) { w.work().prompt_items[0].key_begin = w.work().prompt_items[0].key_end; }},
      {"is written 0 times", [](World& w) { w.work().prompt_items.clear(); }},
      {"is written 2 times", [](World& w) { w.work().prompt_items.push_back(w.work().prompt_items[0]); }},
      {"is covered not once", [](World& w) { w.work().decode_items[1].key_begin = 15; }},
      {"is not covered", [](World& w) { w.work().decode_items[1].key_end = 20; }},
      {"is written twice", [](World& w) { w.work().decode_items[1].partial = w.work().decode_items[0].partial; }},
      {"token 0 is written 0 times", [](World& w) { split_prompt(w, 1); }},
      {"token 0: its merge leaves partials out",
       [](World& w) {
         split_prompt(w, 2);
         for (uint32_t token = 0; token < 3; ++token) w.work().merge_items.push_back({token, 2 + token, 1, 1});
       }},
  };
  for (const Lie& lie : lies) {
    World world;
    lie.tell(world);
    CHECK_THAT(world.submit(), Catch::Matchers::ContainsSubstring(lie.names));
  }
}

TEST_CASE("validating keeps tickets in order and few", "[validating]") {
  World world;
  auto backend = make_validating(make_reference_backend());
  REQUIRE(backend->load_weights(world.suite.weights, {}).ok());
  REQUIRE(backend->create_state(world.state).ok());
  REQUIRE(backend->create_kv_pools(world.groups).ok());
  std::vector<uint32_t> words;
  pack(world.forward_inputs, &words);
  const SealedList memory(world.memory), forward(world.forward);
  StepSubmission step;
  step.memory = &memory;
  step.forward = &forward;
  step.forward_inputs = words;
  std::vector<Ticket> tickets;
  for (int i = 0; i < kInFlightMax; ++i) {
    const auto ticket = backend->submit(step);
    REQUIRE(ticket.ok());
    tickets.push_back(*ticket);
  }
  CHECK_FALSE(backend->submit(step).ok());
  CHECK_FALSE(backend->wait(tickets[1]).ok());
  for (const Ticket ticket : tickets) CHECK(backend->wait(ticket).ok());
  CHECK_FALSE(backend->wait(tickets.back()).ok());
}

TEST_CASE("validating guards the doors of tensors and blocks", "[validating]") {
  World world;
  auto backend = make_validating(make_reference_backend());
  REQUIRE(backend->load_weights(world.suite.weights, {}).ok());
  REQUIRE(backend->create_state(world.state).ok());
  REQUIRE(backend->create_kv_pools(world.groups).ok());
  std::vector<std::byte> block(world.groups[0].data_bytes_block_layer());
  CHECK(backend->read_kv(0, 0, 7, block).ok());
  CHECK_FALSE(backend->read_kv(1, 0, 7, block).ok());
  CHECK_FALSE(backend->read_kv(0, 1, 7, block).ok());
  CHECK(backend->write_kv(0, 0, 10, block).ok());  // the last host block
  CHECK_FALSE(backend->write_kv(0, 0, 11, block).ok());
  block.pop_back();
  CHECK_FALSE(backend->write_kv(0, 0, 7, block).ok());
  std::vector<std::byte> hidden(8 * 32 * 4);
  const SealedList forward(world.forward);
  CHECK(backend->read_tensor(forward, world.hidden, hidden).ok());
  CHECK_FALSE(backend->read_tensor(forward, world.x, hidden).ok());
  CHECK_FALSE(backend->read_tensor(forward, 99, hidden).ok());
}

}  // namespace llmrt::optest
