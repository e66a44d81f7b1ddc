// What drafts from a text of one's own are worth where an answer repeats it: a model goes on with a file that stands in
// its prompt, with and without. Prints tokens a second of both; the texts are the same up to where two logits are
// nearly equal.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>

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
    "            raise ValueError('amount must be positive')\n"
    "        self.balance += amount\n"
    "        self.history.append(('deposit', amount))\n"
    "        return self.balance\n"
    "\n"
    "    def withdraw(self, amount):\n"
    "        if amount > self.balance:\n"
    "            raise ValueError('not enough money')\n"
    "        self.balance -= amount\n"
    "        self.history.append(('withdraw', amount))\n"
    "        return self.balance\n";

struct Measured {
  Answer answer;
  double tokens_s;
  EngineStats stats;
};

Measured measure(ModelUnderTest& model, const Prompt& prompt) {
  const SteadyClock clock;
  const EngineStats before = model.engine().stats();
  const TimeNs begin_ns = clock.now_ns();
  std::vector<Answer> answers = model.run({prompt});
  const double seconds = static_cast<double>(clock.now_ns() - begin_ns) * 1e-9;
  Measured measured{answers[0], static_cast<double>(answers[0].steps.size()) / seconds, model.engine().stats()};
  measured.stats.num_steps -= before.num_steps;
  return measured;
}

}  // namespace

TEST_CASE("a file that is copied with a change comes sooner with drafts from the prompt", "[model]") {
  const std::string path = model_path("LLMRT_TEST_MODEL");
  const std::vector<std::string> devices = test_devices();
  if (path.empty()) SKIP("LLMRT_TEST_MODEL is not set");
  if (devices.empty()) SKIP("no usable device");
  for (const std::string& device : devices) {
    INFO(device);
    EngineConfig config;
    config.context_max = 1024;
    config.sequences_max = 4;
    config.prefix_cache = PrefixCacheKind::kRadix;  // the prompt is computed once
    ModelUnderTest model(path, device, config);
    Prompt prompt{
        model.encode(fmt::format("account.py:\n```python\n{}```\n\nThe same file, with the class renamed to "
                                 "Wallet:\n```python\nclass Wallet:\n    def __init__(self, owner",
                                 kFile))};
    prompt.max_tokens = 150;
    model.run({prompt});
    const Measured without = measure(model, prompt);
    prompt.speculation = Speculation{std::make_shared<NgramDrafts>(), 7};
    measure(model, prompt);  // it learns what steps of so many tokens take
    const Measured with = measure(model, prompt);
    const DraftStats& drafts = with.stats.drafts;
    fmt::print(
        "{}: {:.1f} tokens/s with drafts, {:.1f} without: {:.2f} times; {} steps for {} tokens, {} of {} drafts "
        "right\n",
        device, with.tokens_s, without.tokens_s, with.tokens_s / without.tokens_s, with.stats.num_steps,
        with.answer.steps.size(), drafts.num_accepted, drafts.num_proposed);
    const Agreement agreement = compare({without.answer}, {with.answer});
    CHECK(agreement.worst_margin < 0.05f);
    CHECK(with.stats.num_steps * 2 < without.stats.num_steps);
  }
}

}  // namespace llmrt::test
