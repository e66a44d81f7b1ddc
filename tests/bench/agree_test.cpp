// Answers side by side: KL of whole logits and of listed tokens, first divergences, what is saved read back as it was,
// other work and damaged files refused by name. Made answers; no device.
#include "tools/llmrt_bench/agree/agreement.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "tools/llmrt_bench/kv/kv_numerics.h"

using namespace llmrt;
using namespace llmrt::bench;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

constexpr uint32_t kVocab = 50, kPositions = 7;

struct Folder {
  Folder() { std::filesystem::create_directory(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return (path / name).string(); }
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("llmrt-agreement-" + std::to_string(getpid()));
};

std::vector<std::vector<float>> made_logits(float noise) {
  std::mt19937 random(7), other(8);
  std::vector<std::vector<float>> all(kPositions, std::vector<float>(kVocab));
  for (auto& logits : all)
    for (float& logit : logits)
      logit = static_cast<float>(random() % 1000) * 0.01f + noise * static_cast<float>(other() % 1000) * 1e-3f;
  return all;
}

// Of a device that computed these logits and lists the `count` best.
Answers made_answers(const std::string& name, const std::vector<std::vector<float>>& all, size_t count) {
  Answers answers;
  answers.name = answers.device_id = name;
  for (size_t i = 0; i < all.size(); ++i) {
    const double sum = log_sum_exp(all[i]);
    std::vector<TopLogprob> list;
    for (uint32_t token = 0; token < kVocab; ++token)
      list.push_back({static_cast<int32_t>(token), static_cast<float>(all[i][token] - sum)});
    answers.tokens.push_back(static_cast<int32_t>(3 * i));
    answers.logprobs.push_back(list[3 * i].logprob);
    std::ranges::stable_sort(list, std::greater(), &TopLogprob::logprob);
    list.resize(count);
    answers.top.push_back(list);
  }
  answers.greedy = {{{5, 0.5f}, {6, 0.25f}, {7, 0.125f}}, {{1, 1.0f}}};
  return answers;
}

LogitsFile save(const std::string& path, DType dtype, const std::vector<std::vector<float>>& all) {
  LogitsWriter writer(path, dtype, kVocab);
  for (const auto& logits : all) writer.add(logits);
  return *writer.finish();
}

double mean_kl(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += kl_divergence(a[i], b[i]);
  return sum / static_cast<double>(a.size());
}

SavedRecord record_of(const Answers& answers) {
  SavedRecord record;
  record.command = "agree";
  record.path = "saved.json";
  record.rows = {to_row(answers)};
  return record;
}

}  // namespace

TEST_CASE("KL of whole logits is exact, of listed tokens at most that and closer with more of them") {
  const Folder folder;
  const auto logits_a = made_logits(0), logits_b = made_logits(1);
  const double exact = mean_kl(logits_a, logits_b);
  double before = 0;
  for (const size_t count : {1, 5, 20, 49}) {
    const auto pair = compare_answers(made_answers("a", logits_a, count), made_answers("b", logits_b, count));
    REQUIRE(pair.ok());
    CHECK_FALSE(pair->is_whole);
    CHECK(*pair->mean_kl <= exact + 1e-6);
    CHECK(*pair->mean_kl >= before);
    before = *pair->mean_kl;
  }
  CHECK_THAT(before, WithinRel(exact, 0.01));
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    Answers a = made_answers("a", logits_a, 5), b = made_answers("b", logits_b, 5);
    a.logits = save(folder.file("a.logits"), DType::kF32, logits_a);
    b.logits = save(folder.file("b.logits"), dtype, logits_b);
    const auto pair = compare_answers(a, b);
    REQUIRE(pair.ok());
    CHECK(pair->is_whole);
    CHECK_THAT(*pair->mean_kl, WithinRel(exact, dtype == DType::kF32 ? 1e-5 : 1e-2));
  }
}

TEST_CASE("equal answers agree in everything") {
  const Answers answers = made_answers("a", made_logits(0), 5);
  const auto pair = compare_answers(answers, answers);
  REQUIRE(pair.ok());
  CHECK(*pair->mean_kl == 0);
  CHECK(*pair->same_best == 1);
  CHECK(pair->greatest_difference == 0);
  CHECK(pair->divergences.empty());
  CHECK(pair->num_paths == 2);
}

TEST_CASE("a divergence is the first step that differs, with both margins") {
  const Answers a = made_answers("a", made_logits(0), 5);
  Answers b = a;
  b.greedy[0][1] = {9, 0.0625f};
  b.greedy[0][2] = {9, 4.0f};
  const auto pair = compare_answers(a, b);
  REQUIRE(pair.ok());
  REQUIRE(pair->divergences.size() == 1);
  const Divergence& at = pair->divergences[0];
  CHECK(at.prompt_idx == 0);
  CHECK(at.step_idx == 1);
  CHECK(at.a.token == 6);
  CHECK(at.b.token == 9);
  CHECK(pair->worst_margin() == 0.0625);
}

TEST_CASE("what a record keeps reads back bit by bit") {
  Answers answers = made_answers("a", made_logits(0.3f), 5);
  answers.logits = LogitsFile{"x.logits", DType::kF16, kPositions, kVocab, "00"};
  const auto read = read_answers(record_of(answers));
  REQUIRE(read.ok());
  REQUIRE(read->size() == 1);
  const Answers& found = read->front();
  CHECK(found.tokens == answers.tokens);
  CHECK(found.logprobs == answers.logprobs);
  CHECK(found.greedy[0][2].margin == answers.greedy[0][2].margin);
  CHECK(found.top[6][4].token == answers.top[6][4].token);
  CHECK(found.top[6][4].logprob == answers.top[6][4].logprob);
  CHECK(found.logits->path == "x.logits");
}

TEST_CASE("records of a wrong form are refused with the place") {
  const auto refused = [](const char* field, boost::json::value value, const char* told) {
    SavedRecord record = record_of(made_answers("a", made_logits(0), 2));
    record.rows[0].details[field] = std::move(value);
    const auto read = read_answers(record);
    REQUIRE_FALSE(read.ok());
    CHECK_THAT(read.error().message, ContainsSubstring("saved.json"));
    CHECK_THAT(read.error().message, ContainsSubstring(told));
  };
  refused("logprobs", {-1.0, -2.0}, "logprobs: expected 7 entries, found 2");
  refused("logprobs", "none", "rows[0].details");
  refused("logprobs", {1.5, -1, -1, -1, -1, -1, -1}, "expected a log-probability, found 1.5E0");
  refused("tokens", {1, 1e30}, "rows[0].details");
  refused("top", boost::json::array{boost::json::array{}}, "expected at least one token");
  const boost::json::object logits{
      {"file", "a.logits"}, {"dtype", "f16"}, {"positions", 7}, {"vocab_size", 50}, {"digest", ""}};
  boost::json::object wrong = logits;
  wrong["file"] = "../a.logits";
  refused("logits", wrong, "expected a name without folders");
  wrong = logits;
  wrong["dtype"] = "f64";
  refused("logits", wrong, "expected f16 or f32, found f64");
  wrong = logits;
  wrong["vocab_size"] = 0;
  refused("logits", wrong, "logits.vocab_size: expected 1 to");
  SavedRecord other = record_of(made_answers("a", made_logits(0), 2));
  other.command = "model";
  CHECK_THAT(read_answers(other).error().message, ContainsSubstring("expected a record of agree, found one of model"));
}

TEST_CASE("other work is refused by name, other KV dtypes are not, other weights where asked for") {
  const boost::json::object work{{"model_digest", "aa"}, {"kv_dtype", "f16"}, {"window", 512}, {"text_digest", "t"}};
  boost::json::object other = work;
  other["kv_dtype"] = "int8";
  CHECK(check_same_work("a", work, "b", other, false).ok());
  other["model_digest"] = "bb";
  CHECK_THAT(check_same_work("a", work, "b", other, false).error().message,
             ContainsSubstring("work.model_digest: \"aa\" and \"bb\""));
  CHECK(check_same_work("a", work, "b", other, true).ok());
  other["window"] = 64;
  CHECK_THAT(check_same_work("a", work, "b", other, true).error().message,
             ContainsSubstring("a and b: expected the same text and windows, found work.window: 512 and 64"));
}

TEST_CASE("a file of logits that is not what its record says is refused") {
  const Folder folder;
  const LogitsFile said = save(folder.file("a.logits"), DType::kF16, made_logits(0));
  REQUIRE(LogitsReader::open(said).ok());
  LogitsFile wrong = said;
  wrong.num_positions = 8;
  CHECK_THAT(LogitsReader::open(wrong).error().message,
             ContainsSubstring("expected 8 positions of 100 bytes, found 700 bytes"));
  wrong = said;
  wrong.path += ".gone";
  CHECK(LogitsReader::open(wrong).error().code == ErrorCode::kNotFound);
  std::fstream(said.path, std::ios::binary | std::ios::in | std::ios::out).put('x');
  CHECK_THAT(LogitsReader::open(said).error().message, ContainsSubstring("expected the digest"));
}
