// Where a row's states are kept, as numbers.
#include "core/schedule/save_points.h"

#include <catch2/catch_test_macros.hpp>

#include "schedule_parts.h"

using namespace llmrt;
using enum CheckpointKind;

namespace {

using Points = std::vector<SavePoints::Point>;

Points find(const SavePoints& points, const Sequence& sequence, uint32_t begin, uint32_t end) {
  Points found;
  points.find(sequence, begin, end, &found);
  return found;
}

}  // namespace

TEST_CASE("states are kept at a prompt's end, where it parts from others, and every interval") {
  const SavePoints points(64, 1000);  // 1024
  Sequence sequence(test::request_of(1, 2200));
  CHECK(find(points, sequence, 0, 2200) == Points{{1024, kPassage}, {2048, kPassage}, {2176, kPrompt}});
  sequence.found.split = 1984;
  CHECK(find(points, sequence, 0, 2200) ==
        Points{{1024, kPassage}, {1984, kPassage}, {2048, kPassage}, {2176, kPrompt}});
  sequence.found.is_split_shared = true;
  CHECK(find(points, sequence, 1024, 2048) == Points{{1984, kShared}, {2048, kPassage}});
  CHECK(find(points, sequence, 1984, 2047).empty());
  CHECK(find(points, sequence, 2176, 2200).empty());
  sequence.found.split = 1024;  // where an interval ends
  CHECK(find(points, sequence, 0, 1500) == Points{{1024, kShared}});
}

TEST_CASE("what others may wait for is the next of a prompt") {
  const SavePoints points(64, 1000);
  Sequence sequence(test::request_of(1, 2200));
  sequence.found.split = 1984;
  CHECK(points.next_in_prompt(sequence, 0) == 1024);
  CHECK(points.next_in_prompt(sequence, 1024) == 1984);
  CHECK(points.next_in_prompt(sequence, 1984) == 2048);
  CHECK(points.next_in_prompt(sequence, 2048) == 2176);
  CHECK(points.next_in_prompt(sequence, 2176) == 0);
}

TEST_CASE("the last token of a prompt is computed by everyone") {
  const SavePoints points(64, 8192);
  CHECK(find(points, Sequence(test::request_of(1, 128)), 0, 127) == Points{{64, kPrompt}});
  CHECK(find(points, Sequence(test::request_of(1, 129)), 0, 129) == Points{{128, kPrompt}});
  CHECK(find(points, Sequence(test::request_of(1, 64)), 0, 63).empty());
  CHECK(find(points, Sequence(test::request_of(1, 1)), 0, 1).empty());
}

TEST_CASE("behind an answer the last place that a row passes is kept") {
  const SavePoints points(64, 64);
  const Sequence sequence(test::request_of(1, 100));
  CHECK(find(points, sequence, 127, 128) == Points{{128, kAnswer}});
  CHECK(find(points, sequence, 126, 127).empty());
  CHECK(find(points, sequence, 128, 129).empty());
  // It has yielded, and its answer is computed again.
  CHECK(find(points, sequence, 0, 300) == Points{{64, kPrompt}, {256, kAnswer}});
  // A prompt that ends at a place: the next turn goes on there.
  CHECK(find(points, Sequence(test::request_of(1, 128)), 64, 128) == Points{{128, kAnswer}});
}

TEST_CASE("without states nothing is kept") {
  CHECK(find(SavePoints(0, 8192), Sequence(test::request_of(1, 500)), 0, 500).empty());
}
