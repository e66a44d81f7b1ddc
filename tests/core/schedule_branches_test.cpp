// Who is known by which id, and for how long.
#include <catch2/catch_test_macros.hpp>

#include "core/schedule/branches.h"
#include "schedule_parts.h"

using namespace llmrt;
using test::request_of;

namespace {

Sequence& add_branch(Branches& branches, RequestId first, uint32_t branch, uint32_t n) {
  Request request = request_of(first + branch);
  request.n = n;
  return branches.add(std::make_unique<Sequence>(std::move(request), branch));
}

}  // namespace

TEST_CASE("branches of one request are found from any of them, in their order") {
  Branches branches;
  add_branch(branches, 1, 0, 1);
  for (uint32_t branch = 0; branch < 3; ++branch) add_branch(branches, 10, branch, 3);
  const Sequence& last = *branches.find(12);
  const std::vector<Sequence*> all = branches.of_same(last);
  REQUIRE(all.size() == 3);
  CHECK(all[0] == branches.find(10));
  CHECK(all[2] == &last);
  CHECK(branches.of_same(*branches.find(1)).size() == 1);

  branches.erase(*branches.find(11));
  CHECK(branches.of_same(last)[1] == nullptr);
  CHECK(branches.find(11) == nullptr);
  CHECK(branches.size() == 3);
}

TEST_CASE("a branch that has ended stays until its receiver lets go of it") {
  Branches branches;
  Sequence& ended = add_branch(branches, 1, 0, 1);
  add_branch(branches, 2, 0, 1);
  ended.move_to(RequestState::kStreaming);
  branches.keep_streaming();
  CHECK(branches.num_streaming() == 1);
  CHECK(branches.streaming() == std::vector<RequestId>{1});
  CHECK(branches.size() == 2);
  branches.drop_streaming(ended);
  CHECK(branches.num_streaming() == 0);
  CHECK(branches.size() == 1);
  CHECK(branches.streaming().empty());
}
