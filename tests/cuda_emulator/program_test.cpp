// Lists in, programs out, without a device: which ops become one step, which kernels run on which grids, and what is
// said of patterns that do not match. Then, on the emulator, that what is launched is what the program says.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "backends/cuda/rank.h"
#include "tests/cuda_emulator/include/launches.h"
#include "tests/cuda_emulator/list_text.h"

namespace llmrt::cuda {
namespace {

// The steps, one a line: "5+6 added_matmul".
std::string steps_of(const Program& program) {
  std::string text;
  for (const Step& step : program.steps) {
    for (uint32_t op : step.ops) text += fmt::format("{}{}", op == step.ops.front() ? "" : "+", op);
    text += fmt::format(" {}\n", step_name(step));
  }
  return text;
}
std::string unfused_of(const Program& program, bool is_lost) {
  std::string text;
  for (const Unfused& unfused : program.unfused)
    if (unfused.is_lost == is_lost)
      text += fmt::format("{} {}-{}: {}\n", unfused.pattern, unfused.producer, unfused.consumer, unfused.reason);
  return text;
}

}  // namespace

TEST_CASE("a list becomes a program that prints", "[program]") {
  const FakeWeights weights("q4_0", {});
  OpList list = parse_list(kLayer, weights, 1);
  list.decode_only = true;
  CHECK(print(compiled(list, weights.inputs("h100"))) == R"(forward T=1 R=0 ops=12 steps=7 launches=8 arena=208896
0+1 normed_matmul: matmul_stream [q4_0 x=normed -> f32] grid=132x1x1 threads=352 shared=192512 stages=5
2+3 qkv_heads: qkv_heads [in registers] grid=1x12x1 threads=128
4 paged_attention: attention_decode_ring [f16 heads of 128 next-is-early] grid=264x1x1 threads=160 shared=84112 stages=8
5+6 added_matmul: matmul_stream [q4_0 x=one-kept -> added] grid=132x1x1 threads=352 shared=184320 stages=5
5+6 added_matmul: rms_norm grid=1x1x1 threads=1024
7+8 gated_matmul: matmul_stream [q4_0 x=one-kept -> gated] grid=132x1x1 threads=352 shared=184320 stages=5
9+10 added_matmul: matmul_stream [q4_0 x=one-shared -> added] grid=132x1x1 threads=352 shared=212992 stages=5
11 normed_matmul: matmul_stream [q4_0 x=normed -> f32] grid=132x1x1 threads=352 shared=192512 stages=5
not taken: normed_matmul: a gated matmul makes no norm (1x)
)");
}

TEST_CASE("patterns follow the flow of data", "[program]") {
  const FakeWeights weights("f16", {.width = 2048, .ffn = 4096, .heads = 16, .kv_heads = 4});
  const auto program_of = [&](const std::string& text, uint32_t rows = 8) {
    return compiled(parse_list(text, weights, rows), weights.inputs("h100"));
  };
  const Program plain = program_of(kLayer);
  CHECK(
      steps_of(plain) ==
      "0 rms_norm\n1 matmul\n2+3 qkv_heads\n4 paged_attention\n5+6 added_matmul\n7+8 gated_matmul\n9+10 added_matmul\n"
      "11 matmul\n");
  CHECK(unfused_of(plain, true) == "");

  SECTION("an op that has nothing to do with it may stand between") {
    const Program program = program_of(replaced(kLayer, "gate u -> g\n", "scale w! -> v!\ngate u -> g\n"));
    CHECK(steps_of(program) ==
          "0 rms_norm\n1 matmul\n2+3 qkv_heads\n4 paged_attention\n5+6 added_matmul\n8 scale\n7+9 gated_matmul\n"
          "10+11 added_matmul\n12 matmul\n");
    CHECK(unfused_of(program, true) == "");
  }
  SECTION("one between that changes the numbers loses the pattern") {
    const Program scaled = program_of(replaced(kLayer, "gate u -> g\n", "scale u -> u2\ngate u2 -> g\n"));
    CHECK(steps_of(scaled).find("7 matmul\n8 scale\n9 gated_activation\n") != std::string::npos);
    CHECK(unfused_of(scaled, true) == "gated_matmul 7-9: scale (op 8) stands between\n");
    CHECK(print(scaled).find("lost: gated_matmul of ops 7 and 9: scale (op 8) stands between\n") != std::string::npos);
    const Program added = program_of(replaced(kLayer, "gate u -> g\n", "add l! u -> u2\ngate u2 -> g\n"));
    CHECK(unfused_of(added, true) == "gated_matmul 7-9: add (op 8) stands between\n");
    const Program in_place = program_of(replaced(kLayer, "rope q\n", "rope q\nscale q -> q\n"));
    CHECK(unfused_of(in_place, true) == "rope_and_write 2-4: scale (op 3) stands between\n");
    const Program delta = program_of(replaced(kLayer, "norm x! y -> h2\n", "add l! y -> y2\nnorm x! y2 -> h2\n"));
    CHECK(unfused_of(delta, true) == "added_matmul 5-7: add (op 6) stands between\n");
  }
  SECTION("so does another reader, a tensor that is kept, and an op between that needs the old order") {
    CHECK(unfused_of(program_of(std::string(kLayer) + "scale u -> s\n"), true) ==
          "gated_matmul 7-8: scale (op 12) reads u too\n");
    std::string kept = replaced(kLayer, "matmul a o -> y\n", "matmul a o -> y!\n");
    kept = replaced(kept, "norm x! y -> h2\n", "norm x! y! -> h2\n");
    CHECK(unfused_of(program_of(kept), true) == "added_matmul 5-6: y! is kept\n");
    CHECK(unfused_of(program_of(replaced(kLayer, "write q\n", "scale q -> c!\nwrite q\n")), true) ==
          "rope_and_write 2-4: scale (op 3) between changes or reads q\n");
    CHECK(unfused_of(program_of(replaced(kLayer, "gate u -> g\n", "scale w! -> h2\ngate u -> g\n")), true) ==
          "gated_matmul 7-9: scale (op 8) between changes or reads h2\n");
  }
  SECTION("a pattern without a kernel for the rows is not taken, which is no loss") {
    const CompileInputs a100 = weights.inputs("a100");
    const Program few = compiled(parse_list(kLayer, weights, 8), a100);
    CHECK(unfused_of(few, true) == "");
    CHECK(unfused_of(few, false) ==
          "gated_matmul 7-8: no kernel for 8 rows\nadded_matmul 5-6: no kernel for 8 rows\n"
          "added_matmul 9-10: no kernel for 8 rows\nnormed_matmul 0-1: no kernel for 8 rows\n"
          "normed_matmul 6-7: no matmul makes the norm's sum\nnormed_matmul 10-11: no matmul makes the norm's sum\n");
  }
  SECTION("a norm of heads joins rope and write, and not rope alone") {
    const Program joined = program_of(replaced(kLayer, "rope q\n", "qknorm q\nrope q\n"));
    CHECK(steps_of(joined).find("2+3+4 qkv_heads\n") != std::string::npos);
    const Program apart = program_of(replaced(replaced(kLayer, "rope q\n", "qknorm q\nrope q\n"), "write q\n", ""));
    CHECK(steps_of(apart).find("2 qk_norm\n3 rope\n") != std::string::npos);
  }
}

TEST_CASE("one row leaves its norms to matmuls", "[program]") {
  const FakeWeights weights("f16", {});
  const OpList list = parse_list(kLayer, weights, 1);
  CompileInputs inputs = weights.inputs("h100");
  CHECK(steps_of(compiled(list, inputs)) ==
        "0+1 normed_matmul\n2+3 qkv_heads\n4 paged_attention\n5+6 added_matmul\n7+8 gated_matmul\n9+10 added_matmul\n"
        "11 normed_matmul\n");
  inputs.tuning.gated_makes_norm = true;
  const Program more = compiled(list, inputs);
  CHECK(std::get<GatedMatmul>(more.steps[4].what).made.has_value());
  CHECK(std::get<AddedMatmul>(more.steps[3].what).sum_alone);
}

TEST_CASE("shapes that no kernel takes are refused by name", "[program]") {
  const FakeWeights weights("f16", {.width = 2304, .ffn = 9216, .heads = 8, .kv_heads = 4, .dim = 256});
  OpList list = parse_list(kLayer, weights, 8);
  const Result<Program> program = compile(list, weights.inputs("t4"));
  REQUIRE_FALSE(program.ok());
  CHECK(program.error().code == ErrorCode::kUnsupported);
  CHECK(program.error().message.find("heads of 128 numbers, found 256") != std::string::npos);
  list.tensors[static_cast<size_t>(std::get<Matmul>(list.ops[1]).x)].columns = 8;
  CHECK(compile(list, weights.inputs("h100")).error().code == ErrorCode::kInvalidArgument);
}

// What a kernel reads must not lie where it writes, however far apart the ops stand in the list.
TEST_CASE("the arena keeps what a step reads apart from what it writes", "[program]") {
  const FakeWeights weights("f16", {});
  for (const uint32_t rows : {1u, 8u, 256u}) {
    const std::string far = replaced(kLayer, "gate u -> g\n", "scale w! -> v\nscale v -> v!\ngate u -> g\n");
    for (const std::string& text : {std::string(kLayer), far}) {
      const OpList list = parse_list(replaced(text, "matmul h3 qkv -> q2!\n", "matmul h3 qkv -> q2\n"), weights, rows);
      const Program program = compiled(list, weights.inputs("h100"));
      CHECK(program.arena.bytes == arena_bytes(list));
      for (const Step& step : program.steps) {
        if (std::holds_alternative<AddedMatmul>(step.what)) continue;  // two launches, one behind the other
        OpAccess all;
        for (uint32_t op : step.ops) {
          const OpAccess one = access(list.ops[op]);
          all.reads.insert(all.reads.end(), one.reads.begin(), one.reads.end());
          all.writes.insert(all.writes.end(), one.writes.begin(), one.writes.end());
        }
        for (TensorId read : all.reads) {
          for (TensorId write : all.writes) {
            const uint64_t a = program.arena.offsets[static_cast<size_t>(read)];
            const uint64_t b = program.arena.offsets[static_cast<size_t>(write)];
            INFO(rows << " rows, " << step_name(step) << " of op " << step.ops.front());
            CHECK((read == write || a + list.bytes_of(read) <= b || b + list.bytes_of(write) <= a));
          }
        }
      }
    }
  }
}

TEST_CASE("what is launched is what the program says", "[program]") {
  const FakeWeights weights("q4_k_m", {.width = 512, .ffn = 1024, .heads = 4, .kv_heads = 2});
  WeightTable table = weights.table();
  for (WeightTensor& tensor : table.tensors) tensor.generate = [](uint64_t, std::span<std::byte>) {};
  std::vector<emulator::LaunchRecord> seen;
  emulator::observe_launches([&](const emulator::LaunchRecord& record) { seen.push_back(record); }, false);
  auto rank = DeviceRank::open(0);
  REQUIRE(rank.ok());
  REQUIRE((*rank)->load_weights(table, {}).ok());
  StateConfig config;
  config.vocab_size = config.blocks_row_max = config.hidden_columns = 1;
  config.forward_words_max = config.sample_words_max = 64;
  config.arena_bytes = arena_bytes(parse_list(kLayer, weights, 2048));
  REQUIRE((*rank)->create_state(config).ok());
  const KvGroup pool{1, 2, 128, 16, 8, KvDType::kF16};
  REQUIRE((*rank)->create_kv_pools({&pool, 1}).ok());
  std::string remark;
  REQUIRE((*rank)->join_cublas(&remark).ok());
  for (const uint32_t rows : {1u, 2u, 9u, 40u, 128u, 300u, 1024u}) {
    const SealedList list(parse_list(kLayer, weights, rows));
    seen.clear();
    REQUIRE((*rank)->prepare(list).ok());
    const Result<const Program*> program = (*rank)->program(list);
    REQUIRE(program.ok());
    std::vector<KernelChoice> ours;
    for (const Launch& launch : (*program)->launches)
      if (launch.choice.threads > 0) ours.push_back(launch.choice);
    REQUIRE(seen.size() == ours.size());
    for (size_t i = 0; i < seen.size(); ++i) {
      INFO(rows << " rows: " << print(ours[i]));
      CHECK(Extent{seen[i].grid[0], seen[i].grid[1], seen[i].grid[2]} == ours[i].grid);
      CHECK(seen[i].threads == ours[i].threads);
      CHECK(seen[i].shared_bytes == ours[i].shared_bytes);
      CHECK(seen[i].cluster_y == ours[i].cluster);
    }
  }
  emulator::observe_launches({}, true);
}

}  // namespace llmrt::cuda
