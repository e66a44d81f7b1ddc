// What drafts from a text of one's own are worth where an answer repeats it: a model goes on with a file that stands in
// its prompt, and with a list of objects of a grammar, with and without. Prints tokens a second of both; the texts are
// the same up to where two logits are nearly equal.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>

#include "core/grammar/gbnf.h"
#include "core/grammar/grammar_compiler.h"
#include "core/speculate/ngram_drafter.h"
#include "tests/models/model_harness.h"

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

Measured measure(ModelUnderTest& model, const Prompt& prompt) {
  const SteadyClock clock;
  const EngineStats before = model.engine().stats();
  const TimeNs begin_ns = clock.now_ns();
  const std::vector<Answer> answers = model.run({prompt});
  const double seconds = static_cast<double>(clock.now_ns() - begin_ns) * 1e-9;
  const EngineStats stats = model.engine().stats();
  Measured measured{answers[0], static_cast<double>(answers[0].steps.size()) / seconds,
                    stats.num_steps - before.num_steps, stats.drafts};
  measured.drafts.num_accepted -= before.drafts.num_accepted;
  measured.drafts.num_proposed -= before.drafts.num_proposed;
  return measured;
}

// `gain`: tokens a second with drafts, as a multiple of those without.
struct Gain {
  Measured with, without;
  double gain;
};
Gain compare_drafts(ModelUnderTest& model, const std::string& device, const char* what, Prompt prompt) {
  Prompt first = prompt;
  first.max_tokens = 4;  // what the first steps of a device take is no measure
  model.run({first});
  const Measured without = measure(model, prompt);
  prompt.speculation = Speculation{std::make_shared<NgramDrafts>(), 7};
  const Measured with = measure(model, prompt);
  const double gain = with.tokens_s / without.tokens_s;
  fmt::print(
      "{}: {}: {:.1f} tokens/s with drafts, {:.1f} without: {:.2f} times; {} steps for {} tokens, {} of {} "
      "drafts right\n",
      device, what, with.tokens_s, without.tokens_s, gain, with.num_steps, with.answer.steps.size(),
      with.drafts.num_accepted, with.drafts.num_proposed);
  const Agreement agreement = compare({without.answer}, {with.answer});
  CHECK(agreement.worst_margin < 0.05f);
  return {with, without, gain};
}

EngineConfig small_config() {
  EngineConfig config;
  config.context_max = 512;
  config.sequences_max = 4;
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
    edit.max_tokens = 60;
    const Gain file = compare_drafts(model, device, "a file", edit);
    CHECK(file.with.num_steps * 2 < file.without.num_steps);

    GrammarCompiler compiler(TokenVocabulary::create(model.tokenizer()));
    const auto grammar = compiler.compile({"people", "", [](GrammarBuilder* builder) -> Status {
                                             Result<SymbolId> start = add_gbnf(builder, kPeople, {});
                                             if (!start.ok()) return start.error();
                                             builder->set_start(*start);
                                             return {};
                                           }});
    REQUIRE(grammar.ok());
    Prompt people{model.encode("Three famous physicists as JSON:\n")};
    people.max_tokens = 60;
    people.constraint = *grammar;
    const Gain objects = compare_drafts(model, device, "objects of a grammar", people);
    CHECK(objects.with.num_steps * 3 < objects.without.num_steps * 2);
  }
}

}  // namespace llmrt::test
