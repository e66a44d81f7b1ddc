// One step of a beam search among its branches.
#include <catch2/catch_test_macros.hpp>

#include "core/schedule/beam_round.h"
#include "schedule_parts.h"

using namespace llmrt;

namespace {

constexpr int32_t kEnd = 99;

struct Beams {
  explicit Beams(uint32_t width) {
    const auto search = std::make_shared<BeamSearch>(width, BeamParams{}, 8, std::vector<int32_t>{kEnd});
    for (uint32_t branch = 0; branch < width; ++branch) {
      Request request = test::request_of(1 + branch, 2);
      request.n = width;
      owned.push_back(std::make_unique<Sequence>(std::move(request), branch));
      Sequence& beam = *owned.back();
      beam.tokens = {5, 5};
      beam.beam = {.search = search, .rank = branch, .is_asked = true, .candidates = {}};
      all.push_back(&beam);
    }
  }
  void hear(size_t branch, std::vector<TopLogprob> candidates) { all[branch]->beam.candidates = std::move(candidates); }
  // All tokens behind the prompt, by branch.
  void go_on() {
    const BeamRound round = divide_beams(all);
    for (const BeamRound::Restart& restart : round.restarts) restart.beam->tokens = restart.parent->tokens;
    extend_beams(round);
  }

  std::vector<std::unique_ptr<Sequence>> owned;
  std::vector<Sequence*> all;
};

}  // namespace

TEST_CASE("the search goes on when every beam has heard") {
  Beams beams(2);
  beams.hear(0, {{1, -0.1f}, {2, -0.2f}, {3, -3.0f}});
  CHECK_FALSE(advance_search(beams.all));
  beams.hear(1, {{1, -0.1f}, {2, -0.2f}, {3, -3.0f}});
  CHECK(advance_search(beams.all));
}

TEST_CASE("a beam with one way keeps its place, a dropped one takes over the tokens of one with several") {
  Beams beams(3);
  for (size_t i = 0; i < 3; ++i) beams.hear(i, {{1, -0.1f}, {2, -0.2f}, {3, -0.3f}, {4, -9.0f}});
  REQUIRE(advance_search(beams.all));
  // All are equal before the first step: beam 0 goes on in three ways.
  const BeamRound first = divide_beams(beams.all);
  REQUIRE(first.restarts.size() == 2);
  CHECK(first.restarts[0].parent == beams.all[0]);
  CHECK(first.by_rank[0] == beams.all[0]);
  for (const Sequence* beam : beams.all) {
    CHECK_FALSE(beam->beam.is_asked);
    CHECK(beam->beam.candidates.empty());
  }
  extend_beams(first);
  CHECK(first.by_rank[0]->tokens == std::vector<int32_t>{5, 5, 1});
  CHECK(first.by_rank[2]->tokens == std::vector<int32_t>{5, 5, 3});
  CHECK(first.by_rank[2]->beam.rank == 2);

  // The beam of rank 1 goes on in two ways, that of rank 0 in one; rank 2 is dropped.
  Sequence* const by_rank[] = {first.by_rank[0], first.by_rank[1], first.by_rank[2]};
  by_rank[0]->beam.candidates = {{6, -0.4f}, {7, -9.0f}, {8, -9.0f}, {9, -9.0f}};
  by_rank[1]->beam.candidates = {{6, -0.1f}, {7, -0.2f}, {8, -9.0f}, {9, -9.0f}};
  by_rank[2]->beam.candidates = {{6, -9.0f}, {7, -9.5f}, {8, -9.6f}, {9, -9.7f}};
  REQUIRE(advance_search(beams.all));
  const BeamRound second = divide_beams(beams.all);
  REQUIRE(second.restarts.size() == 1);
  CHECK(second.restarts[0].beam == by_rank[2]);
  CHECK(second.restarts[0].parent == by_rank[1]);
  second.restarts[0].beam->tokens = second.restarts[0].parent->tokens;
  extend_beams(second);
  CHECK(second.by_rank[0]->tokens == std::vector<int32_t>{5, 5, 2, 6});
  CHECK(second.by_rank[0]->beam.rank == 0);
  CHECK(second.by_rank[1]->tokens == std::vector<int32_t>{5, 5, 2, 7});
  CHECK(second.by_rank[2]->tokens == std::vector<int32_t>{5, 5, 1, 6});
}

TEST_CASE("candidates are taken for the rank that a beam has, not for its branch") {
  Beams beams(2);
  std::swap(beams.all[0]->beam.rank, beams.all[1]->beam.rank);
  beams.hear(0, {{1, -5.0f}, {2, -5.1f}, {3, -9.0f}});  // rank 1, which does not count in the first step
  beams.hear(1, {{6, -0.1f}, {7, -0.2f}, {8, -9.0f}});  // rank 0
  REQUIRE(advance_search(beams.all));
  beams.go_on();
  CHECK(beams.all[1]->tokens == std::vector<int32_t>{5, 5, 6});
  CHECK(beams.all[0]->tokens == std::vector<int32_t>{5, 5, 7});
}
