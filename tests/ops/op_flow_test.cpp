// The flow of data in a list. Method: small lists by hand, and random chains against what the ops' access sets say.
#include "core/ops/op_flow.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {
namespace {

using Ops = std::vector<uint32_t>;

OpList list_of(uint32_t num_tensors, std::vector<Op> ops) {
  OpList list{"forward", 4, 0, {}, std::move(ops)};
  for (uint32_t i = 0; i < num_tensors; ++i)
    list.add_tensor({fmt::format("t{}", i), Rows::kTokens, 64, DType::kF32, Storage::kArena});
  return list;
}

Ops users(const OpFlow& flow, TensorId tensor, uint32_t op) {
  const auto found = flow.users_behind(tensor, op);
  return {found.begin(), found.end()};
}

bool has(const std::vector<TensorId>& ids, TensorId id) {
  return std::ranges::find(ids, id) != ids.end();
}

}  // namespace

TEST_CASE("the flow knows the users of a tensor, and the writer of what is read", "[op_flow]") {
  // Tensor 1 is written twice; op 2 is in place.
  const OpList list = list_of(4, {Matmul{0, 0, 1}, Scale{1, 2, 2}, RmsNorm{3, 2, 0, 1e-5f, 1}, Add{1, 1, 0}});
  const OpFlow flow(list);
  CHECK(users(flow, 1, 0) == Ops{1, 2, 3});
  CHECK(users(flow, 1, 2) == Ops{3});
  CHECK(users(flow, 3, 3).empty());
  CHECK(flow.writer_before(1, 1) == 0);
  CHECK(flow.writer_before(1, 2) == 0);  // not the op itself
  CHECK(flow.writer_before(1, 3) == 2);
  CHECK(flow.writer_before(3, 2) == -1);
  CHECK(flow.other_reader(1, 0, 1) == -1);  // op 3 reads what op 2 wrote
  CHECK(flow.other_reader(1, 0, 3) == 1);
  CHECK(flow.other_reader(1, 2, 1) == 3);
  CHECK(flow.get<RmsNorm>(2) != nullptr);
  CHECK(flow.get<Matmul>(2) == nullptr);
}

TEST_CASE("an op may run behind another where neither writes what the other touches", "[op_flow]") {
  const OpList list = list_of(6, {Matmul{0, 0, 1}, Scale{2, 2, 3}, Scale{2, 2, 0}, Scale{2, 2, 1}, Scale{1, 2, 4}});
  const OpFlow flow(list);
  CHECK(flow.in_the_way(0, 1) == kNoTensor);
  CHECK(flow.in_the_way(0, 2) == 0);  // its input is overwritten
  CHECK(flow.in_the_way(0, 3) == 1);  // its result is overwritten
  CHECK(flow.in_the_way(0, 4) == 1);  // its result is read
}

TEST_CASE("what comes through ops that pass it on is found behind them", "[op_flow]") {
  const OpList list = list_of(8, {Matmul{0, 0, 1}, Scale{1, 2, 2}, Add{3, 2, 4},
                                  GatedActivation{4, Activation::kSilu, 5}, Matmul{5, 0, 6}, Scale{5, 2, 7}});
  const OpFlow flow(list);
  const auto is_matmul = [&](int op) { return flow.get<Matmul>(static_cast<uint32_t>(op)) != nullptr; };
  CHECK(flow.passes_on(1));
  CHECK(flow.passes_on(2));
  for (const uint32_t op : {0u, 3u, 4u}) CHECK_FALSE(flow.passes_on(op));
  CHECK(flow.find_behind(2, is_matmul) == 0);
  CHECK(flow.find_behind(1, is_matmul) == 0);
  CHECK(flow.find_behind(5, is_matmul) == -1);  // an activation made it
  CHECK(flow.find_behind(3, is_matmul) == -1);
}

TEST_CASE("in random lists the flow is what the ops read and write", "[op_flow]") {
  auto rng = test_rng("op flow");
  for (int round = 0; round < 100; ++round) {
    const uint32_t num_tensors = 2 + static_cast<uint32_t>(rng() % 6), num_ops = 1 + static_cast<uint32_t>(rng() % 12);
    const auto any = [&] { return static_cast<TensorId>(rng() % num_tensors); };
    std::vector<Op> ops;
    for (uint32_t i = 0; i < num_ops; ++i) ops.push_back(Add{any(), any(), any()});
    const OpList list = list_of(num_tensors, ops);
    const OpFlow flow(list);
    INFO("round " << round << "\n" << print(list));
    for (TensorId tensor = 0; tensor < static_cast<TensorId>(num_tensors); ++tensor) {
      for (uint32_t op = 0; op < num_ops; ++op) {
        Ops behind;
        int writer = -1;
        for (uint32_t other = 0; other < num_ops; ++other) {
          const OpAccess touched = access(list.ops[other]);
          const bool writes = has(touched.writes, tensor);
          if (other > op && (writes || has(touched.reads, tensor))) behind.push_back(other);
          if (other < op && writes) writer = static_cast<int>(other);
        }
        CHECK(users(flow, tensor, op) == behind);
        CHECK(flow.writer_before(tensor, op) == writer);
      }
    }
  }
}

}  // namespace llmrt::optest
