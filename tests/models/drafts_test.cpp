// What drafts from a text of one's own are worth where an answer repeats it: a model goes on with a file that stands in
// its prompt, and with a list of objects of a grammar, with and without. Prints tokens a second of both, on a CPU of
// the time that the process computed, as what else runs there does not count; the texts are the same up to where two
// logits are nearly equal.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <ctime>

#include "backends/backends.h"
#include "core/grammar/gbnf.h"
#include "core/grammar/grammar_compiler.h"
#include "core/speculate/ngram_drafter.h"
#include "tests/models/model_harness.h"
#include "tools/llmrt_bench/kv/recoded_model.h"

namespace llmrt::test {
namespace {

const char* const kFile =
    "class Account:\n"
    "    def __init__(self, owner, balance=0):\n"
    "        self.owner = owner\n"
    "        self.balance = balance\n"
    "        self.history = []\n"
    "\n"
    "    def deposit(self, amount):\n"
    "        if amount <= 0:\n"
    "            raise ValueError('amount must be positive')\n";

const char* const kPeople = R"(
root ::= "[" person (", " person)* "]"
person ::= "{\"first_name\": \"" [A-Za-z]{2,12} "\", \"last_name\": \"" [A-Za-z]{2,12} "\", \"year_of_birth\": " [0-9]{4} "}")";

struct Measured {
  Answer answer;
  double tokens_s;
  uint64_t num_steps;
  DraftStats drafts;
};

double seconds_now(ModelUnderTest& model) {
  if (model.engine().backend().caps().is_cpu) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return static_cast<double>(SteadyClock().now_ns()) * 1e-9;
}

Measured measure(ModelUnderTest& model, const Prompt& prompt) {
  const EngineStats before = model.engine().stats();
  const double begin_s = seconds_now(model);
  const std::vector<Answer> answers = model.run({prompt});
  const double seconds = seconds_now(model) - begin_s;
  const EngineStats stats = model.engine().stats();
  Measured measured{answers[0], static_cast<double>(answers[0].steps.size()) / seconds,
                    stats.num_steps - before.num_steps, stats.drafts};
  measured.drafts.num_accepted -= before.drafts.num_accepted;
  measured.drafts.num_proposed -= before.drafts.num_proposed;
  return measured;
}

// Steps of the sizes that drafts make, so that it is known what they take.
void try_sizes(ModelUnderTest& model) {
  Prompt prompt{model.encode("The lighthouse")};
  prompt.temperature = 1;
  prompt.max_tokens = 4;
  for (prompt.n = 1; prompt.n <= 8; prompt.n *= 2) model.run({prompt});
}

// Tokens a second with drafts, as a multiple of those without. `steps_share`: of the steps without, at most so many.
double gain_once(ModelUnderTest& model, const std::string& device, const char* what, Prompt prompt,
                 double steps_share) {
  const Measured without = measure(model, prompt);
  prompt.speculation = Speculation{std::make_shared<NgramDrafts>(), 7};
  const Measured with = measure(model, prompt);
  const double gain = with.tokens_s / without.tokens_s;
  fmt::print(
      "{}: {}: {:.1f} tokens/s with drafts, {:.1f} without: {:.2f} times; {} steps for {} tokens, {} of {} drafts "
      "right\n",
      device, what, with.tokens_s, without.tokens_s, gain, with.num_steps, with.answer.steps.size(),
      with.drafts.num_accepted, with.drafts.num_proposed);
  const Agreement agreement = compare({without.answer}, {with.answer});
  CHECK(agreement.worst_margin < 0.05f);
  CHECK(static_cast<double>(with.num_steps) < steps_share * static_cast<double>(without.num_steps));
  return gain;
}

// The best of three: what else the machine does may fall on one of the two.
double gain_of(ModelUnderTest& model, const std::string& device, const char* what, const Prompt& prompt,
               double steps_share, double least) {
  Prompt first = prompt;
  first.max_tokens = 1;
  model.run({first});  // the prompt is in the cache
  double best = 0;
  for (int tries = 0; tries < 3 && best < least; ++tries)
    best = std::max(best, gain_once(model, device, what, prompt, steps_share));
  return best;
}

EngineConfig small_config() {
  EngineConfig config;
  config.context_max = 512;
  config.sequences_max = 8;
  config.prefix_cache = PrefixCacheKind::kRadix;  // the prompt is computed once
  return config;
}

}  // namespace

TEST_CASE("a file that is copied with a change, and objects of a grammar, come sooner with drafts", "[model]") {
  const std::string path = model_path("LLMRT_TEST_MODEL");
  const std::vector<std::string> devices = test_devices();
  if (path.empty()) SKIP("LLMRT_TEST_MODEL is not set");
  if (devices.empty()) SKIP("no usable device");
  for (const std::string& device : devices) {
    INFO(device);
    ModelUnderTest model(path, device, small_config());
    Prompt edit{
        model.encode(fmt::format("account.py:\n```python\n{}```\n\nThe same file, with the class renamed to "
                                 "Wallet:\n```python\nclass Wallet:\n    def __init__(self, owner",
                                 kFile))};
    edit.max_tokens = 48;
    try_sizes(model);
    CHECK(gain_of(model, device, "a file", edit, 0.5, 1.25) >= 1.25);

    GrammarCompiler compiler(TokenVocabulary::create(model.tokenizer()));
    const auto grammar = compiler.compile({"people", "", [](GrammarBuilder* builder) -> Status {
                                             Result<SymbolId> start = add_gbnf(builder, kPeople, {});
                                             if (!start.ok()) return start.error();
                                             builder->set_start(*start);
                                             return {};
                                           }});
    REQUIRE(grammar.ok());
    Prompt people{model.encode("Three famous physicists as JSON:\n")};
    people.max_tokens = 48;
    people.constraint = *grammar;
    CHECK(gain_of(model, device, "objects of a grammar", people, 0.75, 1.01) > 1);
  }
}

// Both have the same weights, but for the rounding to f16: their tokens differ where two scores are nearly equal.
TEST_CASE("a model drafts for another encoding of itself: its drafts are right and no text changes", "[model]") {
  const std::string path = model_path("LLMRT_TEST_MODEL");
  const std::vector<std::string> devices = test_devices();
  if (path.empty()) SKIP("LLMRT_TEST_MODEL is not set");
  if (devices.empty()) SKIP("no usable device");
  const auto loaded = load_model(path);
  REQUIRE(loaded.ok());
  const auto open = [](const std::string& device) {
    auto backend = open_device(device);
    REQUIRE(backend.ok());
    return *std::move(backend);
  };
  for (const std::string& device : devices) {
    INFO(device);
    ModelUnderTest model(*loaded, open(device), small_config(), {bench::as_floats(*loaded), open(device)});
    std::vector<Prompt> prompts;
    for (const float temperature : {0.0f, 1.0f}) {
      Prompt prompt{model.encode("The lighthouse stood on a rock, and every evening the keeper")};
      prompt.temperature = temperature;
      prompt.max_tokens = 16;
      prompt.batch_invariant = model.engine().backend().caps().batch_invariant;
      prompts.push_back(prompt);
    }
    prompts[1].n = 2;
    // With drafts first: while it is not known what a step takes they are taken as they come.
    std::vector<Prompt> drafted = prompts;
    for (Prompt& prompt : drafted) prompt.speculation = Speculation{nullptr, 3, /*by_model=*/true};
    const std::vector<Answer> with = model.run(drafted);
    const DraftStats drafts = model.engine().stats().drafts;
    const std::vector<Answer> without = model.run(prompts);
    fmt::print("{}: {} of {} drafts of a draft model are right\n", device, drafts.num_model_accepted,
               drafts.num_model_proposed);
    CHECK(drafts.num_model_proposed > 0);
    CHECK(drafts.num_model_accepted * 4 >= drafts.num_model_proposed * 3);
    CHECK(compare(without, with).worst_margin < 0.05f);
    if (prompts[0].batch_invariant) CHECK(num_different_bits(without, with) == 0);
  }
}

}  // namespace llmrt::test
