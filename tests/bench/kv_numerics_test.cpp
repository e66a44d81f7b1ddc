// Aim: the figures of `llmrt-bench kv` mean what they say. Method: distributions, rankings and stored keys small enough
// to work out by hand, ties and equal ones among them; a ranking beside a full sort.
#include "tools/llmrt_bench/kv/kv_numerics.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <random>

#include "core/base/half.h"
#include "tools/llmrt_bench/kv/attention_ranking.h"
#include "tools/llmrt_bench/kv/kv_keys.h"

using namespace llmrt;
using namespace llmrt::bench;
using Catch::Approx;

namespace {

std::vector<float> logs(std::vector<double> numbers) {
  std::vector<float> out;
  for (const double number : numbers) out.push_back(static_cast<float>(std::log(number)));
  return out;
}

std::vector<uint32_t> top(uint32_t count, const std::vector<float>& scores) {
  TopPositions positions(count);
  for (uint32_t i = 0; i < scores.size(); ++i) positions.add(scores[i], i);
  return positions.sorted();
}

using Positions = std::vector<uint32_t>;

}  // namespace

TEST_CASE("log_sum_exp is exact for plain sums and does not overflow") {
  CHECK(log_sum_exp(logs({1, 2, 5})) == Approx(std::log(8.0)).epsilon(1e-7));
  CHECK(log_sum_exp(std::vector<float>{1000, 1000}) == Approx(1000 + std::log(2.0)));
  CHECK(log_sum_exp(std::vector<float>{-1000}) == -1000);
}

TEST_CASE("KL is 0 for equal logits and as worked out for others") {
  const std::vector<float> logits = {0.3f, -7.25f, 11.0f, 11.0f, 2e-3f};
  CHECK(kl_divergence(logits, logits) == 0);
  // p = 1/2, 1/4, 1/4 against q = 1/4, 1/4, 1/2: (1/2) ln 2 - (1/4) ln 2.
  CHECK(kl_divergence(logs({2, 1, 1}), logs({1, 1, 2})) == Approx(0.25 * std::log(2.0)).epsilon(1e-6));
  // p = 3/4, 1/4 against q = 1/2, 1/2, and the other way round: it is not symmetric.
  CHECK(kl_divergence(logs({3, 1}), logs({1, 1})) == Approx(0.75 * std::log(1.5) + 0.25 * std::log(0.5)).epsilon(1e-6));
  CHECK(kl_divergence(logs({1, 1}), logs({3, 1})) ==
        Approx(0.5 * std::log(2 / 3.0) + 0.5 * std::log(2.0)).epsilon(1e-6));
  // A constant on all logits is no difference but for the rounding of f32 logits.
  CHECK(std::abs(kl_divergence(logs({3, 1}), logs({3 * 8, 1 * 8}))) < 1e-6);
}

TEST_CASE("the best token is the lowest of equals") {
  CHECK(best_token(std::vector<float>{1, 4, 4, 2}) == 1);
  CHECK(best_token(std::vector<float>{-1}) == 0);
}

TEST_CASE("top positions are those of the greatest scores, ties to the lower position") {
  CHECK(top(2, {1, 5, 3, 4}) == Positions{1, 3});
  CHECK(top(2, {7, 7, 7, 7}) == Positions{0, 1});
  CHECK(top(2, {1, 7, 9, 7}) == Positions{1, 2});
  CHECK(top(3, {2, 2, 9, 2, 9}) == Positions{0, 2, 4});
  CHECK(top(3, {-5, -1}) == Positions{0, 1});
  CHECK(top(1, {}) == Positions{});
}

TEST_CASE("top positions equal those of a stable sort") {
  constexpr uint32_t kSeed = 7;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> scores(1 + random() % 300);
    for (float& score : scores) score = static_cast<float>(random() % 40);  // many ties
    const uint32_t count = 1 + random() % 40;
    Positions expected(scores.size());
    for (uint32_t i = 0; i < expected.size(); ++i) expected[i] = i;
    std::ranges::stable_sort(expected, [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
    expected.resize(std::min<size_t>(count, expected.size()));
    std::ranges::sort(expected);
    REQUIRE(top(count, scores) == expected);
  }
}

TEST_CASE("overlap is the share of the reference that is there too") {
  const Positions reference = {1, 4, 6, 9};
  CHECK(overlap(reference, reference) == 1);
  CHECK(overlap(reference, Positions{1, 5, 6, 10}) == 0.5);
  CHECK(overlap(reference, Positions{0, 2, 3, 9}) == 0.25);
  CHECK(overlap(reference, Positions{0, 2, 3, 5}) == 0);
}

TEST_CASE("the relative error is of all numbers together") {
  RelativeError error;
  CHECK(error.value() == 0);
  error.add(std::vector<float>{3, 0}, std::vector<float>{3, 0});
  CHECK(error.value() == 0);
  error.add(std::vector<float>{4}, std::vector<float>{3});
  CHECK(error.value() == Approx(0.2));
  RelativeError of_nothing;
  of_nothing.add(std::vector<float>{0}, std::vector<float>{1});
  CHECK(of_nothing.value() > 1e300);
  error.add(std::vector<float>{1}, std::vector<float>{NAN});
  CHECK(std::isnan(error.value()));
}

TEST_CASE("a key is scored against every lane of queries") {
  const std::vector<float> key = {2, -1, 0.5f};
  const std::vector<float> queries = {1, 0, 3, 4, 8, -2};  // lanes (1, 3, 8) and (0, 4, -2)
  std::vector<float> scores(2, 99.0f);
  score_key(key, queries, scores);
  CHECK(scores == std::vector<float>{2 - 3 + 4, -4 - 1});
}

TEST_CASE("keys are ranked by query and head, each with the keys of its kv head and its past") {
  LayerSpec layer;
  layer.num_heads = 4;  // heads 0 and 1 read kv head 0, heads 2 and 3 kv head 1
  layer.num_kv_heads = 2;
  layer.head_dim = 2;
  constexpr uint32_t kTokens = 12, kFirstQuery = kTokens - kAttentionQueries;
  // Key of position p: (p, -p) in kv head 0, (p % 3, 1) in kv head 1. Head 0 wants the latest, head 1 the earliest,
  // head 2 those with p % 3 == 2, head 3 finds all alike.
  const auto key = [](uint32_t kv_head, uint32_t p) {
    return kv_head == 0 ? std::vector<float>{static_cast<float>(p), -static_cast<float>(p)}
                        : std::vector<float>{static_cast<float>(p % 3), 1};
  };
  const float queries[4][2] = {{1, 0}, {0, 1}, {1, 0}, {0, 1}};
  std::vector<float> rows;
  for (uint32_t query = 0; query < kAttentionQueries; ++query) {
    for (const auto& head : queries) rows.insert(rows.end(), {head[0], head[1]});
    for (uint32_t kv_head = 0; kv_head < 2; ++kv_head)
      for (const float number : key(kv_head, kFirstQuery + query)) rows.push_back(number);
    rows.insert(rows.end(), 4, 1e6f);  // values
  }
  const auto rank = [&](uint32_t window, float factor) {
    layer.window = window;
    AttentionRanking ranking(layer, rows, kTokens, 2);
    for (uint32_t kv_head = 0; kv_head < 2; ++kv_head)
      for (uint32_t first = 0; first < kTokens; first += 5) {  // in pieces
        std::vector<float> keys;
        for (uint32_t p = first; p < std::min(first + 5, kTokens); ++p)
          for (const float number : key(kv_head, p)) keys.push_back(number * factor);
        ranking.add_keys(kv_head, first, keys);
      }
    return std::pair{ranking.positions(), ranking.key_error()};
  };
  const auto [sets, error] = rank(0, 1);
  CHECK(error == 0);
  REQUIRE(sets.size() == kAttentionQueries * 4);
  for (uint32_t query = 0; query < kAttentionQueries; ++query) {
    const uint32_t position = kFirstQuery + query;
    INFO("query " << query);
    CHECK(sets[query * 4 + 0] == Positions{position - 1, position});
    CHECK(sets[query * 4 + 1] == Positions{0, 1});
    CHECK(sets[query * 4 + 2] == (position < 5 ? Positions{1, 2} : Positions{2, 5}));
    CHECK(sets[query * 4 + 3] == Positions{0, 1});
  }
  const auto [windowed, scaled_error] = rank(3, 0.75f);
  CHECK(scaled_error == Approx(0.25));
  CHECK(windowed[1] == Positions{kFirstQuery - 2, kFirstQuery - 1});
}

TEST_CASE("stored keys are decoded from where kv_format.h puts them") {
  KvGroup group;
  group.num_layers = 1;
  group.num_kv_heads = 2;
  group.head_dim = 4;
  group.block_tokens = 16;
  group.num_blocks = 1;
  for (const KvDType dtype : {KvDType::kF16, KvDType::kBF16, KvDType::kI8}) {
    INFO(kv_dtype_name(dtype));
    group.dtype = dtype;
    // Of key (head, token, dim): a number of its own; values are all another, so that they can't be taken for keys.
    std::vector<std::byte> bytes(group.data_bytes_block_layer() + group.scale_bytes_block_layer(), std::byte{0x5a});
    const auto number = [](uint32_t head, uint32_t token, uint32_t dim) {
      return static_cast<int>(head * 64 + token * 4 + dim) - 60;
    };
    const auto scale = [](uint32_t head, uint32_t token) { return 0.5f * static_cast<float>(head * 16 + token + 1); };
    for (uint32_t head = 0; head < 2; ++head) {
      for (uint32_t token = 0; token < 16; ++token) {
        for (uint32_t dim = 0; dim < 4; ++dim) {
          const uint64_t index = (head * 16 + token) * 4 + dim;
          const auto value = static_cast<float>(number(head, token, dim));
          const uint16_t half =
              dtype == KvDType::kF16 ? f16_bits(value) : static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
          if (dtype == KvDType::kI8)
            bytes[index] = static_cast<std::byte>(number(head, token, dim));
          else
            std::memcpy(&bytes[index * 2], &half, 2);
        }
        const float of_vector = scale(head, token);
        if (dtype == KvDType::kI8) std::memcpy(&bytes[2 * 2 * 16 * 4 + (head * 16 + token) * 4], &of_vector, 4);
      }
    }
    for (uint32_t head = 0; head < 2; ++head) {
      std::vector<float> keys(5 * 4), expected;
      decode_keys(group, bytes, head, 1, keys);
      for (uint32_t token = 0; token < 5; ++token)
        for (uint32_t dim = 0; dim < 4; ++dim)
          expected.push_back(static_cast<float>(number(head, token, dim)) *
                             (dtype == KvDType::kI8 ? scale(head, token) : 1));
      CHECK(keys == expected);
    }
  }
}
