// Runs of pages: by hand, then random calls beside a bitmap.
#include "core/adapter/page_runs.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>

using namespace llmrt;

TEST_CASE("the first run that is large enough is taken, and neighbours become one run again") {
  PageRuns pages(10);
  CHECK_FALSE(pages.take(0));
  const auto a = pages.take(3), b = pages.take(4), c = pages.take(3);
  CHECK(a == PageRun{0, 3});
  CHECK(b == PageRun{3, 4});
  CHECK(c == PageRun{7, 3});
  CHECK_FALSE(pages.take(1));
  pages.give(*a);
  pages.give(*c);
  CHECK(pages.num_free() == 6);
  CHECK_FALSE(pages.take(4));  // six are free, in two runs
  CHECK(pages.take(2) == PageRun{0, 2});
  pages.give({0, 2});
  pages.give(*b);
  CHECK(pages.take(10) == PageRun{0, 10});
}

TEST_CASE("several runs are taken together or not at all") {
  PageRuns pages(8);
  const std::vector<uint32_t> too_many = {3, 3, 3}, fitting = {3, 3, 2};
  CHECK_FALSE(pages.take_all(too_many));
  CHECK(pages.num_free() == 8);
  CHECK(pages.audit({}).empty());
  const auto runs = pages.take_all(fitting);
  REQUIRE(runs);
  CHECK(runs->back() == PageRun{6, 2});
  CHECK(pages.audit(*runs).empty());
}

TEST_CASE("the audit sees pages that are lost, or counted twice") {
  PageRuns pages(8);
  const auto a = pages.take(2), b = pages.take(2);
  CHECK(pages.audit(std::vector{*a, *b}).empty());
  CHECK_FALSE(pages.audit(std::vector{*a}).empty());
  CHECK_FALSE(pages.audit(std::vector{*a, *b, *b}).empty());
  CHECK_FALSE(pages.audit(std::vector{*a, PageRun{2, 3}}).empty());
}

TEST_CASE("random calls agree with a bitmap") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const auto num_pages = static_cast<uint32_t>(1 + random() % 64);
    PageRuns pages(num_pages);
    std::vector<bool> is_taken(num_pages, false);
    std::vector<PageRun> taken;
    for (int step = 0; step < 400; ++step) {
      if (random() % 2 == 0 || taken.empty()) {
        const auto count = static_cast<uint32_t>(1 + random() % 9);
        // The first place in the bitmap with so many free pages behind each other.
        std::optional<uint32_t> first;
        for (uint32_t at = 0; at + count <= num_pages && !first; ++at)
          if (std::none_of(is_taken.begin() + at, is_taken.begin() + at + count, [](bool t) { return t; })) first = at;
        const auto run = pages.take(count);
        REQUIRE(run.has_value() == first.has_value());
        if (!run) continue;
        REQUIRE(*run == PageRun{*first, count});
        std::fill_n(is_taken.begin() + *first, count, true);
        taken.push_back(*run);
      } else {
        const size_t i = random() % taken.size();
        pages.give(taken[i]);
        std::fill_n(is_taken.begin() + taken[i].first, taken[i].count, false);
        taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(i));
      }
      REQUIRE(pages.num_free() == std::count(is_taken.begin(), is_taken.end(), false));
      REQUIRE(pages.audit(taken) == "");
    }
  }
}
