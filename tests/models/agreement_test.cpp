// A sequence's text may not depend on how it was scheduled: overlapped against plain, batched with chunked prompts,
// preemption, late arrivals and prefixes out of the cache against alone. Greedy on a real model; two runs are compared
// up to their first difference, where the margin between the two best logits must be < 0.05, and at most 5 % of
// sequences may have one. Requests that ask for batch invariance are compared bit by bit.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <span>

#include "backends/backends.h"
#include "tests/fakes/planted_backend.h"
#include "tests/fakes/scripted_drafts.h"
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

// ---- bit by bit ----

// How requests are served beside each other, and whether the engine's counters say that they were. `num_again`: how
// many positions were computed beyond each one once, where branches share their prompt.
struct Serving {
  const char* name;
  void (*set)(EngineConfig&);
  bool (*happened)(const EngineStats&, int64_t num_again);
  int num_runs = 1;
  bool beside_default_rows = false;
  bool has_drafts = false;
};

// Without a prefix cache: only what a serving means to be found again is.
EngineConfig invariant_config() {
  EngineConfig config = small_config();
  config.context_max = 512;
  config.sequences_max = 16;
  config.prefix_cache = PrefixCacheKind::kOff;
  return config;
}

void set_prefix_cache(EngineConfig& config) {
  config.prefix_cache = PrefixCacheKind::kRadix;
}

void set_chunks(EngineConfig& config) {
  config.step_tokens_max = 61;
  config.chunk_tokens = 50;
}

// The long prompt's branches find room, generate some tokens, and all of them have to yield.
template <OnExhaustion kPolicy>
void set_small_pool(EngineConfig& config) {
  config.kv_tokens = 20 * 16;
  config.reserve_output_tokens = 0;
  config.watermark = 0;
  config.on_exhaustion = kPolicy;
  if (kPolicy == OnExhaustion::kSwap) config.kv_host_bytes = 64 << 20;
}

bool is_batched(const EngineStats& stats, int64_t num_again) {
  return stats.generated_tokens > 2 * stats.num_steps && num_again == 0;
}

bool is_chunked(const EngineStats& stats, int64_t num_again) {
  const auto over_64 = std::span(stats.step_tokens.counts()).subspan(7);
  return num_again == 0 && std::ranges::all_of(over_64, [](uint64_t count) { return count == 0; });
}

bool is_behind_prefix(const EngineStats& stats, int64_t num_again) {
  return stats.prefix_hits > 150 && num_again == -static_cast<int64_t>(stats.prefix_hits);
}

bool is_recomputed(const EngineStats& stats, int64_t num_again) {
  return stats.num_preemptions > 0 && stats.num_swaps == 0 && num_again > 100;
}

bool is_swapped(const EngineStats& stats, int64_t num_again) {
  return stats.num_swaps > 0 && stats.num_swaps == stats.num_preemptions && stats.blocks_loaded > 0 && num_again < 50;
}

bool is_drafted(const EngineStats& stats, int64_t) {
  return stats.drafts.num_accepted > 20 && stats.drafts.num_proposed > stats.drafts.num_accepted + 5;
}

const Serving kServings[] = {
    {"batched, branches share a prompt, no overlap", [](EngineConfig& config) { config.overlap = false; }, is_batched},
    {"batched, branches share a prompt, overlap", [](EngineConfig&) {}, is_batched},
    {"beside default rows of the same texts, whose blocks are not theirs", set_prefix_cache, is_batched, 1, true},
    {"chunked", set_chunks, is_chunked},
    {"behind a cached prefix", set_prefix_cache, is_behind_prefix, 2},
    {"preempted and recomputed", set_small_pool<OnExhaustion::kRecompute>, is_recomputed},
    {"preempted and swapped to the host", set_small_pool<OnExhaustion::kSwap>, is_swapped},
    {"with drafts, some of them wrong", [](EngineConfig&) {}, is_drafted, 1, false, true},
};

// The last is long, for several splits of keys and several tiles of rows, and has branches; they begin inside a block.
std::vector<Prompt> invariant_prompts(const ModelUnderTest& model) {
  std::vector<Prompt> prompts = prompts_of(model, true);
  prompts.resize(6);
  for (Prompt& prompt : prompts) {
    prompt.batch_invariant = true;
    prompt.max_tokens += 10;
  }
  Prompt& longest = prompts.back();
  for (int i = 0; i < 14; ++i)
    longest.tokens.insert(longest.tokens.end(), prompts[0].tokens.begin(), prompts[0].tokens.end());
  REQUIRE((longest.tokens.size() - 1) % 16 != 0);
  longest.n = 3;
  longest.temperature = 1;
  return prompts;
}

// They run some steps before the others come.
void add_default_rows(std::vector<Prompt>* prompts) {
  std::vector<Prompt> twins(prompts->end() - 3, prompts->end());
  for (Prompt& twin : twins) {
    twin.batch_invariant = false;
    twin.arrives_at_tick = 0;
  }
  for (Prompt& prompt : *prompts) prompt.arrives_at_tick += 4;
  prompts->insert(prompts->end(), twins.begin(), twins.end());
}

std::vector<Answer> run_each_branch_alone(ModelUnderTest* model, const std::vector<Prompt>& prompts) {
  std::vector<Answer> answers;
  for (const Prompt& prompt : prompts) {
    Prompt one = prompt;
    one.arrives_at_tick = 0;
    for (one.n = 1; one.branch < prompt.n; ++one.branch) answers.push_back(model->run({one})[0]);
  }
  return answers;
}

std::vector<int32_t> tokens_of(const Answer& answer) {
  std::vector<int32_t> tokens;
  for (const StepTaken& step : answer.steps) tokens.push_back(step.token);
  return tokens;
}

// Each answer is known to its drafts, `answers` in the prompts' order, a branch after the other.
void add_drafts(std::span<const Answer> answers, uint32_t right_of_16, uint32_t vocab_size,
                std::vector<Prompt>* prompts) {
  size_t next = 0;
  for (Prompt& prompt : *prompts) {
    DraftScript script{.seed = next, .right_of_16 = right_of_16, .vocab_size = static_cast<int32_t>(vocab_size)};
    for (uint32_t branch = 0; branch < prompt.n; ++branch) script.answers.push_back(tokens_of(answers[next++]));
    prompt.speculation =
        Speculation{std::make_shared<ScriptedDrafts>(std::move(script)), static_cast<uint32_t>(1 + next % 7)};
  }
}

int64_t num_positions(const std::vector<Prompt>& prompts) {
  int64_t count = 0;
  for (const Prompt& prompt : prompts) count += prompt.tokens.size() - 1 + prompt.n * prompt.max_tokens;
  return count;
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
      const uint64_t hits_before = model.engine().stats().prefix_hits;
      check("prefixes out of the cache", alone, model.run(prompts_of(model, true)));
      CHECK(model.engine().stats().prefix_hits > hits_before + 20);
    }
    {
      ModelUnderTest model(path, device, small_config());
      std::vector<Prompt> drafted = prompts_of(model, true);
      add_drafts(alone, 13, model.engine().model().config.vocab_size, &drafted);
      check("drafts, some of them wrong", alone, model.run(drafted));
      CHECK(is_drafted(model.engine().stats(), 0));
    }
    ModelUnderTest model(path, device, tight_config());
    check("tiny chunks and a pool that forces preemption", alone, model.run(prompts_of(model, true)));
    CHECK(model.engine().stats().num_preemptions > 0);
  }
}

// Numbers bit by bit: each request, and each branch of one, alone in a plain engine against all of them together. The
// counters prove that they were served as the table says.
TEST_CASE("a batch-invariant request has the same numbers however it is served", "[.invariant]") {
  const auto [path, devices] = model_and_devices();
  for (const std::string& device : devices) {
    INFO(device);
    std::vector<Prompt> prompts;
    std::vector<Answer> alone;
    {
      EngineConfig config = invariant_config();
      config.overlap = false;
      ModelUnderTest model(path, device, config);
      prompts = invariant_prompts(model);
      alone = run_each_branch_alone(&model, prompts);
    }
    const auto branches = std::span(alone).last(3);
    CHECK(std::set{tokens_of(branches[0]), tokens_of(branches[1]), tokens_of(branches[2])}.size() == 3);
    for (const Serving& serving : kServings) {
      INFO(serving.name);
      EngineConfig config = invariant_config();
      serving.set(config);
      ModelUnderTest model(path, device, config);
      std::vector<Prompt> together = prompts;
      if (serving.beside_default_rows) add_default_rows(&together);
      if (serving.has_drafts) add_drafts(alone, 13, model.engine().model().config.vocab_size, &together);
      for (int i = 0; i < serving.num_runs; ++i) {
        std::vector<Answer> answers = model.run(together);
        answers.resize(alone.size());  // default rows are the last
        CHECK(num_different_bits(alone, answers) == 0);
      }
      const EngineStats stats = model.engine().stats();
      const int64_t num_again =
          static_cast<int64_t>(stats.step_tokens.sum()) - serving.num_runs * num_positions(together);
      INFO(num_again << " positions again, " << stats.prefix_hits << " cached; " << stats.num_preemptions
                     << " preemptions, " << stats.num_swaps << " swaps, " << stats.blocks_loaded << " blocks loaded");
      CHECK(serving.happened(stats, num_again));
    }
  }
}

// The test of the test. One engine for all: what a bug leaves in row state and pool belongs to nobody afterwards
// (so there is no prefix cache). A run ends when its texts can no longer agree.
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
  bool told = false;
  const auto tells = [&](const std::vector<Answer>& answers) { return told = disagree_already(alone, answers); };
  CHECK(agree(alone, model.run(prompts_of(model, true), tells)));
  CHECK_FALSE(told);
  for (int bug = 1; bug < kNumBugs; ++bug) {
    INFO("planted: " << bug_name(static_cast<Bug>(bug)));
    planted.plant(static_cast<Bug>(bug));
    model.run(prompts_of(model, true), tells);
    CHECK(told);
    CHECK(planted.num_planted() > 0);
  }
}

}  // namespace llmrt::test
