#include "tests/models/model_harness.h"

#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "backends/backends.h"

namespace llmrt::test {
namespace {

uint64_t hash_of(const TokenEvent& event) {
  uint64_t hash = 14695981039346656037ull;
  const auto add = [&hash](uint32_t word) { hash = (hash ^ word) * 1099511628211ull; };
  add(std::bit_cast<uint32_t>(event.logprob));
  for (const TopLogprob& one : event.top_logprobs) {
    add(static_cast<uint32_t>(one.token));
    add(std::bit_cast<uint32_t>(one.logprob));
  }
  return hash;
}

class AnswerSink final : public EventSink {
 public:
  explicit AnswerSink(uint32_t n) : answers(n) {}
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      Answer& answer = answers[event.branch];
      if (event.token >= 0 && !event.is_prompt) {
        const auto& top = event.top_logprobs;
        answer.steps.push_back({event.token, top.size() > 1 ? top[0].logprob - top[1].logprob : 0.0f, hash_of(event)});
      }
      if (event.finish != FinishReason::kNone) answer.finish = event.finish;
      if (event.error) answer.error = event.error->message;
    }
  }
  bool has_finished() const {
    return std::ranges::none_of(answers, [](const Answer& one) { return one.finish == FinishReason::kNone; });
  }
  std::vector<Answer> answers;  // by branch
};

Request request_of(const Prompt& prompt, std::shared_ptr<EventSink> sink) {
  Request request;
  request.prompt = prompt.tokens;
  request.n = prompt.n;
  request.max_tokens = prompt.max_tokens;
  request.sampling.temperature = prompt.temperature;
  request.sampling.branch = prompt.branch;
  request.sampling.logprobs = kLogprobAlternativesMax;
  request.batch_invariant = prompt.batch_invariant;
  request.speculation = prompt.speculation;
  request.constraint = prompt.constraint;
  request.stop.ignore_eos = prompt.constraint == nullptr;
  request.sink = std::move(sink);
  return request;
}

// Adds the first step whose token differs, if any.
void add_difference(const Answer& a, const Answer& b, Agreement* agreement) {
  for (size_t step = 0; step < std::min(a.steps.size(), b.steps.size()); ++step) {
    if (a.steps[step].token == b.steps[step].token) continue;
    ++agreement->num_different;
    agreement->worst_margin = std::max(agreement->worst_margin, std::min(a.steps[step].margin, b.steps[step].margin));
    return;
  }
}

}  // namespace

std::vector<std::string> test_devices() {
  std::vector<std::string> ids;
  if (const char* list = std::getenv("LLMRT_TEST_DEVICES")) {
    std::stringstream stream(list);
    for (std::string id; std::getline(stream, id, ',');) ids.push_back(id);
    return ids;
  }
  for (const DeviceInfo& device : list_devices())
    if (device.usable) ids.push_back(device.id);
  return ids;
}

std::string model_path(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

ModelUnderTest::ModelUnderTest(const std::string& path, const std::string& device, const EngineConfig& config) {
  auto model = load_model(path);
  if (!model) FAIL(model.error().message);
  model_ = *model;
  auto backend = open_device(device);
  if (!backend) FAIL(backend.error().message);
  start(std::move(*backend), config);
}

ModelUnderTest::ModelUnderTest(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
                               const EngineConfig& config, DraftParts draft)
    : model_(std::move(model)) {
  start(std::move(backend), config, std::move(draft));
}

void ModelUnderTest::start(std::unique_ptr<Backend> backend, const EngineConfig& config, DraftParts draft) {
  auto tokenizer = Tokenizer::create(*model_->vocabulary);
  if (!tokenizer) FAIL(tokenizer.error().message);
  tokenizer_ = std::move(*tokenizer);
  auto engine = Engine::create(config, model_, tokenizer_, std::move(backend), &clock_, {}, std::move(draft));
  if (!engine) FAIL(engine.error().message);
  engine_ = std::move(*engine);
}

std::vector<Answer> ModelUnderTest::run(const std::vector<Prompt>& prompts,
                                        const std::function<bool(const std::vector<Answer>&)>& enough) {
  std::vector<std::shared_ptr<AnswerSink>> sinks;
  for (const Prompt& prompt : prompts) sinks.push_back(std::make_shared<AnswerSink>(prompt.n));
  std::vector<std::optional<RequestId>> ids(prompts.size());
  const auto answers = [&] {
    std::vector<Answer> all;
    for (const auto& sink : sinks) all.insert(all.end(), sink->answers.begin(), sink->answers.end());
    return all;
  };
  const auto for_each_branch = [&](auto&& what) {
    for (size_t i = 0; i < ids.size(); ++i)
      for (uint32_t branch = 0; ids[i] && branch < prompts[i].n; ++branch) what(*ids[i] + branch);
  };
  bool cancelled = false;
  const auto finished = [&] {
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] ? !sinks[i]->has_finished() : !cancelled) return false;
    return true;
  };
  for (uint32_t tick = 0; !finished(); ++tick) {
    for (size_t i = 0; i < prompts.size() && !cancelled; ++i) {
      if (ids[i] || prompts[i].arrives_at_tick > tick) continue;
      auto id = engine_->submit(request_of(prompts[i], sinks[i]));
      if (!id) FAIL(id.error().message);
      ids[i] = *id;
    }
    auto worked = engine_->tick();
    if (!worked) FAIL(worked.error().message);
    if (cancelled || !enough || !enough(answers())) continue;
    for_each_branch([&](RequestId id) { engine_->cancel(id); });
    cancelled = true;
  }
  for_each_branch([&](RequestId id) { engine_->drained(id); });
  REQUIRE(engine_->tick().ok());
  return answers();
}

bool same_ends(const std::vector<Answer>& a, const std::vector<Answer>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Answer& x, const Answer& y) {
    return x.finish == y.finish && x.steps.size() == y.steps.size();
  });
}

bool disagree_already(const std::vector<Answer>& a, const std::vector<Answer>& b) {
  REQUIRE(a.size() == b.size());
  Agreement agreement;
  agreement.num_sequences = static_cast<int>(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const bool is_whole = b[i].finish != FinishReason::kNone;
    if (is_whole && b[i].finish != a[i].finish) return true;
    if (is_whole ? b[i].steps.size() != a[i].steps.size() : b[i].steps.size() > a[i].steps.size()) return true;
    add_difference(a[i], b[i], &agreement);
  }
  return !agreement.fair();
}

int num_different_bits(const std::vector<Answer>& a, const std::vector<Answer>& b) {
  REQUIRE(same_ends(a, b));
  int count = 0;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t step = 0; step < a[i].steps.size(); ++step)
      count += a[i].steps[step].token != b[i].steps[step].token || a[i].steps[step].hash != b[i].steps[step].hash;
  return count;
}

Agreement compare(const std::vector<Answer>& a, const std::vector<Answer>& b) {
  Agreement agreement;
  agreement.num_sequences = static_cast<int>(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO("sequence " << i << " errors: '" << a[i].error << "' '" << b[i].error << "'");
    REQUIRE(a[i].finish == b[i].finish);
    REQUIRE(a[i].steps.size() == b[i].steps.size());
    add_difference(a[i], b[i], &agreement);
  }
  return agreement;
}

}  // namespace llmrt::test
