// Op lists as values: prints, keys, access sets, the arena plan, and inputs through pack and back.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <numeric>

#include "core/ops/sealed_list.h"
#include "core/ops/step_inputs.h"
#include "tests/ops/op_harness.h"

namespace llmrt::optest {
namespace {

OpList small_list() {
  OpList list{"forward", 8, 0, {}, {}};
  const TensorId x = list.add_tensor({"x", Rows::kTokens, 576, DType::kF32, Storage::kArena});
  const TensorId o = list.add_tensor({"o", Rows::kTokens, 576, DType::kF32, Storage::kArena});
  const TensorId h = list.add_tensor({"h", Rows::kTokens, 576, DType::kF16, Storage::kArena});
  list.ops = {Embed{x, 0, x}, RmsNorm{x, o, 3, 1e-5f, h}, Matmul{h, 1, o}, Add{x, o, x}};
  return list;
}

// A random chain: every op reads earlier tensors and writes one, with random sizes and storages.
OpList random_list(std::mt19937_64& rng) {
  OpList list{"forward", 1 + static_cast<uint32_t>(rng() % 64), 1 + static_cast<uint32_t>(rng() % 16), {}, {}};
  const uint32_t num_tensors = 2 + static_cast<uint32_t>(rng() % 30);
  for (uint32_t i = 0; i < num_tensors; ++i)
    list.add_tensor({fmt::format("t{}", i), rng() % 4 ? Rows::kTokens : Rows::kSampled,
                     1 + static_cast<uint32_t>(rng() % 300), rng() % 2 ? DType::kF32 : DType::kF16,
                     rng() % 8   ? Storage::kArena
                     : rng() % 2 ? Storage::kPinned
                                 : Storage::kHidden});
  for (uint32_t i = 0; i < num_tensors * 2; ++i) {
    const auto any = [&] { return static_cast<TensorId>(rng() % num_tensors); };
    list.ops.push_back(Add{any(), any(), any()});
  }
  return list;
}

// As lives_with where no op runs together with another.
std::vector<int> each_alone(const OpList& list) {
  std::vector<int> lives_with(list.ops.size());
  std::iota(lives_with.begin(), lives_with.end(), 0);
  return lives_with;
}

bool touches(const Op& op, TensorId id) {
  const OpAccess touched = access(op);
  return std::count(touched.reads.begin(), touched.reads.end(), id) +
             std::count(touched.writes.begin(), touched.writes.end(), id) >
         0;
}

}  // namespace

TEST_CASE("a list prints a line for each op with shapes and dtypes", "[op_list]") {
  const std::string text = print(small_list());
  CHECK(text.find("forward T=8 R=0 ops=4") == 0);
  CHECK(text.find("\nrms_norm") != std::string::npos);
  CHECK(text.find("delta=o[T8,576]f32") != std::string::npos);
  CHECK(text.find("out=h[T8,576]f16") != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 5);
}

TEST_CASE("every op has a name of its own", "[op_list]") {
  std::vector<std::string> names;
  for (int i = 0; i < kNumOps; ++i) names.push_back(op_name(i));
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK(std::string(op_name(Op{PagedAttention{}})) == "paged_attention");
  CHECK(std::string(op_name(Op{CopyBlocks{}})) == "copy_blocks");
}

TEST_CASE("equal lists have equal keys and any change gives another", "[op_list]") {
  const uint64_t key = SealedList(small_list()).key;
  OpList renamed = small_list();
  renamed.name = "other";
  CHECK(SealedList(renamed).key == key);
  const auto changed = [&](auto change) {
    OpList list = small_list();
    change(list);
    return SealedList(list).key != key;
  };
  CHECK(changed([](OpList& l) { l.num_tokens = 16; }));
  CHECK(changed([](OpList& l) { l.num_sampled = 1; }));
  CHECK(changed([](OpList& l) { l.tensors[2].columns = 577; }));
  CHECK(changed([](OpList& l) { l.tensors[2].dtype = DType::kBF16; }));
  CHECK(changed([](OpList& l) { l.tensors[2].storage = Storage::kPinned; }));
  CHECK(changed([](OpList& l) { l.tensors[2].rows = Rows::kSampled; }));
  CHECK(changed([](OpList& l) { std::swap(l.ops[1], l.ops[2]); }));
  CHECK(changed([](OpList& l) { std::get<RmsNorm>(l.ops[1]).eps = 1e-6f; }));
  CHECK(changed([](OpList& l) { std::get<RmsNorm>(l.ops[1]).delta = kNoTensor; }));
  CHECK(changed([](OpList& l) { std::get<Matmul>(l.ops[2]).group = 2; }));
  CHECK(changed([](OpList& l) { std::swap(std::get<Add>(l.ops[3]).a, std::get<Add>(l.ops[3]).b); }));
  CHECK(changed([](OpList& l) { l.ops[3] = Scale{0, 1, 0}; }));
}

TEST_CASE("a routed tensor has several rows for each row of its list", "[op_list]") {
  OpList forward = small_list();
  forward.routed_per_row = 4;
  const TensorId routed = forward.add_tensor({"routed", Rows::kRouted, 64, DType::kF16, Storage::kArena});
  forward.ops.push_back(Scale{2, 1, routed});
  CHECK(forward.rows_of(routed) == 4 * 8);
  CHECK(forward.rows_of(routed, 3, 0) == 4 * 3);
  CHECK(forward.bytes_of(routed) == 4 * 8 * 64 * 2);
  const std::string text = print(forward);
  CHECK(text.find("forward T=8 R=0 routed=4 ops=5") == 0);
  CHECK(text.find("out=routed[K32,64]f16") != std::string::npos);
  const Status refused = refuse_routed_rows(forward);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kUnsupported);
  CHECK(refused.error().message.find("tensor routed") != std::string::npos);
  CHECK(refuse_routed_rows(small_list()).ok());

  OpList other = forward;
  other.routed_per_row = 2;
  CHECK(SealedList(other).key != SealedList(forward).key);
  other = forward;
  other.tensors[static_cast<size_t>(routed)].rows = Rows::kTokens;
  CHECK(SealedList(other).key != SealedList(forward).key);

  OpList sample{"sample", 0, 5, {}, {}};
  sample.routed_per_row = 2;
  const TensorId of_samples = sample.add_tensor({"routed", Rows::kRouted, 64, DType::kF32, Storage::kArena});
  CHECK(sample.rows_of(of_samples) == 2 * 5);
  CHECK(sample.rows_of(of_samples, 0, 3) == 2 * 3);
  const ArenaPlan plan = plan_arena(forward, 256, each_alone(forward));
  CHECK(plan.bytes >= plan.offsets[routed] + forward.bytes_of(routed));
}

TEST_CASE("as many distinct experts are expected as even choices make") {
  CHECK(expected_distinct_experts(128, 8, 1) == Catch::Approx(8));
  CHECK(expected_distinct_experts(128, 8, 8) == Catch::Approx(51.6).epsilon(0.01));
  CHECK(expected_distinct_experts(32, 4, 1000) == Catch::Approx(32));
  CHECK(expected_distinct_experts(4, 4, 3) == 4);
}

TEST_CASE("an in-place tensor is both read and written", "[op_list]") {
  const OpAccess with_delta = access(RmsNorm{0, 1, 0, 0, 2}), without = access(RmsNorm{0, kNoTensor, 0, 0, 2});
  CHECK(with_delta.reads == std::vector<TensorId>{0, 1});
  CHECK(with_delta.writes == std::vector<TensorId>{0, 2});
  CHECK(without.reads == std::vector<TensorId>{0});
  CHECK(without.writes == std::vector<TensorId>{2});
}

TEST_CASE("the arena never overlaps tensors that live at the same time", "[op_list]") {
  auto rng = test_rng("arena");
  for (int round = 0; round < 300; ++round) {
    const OpList list = random_list(rng);
    const uint64_t alignment = 1ull << (rng() % 9);
    const ArenaPlan plan = plan_arena(list, alignment, each_alone(list));
    INFO("round " << round << "\n" << print(list));
    REQUIRE(plan.offsets.size() == list.tensors.size());
    const int num_tensors = static_cast<int>(list.tensors.size());
    // First and last op by tensor; pinned ones live through the whole list.
    std::vector<std::pair<int, int>> lives(list.tensors.size(), {-1, -1});
    for (TensorId id = 0; id < num_tensors; ++id) {
      for (int i = 0; i < static_cast<int>(list.ops.size()); ++i)
        if (touches(list.ops[static_cast<size_t>(i)], id)) {
          if (lives[id].first < 0) lives[id].first = i;
          lives[id].second = i;
        }
      if (list.tensors[id].storage == Storage::kPinned) lives[id] = {0, static_cast<int>(list.ops.size())};
    }
    for (TensorId a = 0; a < num_tensors; ++a) {
      const bool placed = list.tensors[a].storage != Storage::kHidden && lives[a].first >= 0;
      REQUIRE((plan.offsets[a] != ArenaPlan::kNoOffset) == placed);
      if (!placed) continue;
      CHECK(plan.offsets[a] % alignment == 0);
      CHECK(plan.offsets[a] + list.bytes_of(a) <= plan.bytes);
      for (TensorId b = 0; b < a; ++b) {
        if (plan.offsets[b] == ArenaPlan::kNoOffset || lives[a].second < lives[b].first ||
            lives[b].second < lives[a].first)
          continue;
        const bool apart = plan.offsets[a] + list.bytes_of(a) <= plan.offsets[b] ||
                           plan.offsets[b] + list.bytes_of(b) <= plan.offsets[a];
        CHECK(apart);
      }
    }
  }
}

TEST_CASE("the arena reuses memory of tensors that are no longer needed", "[op_list]") {
  OpList list{"forward", 4, 0, {}, {}};
  TensorId before = list.add_tensor({"t0", Rows::kTokens, 256, DType::kF32, Storage::kArena});
  for (int i = 1; i < 20; ++i) {
    const TensorId next = list.add_tensor({fmt::format("t{}", i), Rows::kTokens, 256, DType::kF32, Storage::kArena});
    list.ops.push_back(Scale{before, 2, next});
    before = next;
  }
  CHECK(plan_arena(list, 256, each_alone(list)).bytes == 2 * 4 * 256 * 4);
}

TEST_CASE("what an op reads lives to the end of the ops that it runs with", "[op_list]") {
  OpList list{"forward", 4, 0, {}, {}};
  std::vector<TensorId> ids;
  for (int i = 0; i < 4; ++i)
    ids.push_back(list.add_tensor({fmt::format("t{}", i), Rows::kTokens, 256, DType::kF32, Storage::kArena}));
  for (size_t i = 0; i < 3; ++i) list.ops.push_back(Scale{ids[i], 2, ids[i + 1]});
  const std::vector<int> all{2, 2, 2};
  CHECK(plan_arena(list, 256, each_alone(list)).bytes == 2 * 4 * 256 * 4);
  const ArenaPlan together = plan_arena(list, 256, all);
  CHECK(together.bytes == 4 * 4 * 256 * 4);
  CHECK(together.last_ops[static_cast<size_t>(ids[0])] == 2);
}

TEST_CASE("inputs come back from their packed form", "[op_list]") {
  Step step;
  step.set_sampling(1, {});
  step.patch_table(1, 2, {7, 8, 9});
  step.add_row(1, 40, 3, {5, kLastSampled, 6});
  step.add_row(0, 500, 1);
  step.add_prompt_items(0);
  step.add_decode_items(1, 64);
  step.add_decode_items(1, 32, 100, 2);
  step.forward_inputs.block_stores = {{4, 5, 16}, {6, 7, 16, 1}};
  step.forward_inputs.block_loads = {{8, 9, 16}};
  step.forward_inputs.block_copies = {{1, 2, 3}};
  step.forward_inputs.state_places = {{3, 4, 500}};
  step.forward_inputs.rows[1].num_places = 1;
  step.sample_inputs.records = {{0, 1, 2, kSampleForced, 3, 0, 1}};
  step.sample_inputs.bias_entries = {{4, -1.5f}};
  std::vector<uint32_t> words;
  pack(step.forward_inputs, &words);
  const auto forward = unpack_forward(words);
  REQUIRE(forward.ok());
  const auto same = [](const auto& a, const auto& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0);
  };
  CHECK(same(forward->row_updates, step.forward_inputs.row_updates));
  CHECK(same(forward->row_payload, step.forward_inputs.row_payload));
  CHECK(same(forward->block_stores, step.forward_inputs.block_stores));
  CHECK(same(forward->block_loads, step.forward_inputs.block_loads));
  CHECK(same(forward->block_copies, step.forward_inputs.block_copies));
  CHECK(same(forward->state_places, step.forward_inputs.state_places));
  CHECK(same(forward->rows, step.forward_inputs.rows));
  CHECK(same(forward->tokens, step.forward_inputs.tokens));
  CHECK(same(forward->token_rows, step.forward_inputs.token_rows));
  for (uint32_t g = 0; g < kKvGroupsMax; ++g) {
    const AttentionWork &found = forward->attention[g], &expected = step.forward_inputs.attention[g];
    CHECK(same(found.decode_items, expected.decode_items));
    CHECK(same(found.prompt_items, expected.prompt_items));
    CHECK(same(found.merge_items, expected.merge_items));
    CHECK(found.num_partials == expected.num_partials);
  }
  // What a kernel of a later group reads from its own header.
  const uint32_t* header = words.data() + 2 * kForwardHeaderWords;
  CHECK(header[kFwdNumTokens] == 4);
  CHECK(header[kFwdNumRows] == 2);
  CHECK(std::memcmp(header + header[kFwdRows], step.forward_inputs.rows.data(), 2 * sizeof(RowRecord)) == 0);
  CHECK(std::memcmp(header + header[kFwdTokenRows], step.forward_inputs.token_rows.data(), 4 * 4) == 0);
  CHECK(std::memcmp(header + header[kFwdDecodeItems], step.forward_inputs.attention[2].decode_items.data(),
                    header[kFwdNumDecodeItems] * sizeof(AttentionItem)) == 0);

  // Any header word made wrong is an error or another valid reading, never a read outside.
  auto rng = test_rng("unpack");
  for (int i = 0; i < 2000; ++i) {
    std::vector<uint32_t> broken = words;
    broken[rng() % kForwardHeadersWords] = static_cast<uint32_t>(rng() % 3 ? rng() % 400 : rng());
    if (rng() % 4 == 0) broken.resize(rng() % broken.size());
    (void)unpack_forward(broken);
  }
  CHECK_FALSE(unpack_forward({}).ok());
  pack(step.sample_inputs, &words);
  const auto sample = unpack_sample(words);
  REQUIRE(sample.ok());
  CHECK(same(sample->records, step.sample_inputs.records));
  CHECK(same(sample->bias_entries, step.sample_inputs.bias_entries));
  words[kSmpNumRecords] = 1000;
  CHECK_FALSE(unpack_sample(words).ok());
}

}  // namespace llmrt::optest
