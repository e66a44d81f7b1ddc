// Comparing records: other work is refused by name, ratios and their spread, what is slower by its direction.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "tools/llmrt_bench/record/comparison.h"

using namespace llmrt;
using namespace llmrt::bench;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

SavedRecord make_record(const std::string& path, const std::string& device, double tok_s) {
  SavedRecord record;
  record.path = path;
  record.command = "model";
  record.work = {{"depth", 512}, {"lengths", {{"min", 8}}}};
  record.rows = {{"pp512", device, {median_value("tok_s", "tok/s", {tok_s * 0.9, tok_s, tok_s * 1.1})}},
                 {"tg8", device, {{"ms", "ms", 1000 / tok_s}, {"bytes", "bytes", 64}}}};
  return record;
}

std::string refusal(const SavedRecord& a, const SavedRecord& b, const ComparisonOptions& options = {}) {
  const Result<Comparison> all = compare(a, b, options);
  REQUIRE_FALSE(all.ok());
  return all.error().message;
}

}  // namespace

TEST_CASE("records of different work are refused, each difference by its name") {
  const SavedRecord a = make_record("a.json", "cuda:0", 100);
  SavedRecord b = a;
  b.path = "b.json";
  b.work = {{"depth", 256}, {"lengths", {{"min", 16}}}, {"seed", 1}};
  const std::string message = refusal(a, b);
  for (const char* part :
       {"a.json and b.json", "work.depth: 512 and 256", "work.lengths.min: 8 and 16", "work.seed: none and 1"})
    CHECK_THAT(message, ContainsSubstring(part));
  b = a;
  b.command = "limits";
  CHECK_THAT(refusal(a, b), ContainsSubstring("command: model and limits"));
}

TEST_CASE("a ratio spans what the samples span, and slower is told by the unit") {
  const Result<Comparison> all = compare(make_record("a", "cuda:0", 100), make_record("b", "cuda:0", 80), {});
  REQUIRE(all.ok());
  REQUIRE(all->values.size() == 3);
  const ComparedValue& rate = all->values[0];
  CHECK_THAT(rate.ratio(), WithinRel(0.8, 1e-9));
  CHECK_THAT(rate.ratio_range().first, WithinRel(72.0 / 110, 1e-9));
  CHECK_THAT(rate.ratio_range().second, WithinRel(88.0 / 90, 1e-9));
  CHECK_THAT(rate.slowdown(), WithinRel(0.2, 1e-9));
  CHECK_THAT(all->values[1].ratio(), WithinRel(1.25, 1e-9));
  CHECK_THAT(all->values[1].slowdown(), WithinRel(0.2, 1e-9));
  CHECK(all->values[2].direction() == Direction::kNone);
  CHECK(direction_of("GB/s") == Direction::kMoreIsBetter);
  CHECK(direction_of("us") == Direction::kLessIsBetter);
  CHECK(direction_of("tokens") == Direction::kNone);
}

TEST_CASE("equal values are no slower, 0 and 0 too; from 0 to something is") {
  SavedRecord a = make_record("a", "cuda:0", 100);
  a.rows[0].values = {{"goodput", "requests/s", 0}, {"tpot_p50", "ms", 0}, median_value("itl_p50", "ms", {0, 0, 0})};
  SavedRecord b = a;
  b.rows[0].values[1].value = 5;
  const Result<Comparison> same = compare(a, a, {}), other = compare(a, b, {}), back = compare(b, a, {});
  REQUIRE((same.ok() && other.ok() && back.ok()));
  for (const ComparedValue& value : same->values) {
    CHECK(value.ratio() == 1);
    CHECK(value.ratio_range() == std::pair(1.0, 1.0));
    CHECK(value.slowdown() == 0);
  }
  CHECK(other->values[1].slowdown() == 1);
  CHECK(back->values[1].slowdown() < 0);
}

TEST_CASE("what neither side knows is equal, and what one side lost has no ratio") {
  SavedRecord a = make_record("a", "cuda:0", 100);
  a.rows[0].values = {{"tpot_p50", "ms", NAN}};
  SavedRecord b = a;
  b.rows[0].values[0].value = 5;
  const Result<Comparison> same = compare(a, a, {}), other = compare(a, b, {}), back = compare(b, a, {});
  REQUIRE((same.ok() && other.ok() && back.ok()));
  CHECK(same->values[0].slowdown() == 0);
  CHECK(std::isnan(other->values[0].slowdown()));
  CHECK(std::isnan(back->values[0].slowdown()));
}

TEST_CASE("samples that are not known tell nothing of where a value may lie") {
  const Value value{"tok_s", "tok/s", 2, {3, NAN, 1, NAN, NAN, 2}};
  CHECK(range_of(value) == std::pair(1.0, 3.0));
  CHECK(range_of({"tok_s", "tok/s", 2, {NAN}}) == std::pair(2.0, 2.0));
}

TEST_CASE("what the load generator was late is shown, not guarded") {
  SavedRecord a = make_record("a", "cuda:0", 100);
  a.rows[0].values = {{"e2e_p50", "ms", 10}, {"late_p50", "ms", 0.1}, {"completed", "requests", 4}};
  const Result<Comparison> all = compare(a, a, {});
  REQUIRE(all.ok());
  CHECK(is_guarded(all->values[0].a));
  CHECK_FALSE(is_guarded(all->values[1].a));
  CHECK_FALSE(is_guarded(all->values[2].a));
  SavedRecord b = a;
  b.rows[0].values.erase(b.rows[0].values.begin() + 1);
  const Result<Comparison> without = compare(a, b, {});
  REQUIRE(without.ok());
  CHECK(without->only_a == std::vector<std::string>{"cuda:0 pp512: late_p50 in ms"});
  CHECK(without->lost.empty());
}

TEST_CASE("one device a side belongs together whatever its id, several by id") {
  SavedRecord a = make_record("a", "cuda:0", 100);
  const SavedRecord b = make_record("b", "vulkan:0", 80);
  REQUIRE(compare(a, b, {}).ok());
  CHECK(compare(a, b, {})->values.front().device_b == "vulkan:0");
  for (const RecordRow& row : b.rows) a.rows.push_back(row);
  const Result<Comparison> all = compare(a, b, {});
  REQUIRE(all.ok());
  CHECK(all->values.size() == 3);
  CHECK(all->only_a == std::vector<std::string>{"cuda:0 pp512", "cuda:0 tg8"});
  const Result<Comparison> within = compare(a, a, {.device_a = "cuda:0", .device_b = "vulkan:0"});
  REQUIRE(within.ok());
  CHECK_THAT(within->values.front().ratio(), WithinRel(0.8, 1e-9));
  CHECK_THAT(refusal(a, b, {.device_a = "cuda:7"}), ContainsSubstring("expected a device of a (cuda:0, vulkan:0)"));
}

TEST_CASE("what one side has not is named, and nothing in common is refused") {
  const SavedRecord a = make_record("a", "cuda:0", 100);
  SavedRecord b = a;
  b.rows.pop_back();
  b.rows[0].values.push_back({"of_limit", "share", 0.5});
  const Result<Comparison> all = compare(a, b, {});
  REQUIRE(all.ok());
  CHECK(all->only_a == std::vector<std::string>{"cuda:0 tg8"});
  CHECK(all->lost == all->only_a);
  CHECK(all->only_b == std::vector<std::string>{"cuda:0 pp512: of_limit in share"});
  CHECK(compare(b, a, {})->lost.empty());
  CHECK(compare(a, b, {.names = {"tok_s"}})->only_b.empty());
  CHECK_THAT(refusal(a, b, {.names = {"nothing"}}), ContainsSubstring("(nothing), found none"));
}
