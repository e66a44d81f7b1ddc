// A sequence's text may not depend on how it was scheduled: overlapped against plain, batched with chunked prompts,
// preemption, late arrivals and prefixes out of the cache against alone. Greedy on a real model; two runs are compared
// up to their first difference, where the margin between the two best logits must be < 0.05, and at most 5 % of
// sequences may have one.
#include <catch2/catch_test_macros.hpp>

#include "backends/backends.h"
#include "tests/fakes/planted_backend.h"
#include "tests/models/model_harness.h"

namespace llmrt::test {
namespace {

const char* const kTexts[] = {
    "The lighthouse keeper climbed the stairs and found that the lamp",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Water boils at one hundred degrees because",
    "Dear Sir or Madam,\n\nI am writing to complain about the",
    "1, 2, 4, 8, 16, 32,",
    "The three largest oceans are",
    "Once upon a time, in a village by a frozen river, there lived a clockmaker who",
    "SELECT name, price FROM products WHERE",
    "Photosynthesis is the process by which",
    "In 1969, the first",
    "Die Katze sitzt auf dem Dach und",
    "List of ingredients:\n- flour\n- sugar\n-",
    "He looked at the map again. North was",
    "\"I don't believe it,\" she said. \"You told me that",
    "The function f(x) = x^2 + 3x has a derivative of",
    "To whom it may concern: the meeting is moved to",
    "Once, the moon asked the sea",
    "A binary search tree stores",
    "My grandmother's recipe for bread begins with",
    "The capital of France is Paris, and the capital of Italy is",
};

struct ModelAndDevices {
  std::string path;
  std::vector<std::string> devices;
};

// Skips the running test where there are none.
ModelAndDevices model_and_devices() {
  ModelAndDevices found{model_path("LLMRT_TEST_MODEL"), test_devices()};
  if (found.path.empty()) SKIP("LLMRT_TEST_MODEL is not set");
  if (found.devices.empty()) SKIP("no usable device");
  return found;
}

std::vector<Prompt> prompts_of(const ModelUnderTest& model, bool staggered) {
  std::vector<Prompt> prompts;
  for (const char* text : kTexts) {
    Prompt prompt{model.encode(text)};
    prompt.max_tokens = 6 + prompts.size() % 5;
    prompt.arrives_at_tick = staggered ? static_cast<uint32_t>(prompts.size()) / 2 : 0;
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

EngineConfig small_config() {
  EngineConfig config;
  config.context_max = 256;
  config.sequences_max = 8;
  config.audit_steps = 1;
  return config;
}

// Tiny chunks, and a pool that forces preemption.
EngineConfig tight_config() {
  EngineConfig config = small_config();
  config.step_tokens_max = 13;
  config.chunk_tokens = 7;
  config.reserve_output_tokens = 0;
  config.context_max = 64;
  config.kv_tokens = 3 * 16;
  config.watermark = 0;
  return config;
}

std::vector<Answer> run_alone(const std::string& path, const std::string& device) {
  EngineConfig config = small_config();
  config.overlap = false;
  config.prefix_cache = PrefixCacheKind::kOff;
  ModelUnderTest model(path, device, config);
  std::vector<Answer> answers;
  for (const Prompt& prompt : prompts_of(model, false)) answers.push_back(model.run({prompt})[0]);
  return answers;
}

void check(const char* what, const std::vector<Answer>& alone, const std::vector<Answer>& other) {
  const Agreement agreement = compare(alone, other);
  INFO(what << ": " << agreement.num_different << " of " << agreement.num_sequences << " differ, worst margin "
            << agreement.worst_margin);
  CHECK(agreement.fair());
}

bool agree(const std::vector<Answer>& alone, const std::vector<Answer>& other) {
  return same_ends(alone, other) && compare(alone, other).fair();
}

}  // namespace

TEST_CASE("a text does not depend on batching, chunks, preemption, cached prefixes or overlap", "[model]") {
  const auto [path, devices] = model_and_devices();
  for (const std::string& device : devices) {
    INFO(device);
    const std::vector<Answer> alone = run_alone(path, device);
    {
      ModelUnderTest model(path, device, small_config());
      check("batched and overlapped", alone, model.run(prompts_of(model, true)));
    }
    {
      ModelUnderTest model(path, device, small_config());
      model.run(prompts_of(model, false));
      const uint64_t hits_before = model.engine().stats().prefix_hits;
      check("prefixes out of the cache", alone, model.run(prompts_of(model, true)));
      CHECK(model.engine().stats().prefix_hits > hits_before + 20);
    }
    ModelUnderTest model(path, device, tight_config());
    check("tiny chunks and a pool that forces preemption", alone, model.run(prompts_of(model, true)));
    CHECK(model.engine().stats().num_preemptions > 0);
  }
}

// Numbers bit by bit: in a batch with others, in chunks, behind a cached prefix, after yielding, beside rows that do
// not ask for it.
TEST_CASE("a batch-invariant request has the same numbers whatever runs beside it", "[.invariant]") {
  const auto [path, devices] = model_and_devices();
  for (const std::string& device : devices) {
    INFO(device);
    const auto ask = [](const ModelUnderTest& model, bool staggered) {
      std::vector<Prompt> prompts = prompts_of(model, staggered);
      Prompt& longest = prompts[5];  // several splits of keys, several tiles of rows
      for (int i = 0; i < 14; ++i)
        longest.tokens.insert(longest.tokens.end(), prompts[0].tokens.begin(), prompts[0].tokens.end());
      prompts.resize(8);
      for (Prompt& prompt : prompts) {
        prompt.batch_invariant = true;
        prompt.max_tokens += 6;
      }
      return prompts;
    };
    std::vector<Answer> alone;
    EngineConfig config = small_config();
    config.context_max = 512;
    {
      EngineConfig plain = config;
      plain.overlap = false;
      plain.prefix_cache = PrefixCacheKind::kOff;
      ModelUnderTest model(path, device, plain);
      for (const Prompt& prompt : ask(model, false)) alone.push_back(model.run({prompt})[0]);
    }
    {
      ModelUnderTest model(path, device, config);
      CHECK(num_different_bits(alone, model.run(ask(model, true))) == 0);
      const uint64_t hits_before = model.engine().stats().prefix_hits;
      CHECK(num_different_bits(alone, model.run(ask(model, false))) == 0);
      CHECK(model.engine().stats().prefix_hits > hits_before + 100);
      // Half of them in the default mode.
      std::vector<Prompt> prompts = ask(model, true);
      for (size_t i = 0; i < prompts.size(); i += 2) prompts[i].batch_invariant = false;
      const std::vector<Answer> mixed = model.run(prompts);
      int num_different = 0;
      for (size_t i = 1; i < mixed.size(); i += 2) num_different += num_different_bits({alone[i]}, {mixed[i]});
      CHECK(num_different == 0);
    }
    config.step_tokens_max = 61;
    config.chunk_tokens = 50;
    config.reserve_output_tokens = 0;
    config.kv_tokens = 13 * 16;
    config.watermark = 0;
    ModelUnderTest model(path, device, config);
    CHECK(num_different_bits(alone, model.run(ask(model, false))) == 0);
    CHECK(model.engine().stats().num_preemptions > 0);
  }
}

// The test of the test. One engine for all: what a bug leaves in row state and pool belongs to nobody afterwards
// (so there is no prefix cache).
TEST_CASE("each of the planted bugs makes texts disagree", "[.planted]") {
  const auto [path, devices] = model_and_devices();
  auto file = load_model(path);
  REQUIRE(file.ok());
  auto backend = open_device(devices[0]);
  REQUIRE(backend.ok());
  auto owned = std::make_unique<PlantedBackend>(std::move(*backend));
  PlantedBackend& planted = *owned;
  EngineConfig config = tight_config();
  config.prefix_cache = PrefixCacheKind::kOff;
  ModelUnderTest model(*file, std::move(owned), config);
  std::vector<Answer> alone;
  for (const Prompt& prompt : prompts_of(model, false)) alone.push_back(model.run({prompt})[0]);
  CHECK(agree(alone, model.run(prompts_of(model, true))));
  for (int bug = 1; bug < kNumBugs; ++bug) {
    INFO("planted: " << bug_name(static_cast<Bug>(bug)));
    planted.plant(static_cast<Bug>(bug));
    CHECK_FALSE(agree(alone, model.run(prompts_of(model, true))));
    CHECK(planted.num_planted() > 0);
  }
}

}  // namespace llmrt::test
