// What the prefix cache tells a client about the texts of others. Method: the engine over the backend of hashes; an
// attacker who knows how a victim's text begins tries what comes next, sees how many tokens were cached and counts the
// steps until his answer.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <random>

#include "core/engine/engine.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/sim_clock.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

constexpr uint32_t kBlock = 16;

struct Sink final : EventSink {
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      if (event.token >= 0 && !event.is_prompt) tokens.push_back(event.token);
      if (event.finish == FinishReason::kNone) continue;
      ++num_ended;
      cached_tokens = std::max(cached_tokens, event.cached_tokens);
    }
  }
  std::vector<int32_t> tokens;
  uint32_t num_ended = 0, cached_tokens = 0;
};

// What a client sees.
struct Seen {
  uint32_t cached_tokens = 0, num_ticks = 0;
  uint64_t prefix_hits = 0;  // in the metrics of all
  auto operator<=>(const Seen&) const = default;
};

struct Running {
  explicit Running(PrefixCacheKind kind) {
    EngineConfig config;
    config.context_max = 512;
    config.kv_tokens = 256 * kBlock;
    config.block_tokens = kBlock;
    config.chunk_tokens = config.step_tokens_max = kBlock;
    config.prefix_cache = kind;
    config.kv_host_bytes = 1 << 20;
    auto created = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                                  std::make_unique<FakeBackend>(FakeBackendConfig{}), &clock, {});
    REQUIRE(created.ok());
    engine = std::move(*created);
  }
  std::shared_ptr<Sink> submit(std::span<const int32_t> prompt, uint32_t max_tokens, const std::string& salt = "",
                               uint32_t n = 1) {
    Request request;
    request.prompt.assign(prompt.begin(), prompt.end());
    request.max_tokens = max_tokens;
    request.n = n;
    request.stop.ignore_eos = true;
    request.cache_salt = salt;
    auto sink = std::make_shared<Sink>();
    request.sink = sink;
    REQUIRE(engine->submit(std::move(request)).ok());
    return sink;
  }
  Seen until_ended(const std::shared_ptr<Sink>& sink, uint64_t hits_before, uint32_t n = 1) {
    Seen seen;
    while (sink->num_ended < n) {
      REQUIRE(engine->tick().ok());
      REQUIRE(++seen.num_ticks < 1000);
    }
    seen.cached_tokens = sink->cached_tokens;
    seen.prefix_hits = engine->stats().prefix_hits - hits_before;
    return seen;
  }
  Seen ask(std::span<const int32_t> prompt, const std::string& salt = "", uint32_t n = 1) {
    const uint64_t before = engine->stats().prefix_hits;
    return until_ended(submit(prompt, 1, salt, n), before, n);
  }
  SimClock clock;
  std::unique_ptr<Engine> engine;
};

std::vector<int32_t> random_text(std::mt19937& random, size_t length) {
  std::vector<int32_t> text(length);
  for (int32_t& token : text) token = static_cast<int32_t>(2 + random() % (kFakeVocab - 2));
  return text;
}

}  // namespace

TEST_CASE("10,000 probes of another's text tell nothing beyond the whole blocks that were known") {
  Running run(GENERATE(PrefixCacheKind::kRadix, PrefixCacheKind::kHashed));
  std::mt19937 random(7);
  uint32_t num_probes = 0, num_right = 0;
  while (num_probes < 10'000) {
    // The attacker knows the first tokens of a prompt, or all of it and how the answer begins.
    const std::vector<int32_t> prompt = random_text(random, 70);
    const auto answer = run.submit(prompt, 60);
    run.until_ended(answer, 0);
    std::vector<int32_t> text = prompt;
    text.insert(text.end(), answer->tokens.begin(), answer->tokens.end());
    for (const size_t block : {0, 1, 3, 5}) {
      const size_t num_known = block * kBlock + random() % (kBlock - 2);
      std::vector<int32_t> probe(text.begin(), text.begin() + static_cast<ptrdiff_t>(num_known));
      probe.resize(num_known + 2, 2);  // known, guess, anything
      const uint32_t n = random() % 4 == 0 ? 2 : 1;
      std::array<Seen, 2> first;
      std::array<bool, 2> is_seen = {};
      for (int32_t guess = 0; guess < static_cast<int32_t>(kFakeVocab); ++guess, ++num_probes) {
        probe[num_known] = guess;
        const bool is_right = guess == text[num_known];
        num_right += is_right;
        const Seen seen = run.ask(probe, "", n);
        if (!is_seen[is_right]) first[is_right] = seen;
        is_seen[is_right] = true;
        REQUIRE(seen == first[is_right]);
        REQUIRE(seen.cached_tokens == block * kBlock);
      }
      INFO("right: " << first[1].cached_tokens << " cached, " << first[1].num_ticks << " ticks, "
                     << first[1].prefix_hits << "; wrong: " << first[0].cached_tokens << ", " << first[0].num_ticks
                     << ", " << first[0].prefix_hits);
      REQUIRE(first[0] == first[1]);
    }
  }
  CHECK(num_right * kFakeVocab == num_probes);
}

TEST_CASE("what waits beside a text that is just being computed tells nothing of it either") {
  std::mt19937 random(8);
  for (int round = 0; round < 40; ++round) {
    Seen seen[2];
    const std::vector<int32_t> text = random_text(random, 120);
    const size_t num_known = 2 * kBlock + random() % (kBlock - 2);
    const auto num_before = static_cast<int>(random() % 6);
    for (const bool is_right : {false, true}) {
      Running run(PrefixCacheKind::kRadix);
      run.submit(text, 40);
      for (int i = 0; i < num_before; ++i) REQUIRE(run.engine->tick().ok());
      std::vector<int32_t> probe(text.begin(), text.begin() + static_cast<ptrdiff_t>(num_known));
      probe.push_back(is_right ? text[num_known] : text[num_known] == 2 ? 3 : 2);
      probe.push_back(2);
      // Two of them, so that there is an order.
      const auto other = run.submit(random_text(random, 20), 1);
      seen[is_right] = run.ask(probe);
    }
    CHECK(seen[0] == seen[1]);
  }
}

TEST_CASE("a client's own prompt tells its whole blocks when it comes again, with a salt all but its last token") {
  Running run(PrefixCacheKind::kRadix);
  std::mt19937 random(9);
  const std::vector<int32_t> text = random_text(random, 6 * kBlock + 5);
  CHECK(run.ask(text).cached_tokens == 0);
  CHECK(run.ask(text).cached_tokens == 6 * kBlock);
  CHECK(run.ask(std::span(text).first(6 * kBlock)).cached_tokens == 5 * kBlock);  // the last token is computed

  CHECK(run.ask(text, "mine").cached_tokens == 0);
  CHECK(run.ask(text, "mine").cached_tokens == 6 * kBlock);  // what is behind the last full block is not kept
  CHECK(run.ask(std::span(text).first(6 * kBlock), "mine").cached_tokens == 6 * kBlock - 1);
  std::vector<int32_t> other(text.begin(), text.begin() + 3 * kBlock + 7);
  other.resize(5 * kBlock, 2);
  CHECK(run.ask(other, "mine").cached_tokens == 3 * kBlock + 7);
  CHECK(run.ask(other, "another's").cached_tokens == 0);
  CHECK(run.ask(other).cached_tokens == 3 * kBlock);
}
