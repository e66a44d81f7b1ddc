// Models with recurrent layers: what a sequence says, and each state that is kept of it, may not depend on how it was
// served. Cuts of the prompt, hits at each checkpoint, branches, drafts, preemption with and without the host, cancels:
// bit by bit in batch-invariant mode, on the best device. The models are tiny ones of random weights, which
// hybrid_states.py makes (LLMRT_TEST_HYBRIDS: their paths, separated by commas).
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <map>
#include <random>
#include <sstream>

#include "backends/backends.h"
#include "core/backend/forwarding.h"
#include "core/model/model.h"
#include "core/ops/step_inputs.h"
#include "tests/fakes/scripted_drafts.h"
#include "tests/models/model_harness.h"

namespace llmrt::test {
namespace {

// Reads each checkpoint as soon as the step that writes it has run. For sequences that run alone.
class StateWatch final : public ForwardingBackend {
 public:
  using States = std::map<uint32_t, std::vector<std::byte>>;  // by position: the records of all groups, layer by layer
  StateWatch(std::unique_ptr<Backend> inner, States* states) : ForwardingBackend(std::move(inner)), states_(states) {}

  Status create_kv_pools(std::span<const KvGroup> groups) override {
    groups_.assign(groups.begin(), groups.end());
    return inner().create_kv_pools(groups);
  }
  Result<Ticket> submit(const StepSubmission& step) override {
    places_.clear();
    if (step.forward) {
      const Result<ForwardInputs> inputs = unpack_forward(step.forward_inputs);
      if (!inputs) return inputs.error();
      for (const RowRecord& row : inputs->rows)
        for (uint32_t i = row.places_first; i < row.places_first + row.num_places; ++i)
          if (inputs->state_places[i].position > row.start) places_.push_back(inputs->state_places[i]);
    }
    return inner().submit(step);
  }
  Result<StepOutput> wait(Ticket ticket) override {
    Result<StepOutput> output = inner().wait(ticket);
    for (const StatePlace& place : places_) {
      const KvGroup& group = groups_[place.kv_group];
      std::vector<std::byte>& state = (*states_)[place.position];
      state.clear();
      for (uint32_t layer = 0; layer < group.num_layers; ++layer) {
        std::vector<std::byte> bytes(group.data_bytes_block_layer());
        if (Status status = inner().read_kv(place.kv_group, layer, place.record, bytes); !status) return status.error();
        state.insert(state.end(), bytes.begin(), bytes.end());
      }
    }
    return output;
  }

 private:
  States* states_;
  std::vector<KvGroup> groups_;
  std::vector<StatePlace> places_;
};

std::vector<std::string> hybrid_paths() {
  std::vector<std::string> paths;
  std::stringstream list(model_path("LLMRT_TEST_HYBRIDS"));
  for (std::string path; std::getline(list, path, ',');) paths.push_back(path);
  return paths;
}

struct Case {
  std::shared_ptr<const Model> model;
  std::string device;

  std::unique_ptr<Backend> open() const {
    auto backend = open_device(device);
    if (!backend) FAIL(backend.error().message);
    return std::move(*backend);
  }
  ModelUnderTest engine(const EngineConfig& config) const { return {model, open(), config}; }
};

template <typename Fn>
void for_each_case(const Fn& fn) {
  const std::vector<std::string> paths = hybrid_paths();
  if (paths.empty()) SKIP("LLMRT_TEST_HYBRIDS is not set");
  const std::vector<std::string> devices = test_devices();
  if (devices.empty()) SKIP("no usable device");
  for (const std::string& path : paths) {
    auto model = load_model(path);
    if (!model) FAIL(path << ": " << model.error().message);
    INFO(path << " on " << devices[0]);
    fn(Case{*model, devices[0]});
  }
}

EngineConfig plain_config() {
  EngineConfig config;
  config.context_max = 256;
  config.sequences_max = 6;
  config.step_tokens_max = 256;
  config.audit_steps = 1;
  config.state_interval = kStatePlaceTokens;
  config.kv_tokens = 2048;
  return config;
}

EngineConfig alone_config() {
  EngineConfig config = plain_config();
  config.overlap = false;
  config.prefix_cache = PrefixCacheKind::kOff;
  return config;
}

std::vector<int32_t> random_tokens(const Case& on, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % on.model->vocabulary->tokens.size());
  return tokens;
}

// The first `shared` tokens of a text of 170, and others behind them.
Prompt prompt_of(const Case& on, size_t shared, size_t own, uint32_t max_tokens) {
  Prompt prompt{random_tokens(on, 170, 1)};
  prompt.tokens.resize(shared);
  const std::vector<int32_t> rest = random_tokens(on, own, static_cast<uint32_t>(2 + shared));
  prompt.tokens.insert(prompt.tokens.end(), rest.begin(), rest.end());
  prompt.max_tokens = max_tokens;
  prompt.batch_invariant = true;
  return prompt;
}

// One that parts from the others in the first interval, at its end, in the second, the third; and branches.
std::vector<Prompt> prompts_of(const Case& on) {
  std::vector<Prompt> prompts = {prompt_of(on, 170, 0, 20), prompt_of(on, 128, 20, 50), prompt_of(on, 40, 30, 6),
                                 prompt_of(on, 150, 9, 10), prompt_of(on, 100, 40, 8)};
  prompts.back().n = 4;
  prompts.back().temperature = 1;
  for (size_t i = 0; i < prompts.size(); ++i) prompts[i].arrives_at_tick = static_cast<uint32_t>(2 * i);
  return prompts;
}

std::vector<Answer> run_alone(const Case& on, const std::vector<Prompt>& prompts) {
  ModelUnderTest model = on.engine(alone_config());
  std::vector<Answer> answers;
  for (Prompt prompt : prompts) {
    prompt.arrives_at_tick = 0;
    const uint32_t n = std::exchange(prompt.n, 1);
    for (prompt.branch = 0; prompt.branch < n; ++prompt.branch) answers.push_back(model.run({prompt})[0]);
  }
  return answers;
}

struct Serving {
  const char* name;
  void (*set)(EngineConfig&);
  bool (*happened)(const EngineStats&);
};

const Serving kServings[] = {
    {"together", [](EngineConfig&) {}, [](const EngineStats& stats) { return stats.prefix_hits >= 2 * 64; }},
    {"in steps of 5 tokens", [](EngineConfig& config) { config.step_tokens_max = config.chunk_tokens = 5; },
     [](const EngineStats& stats) { return stats.states.num_kept >= 4; }},
    {"in steps of 61 tokens", [](EngineConfig& config) { config.step_tokens_max = config.chunk_tokens = 61; },
     [](const EngineStats& stats) { return stats.states.num_hits > 2; }},
    {"without a step ahead", [](EngineConfig& config) { config.overlap = false; },
     [](const EngineStats& stats) { return stats.states.num_hits > 2; }},
};

// So many of 16 drafts are right. `answers`: those of the prompts' branches, in their order.
std::vector<Prompt> with_drafts(const Case& on, std::vector<Prompt> prompts, const std::vector<Answer>& answers,
                                uint32_t right_of_16) {
  auto answer = answers.begin();
  for (Prompt& prompt : prompts) {
    DraftScript script{.seed = right_of_16,
                       .right_of_16 = right_of_16,
                       .vocab_size = static_cast<int32_t>(on.model->vocabulary->tokens.size())};
    for (uint32_t branch = 0; branch < prompt.n; ++branch, ++answer) {
      std::vector<int32_t>& tokens = script.answers.emplace_back();
      for (const StepTaken& step : answer->steps) tokens.push_back(step.token);
    }
    prompt.speculation = Speculation{std::make_shared<ScriptedDrafts>(std::move(script)), 7};
  }
  return prompts;
}

}  // namespace

TEST_CASE("a hybrid model's text does not depend on how it is served", "[hybrid]") {
  for_each_case([](const Case& on) {
    const std::vector<Prompt> prompts = prompts_of(on);
    const std::vector<Answer> alone = run_alone(on, prompts);
    for (const Serving& serving : kServings) {
      INFO(serving.name);
      EngineConfig config = plain_config();
      serving.set(config);
      ModelUnderTest model = on.engine(config);
      CHECK(num_different_bits(alone, model.run(prompts)) == 0);
      const EngineStats stats = model.engine().stats();
      INFO(stats.prefix_hits << " cached, " << stats.states.num_kept << " checkpoints, " << stats.states.num_hits
                             << " hits; " << stats.num_preemptions << " preemptions, " << stats.num_swaps << " swaps, "
                             << stats.blocks_loaded << " blocks loaded");
      CHECK(serving.happened(stats));
    }
  });
}

TEST_CASE("a hybrid model's text is the same with drafts, right and wrong ones", "[hybrid]") {
  for_each_case([](const Case& on) {
    std::vector<Prompt> prompts = prompts_of(on);
    for (const uint32_t own : {1u, 17u}) prompts.push_back(prompt_of(on, 30, own, 60));  // over 3 multiples of 16
    const std::vector<Answer> alone = run_alone(on, prompts);
    // Conversations go on behind what was drafted.
    std::vector<Prompt> turns(prompts.begin(), prompts.begin() + 2);
    for (size_t i = 0; i < turns.size(); ++i) {
      for (const StepTaken& step : alone[i].steps) turns[i].tokens.push_back(step.token);
      turns[i].tokens.push_back(static_cast<int32_t>(i));
      turns[i].max_tokens = 5;
    }
    const std::vector<Answer> turns_alone = run_alone(on, turns);
    uint32_t right_of_16 = 16;
    for (const Serving& serving : kServings) {
      INFO(serving.name << ", " << right_of_16 << " of 16 drafts are right");
      EngineConfig config = plain_config();
      serving.set(config);
      ModelUnderTest model = on.engine(config);
      CHECK(num_different_bits(alone, model.run(with_drafts(on, prompts, alone, right_of_16))) == 0);
      const DraftStats drafts = model.engine().stats().drafts;
      CHECK(drafts.num_proposed > 0);
      CHECK(drafts.num_proposed <= kStateBackTokens * drafts.num_runs);
      if (right_of_16 >= 8) CHECK(drafts.num_accepted > 0);
      CHECK(num_different_bits(turns_alone, model.run(turns)) == 0);
      right_of_16 -= 5;
    }
  });
}

// Its weights are random, so nearly all of its drafts are wrong.
TEST_CASE("a hybrid model's text is the same with drafts of its own layer for them", "[hybrid]") {
  for_each_case([](const Case& on) {
    if (!on.model->draft_head) return;
    std::vector<Prompt> prompts = prompts_of(on);
    const std::vector<Answer> alone = run_alone(on, prompts);
    for (Prompt& prompt : prompts) prompt.speculation = Speculation{nullptr, 3, /*by_model=*/true};
    ModelUnderTest model(on.model, on.open(), plain_config(), {on.model->draft_head, on.open()});
    CHECK(num_different_bits(alone, model.run(prompts)) == 0);
    CHECK(model.engine().stats().drafts.num_model_proposed > 0);
  });
}

TEST_CASE("a hybrid model's sequences that yield go on where they were", "[hybrid]") {
  for_each_case([](const Case& on) {
    std::vector<Prompt> prompts;
    for (uint32_t i = 0; i < 5; ++i) {
      Prompt& prompt = prompts.emplace_back(prompt_of(on, i % 2 == 0 ? 0 : 64, i % 2 == 0 ? 100 + i : 40, 50));
      prompt.tokens[prompt.tokens.size() - 1] = static_cast<int32_t>(i);
    }
    const std::vector<Answer> alone = run_alone(on, prompts);
    for (const OnExhaustion policy : {OnExhaustion::kRecompute, OnExhaustion::kSwap}) {
      EngineConfig config = plain_config();
      config.kv_tokens = 20 * 16;
      config.reserve_output_tokens = 0;
      config.watermark = 0;
      config.on_exhaustion = policy;
      if (policy == OnExhaustion::kSwap) config.kv_host_bytes = 64 << 20;
      for (const std::vector<Prompt>& asked : {prompts, with_drafts(on, prompts, alone, 12)}) {
        ModelUnderTest model = on.engine(config);
        CHECK(num_different_bits(alone, model.run(asked)) == 0);
        const EngineStats stats = model.engine().stats();
        INFO(stats.num_preemptions << " preemptions, " << stats.num_swaps << " swaps, " << stats.blocks_loaded
                                   << " blocks loaded, " << stats.states.num_hits << " hits, "
                                   << stats.drafts.num_proposed << " drafts");
        CHECK(stats.num_preemptions > 0);
        CHECK(stats.num_swaps == (policy == OnExhaustion::kSwap ? stats.num_preemptions : 0));
        CHECK((stats.blocks_loaded > 0) == (policy == OnExhaustion::kSwap));
        CHECK((stats.drafts.num_proposed > 0) == asked[0].speculation.has_value());
      }
    }
  });
}

TEST_CASE("requests that are cancelled in any state leave nothing wrong behind", "[hybrid]") {
  for_each_case([](const Case& on) {
    const std::vector<Prompt> prompts = prompts_of(on);
    const std::vector<Answer> alone = run_alone(on, prompts);
    EngineConfig config = plain_config();
    config.step_tokens_max = config.chunk_tokens = 40;
    ModelUnderTest model = on.engine(config);
    for (int ticks = 1; ticks < 40; ticks += 9) {
      int num_left = ticks;
      model.run(ticks % 2 == 0 ? with_drafts(on, prompts, alone, 12) : prompts,
                [&](const std::vector<Answer>&) { return --num_left == 0; });
      CHECK(model.engine().stats().states.records_used == 0);
    }
    CHECK(num_different_bits(alone, model.run(prompts)) == 0);
  });
}

TEST_CASE("a prompt goes on from each checkpoint of another", "[hybrid]") {
  for_each_case([](const Case& on) {
    std::vector<Prompt> prompts;
    for (const size_t shared : {63u, 64u, 65u, 120u, 128u, 150u}) prompts.push_back(prompt_of(on, shared, 30, 6));
    const std::vector<Answer> alone = run_alone(on, prompts);
    ModelUnderTest model = on.engine(plain_config());
    model.run({prompt_of(on, 170, 0, 4)});
    std::vector<Answer> answers;
    for (const Prompt& prompt : prompts) {
      const uint64_t before = model.engine().stats().prefix_hits;
      answers.push_back(model.run({prompt})[0]);
      const uint64_t shared = prompt.tokens.size() - 30;
      CHECK(model.engine().stats().prefix_hits - before == shared / kStatePlaceTokens * kStatePlaceTokens);
    }
    CHECK(num_different_bits(alone, answers) == 0);
  });
}

TEST_CASE("each state that is kept is that of a fresh run", "[hybrid]") {
  for_each_case([](const Case& on) {
    const Prompt prompt = prompt_of(on, 170, 0, 60);
    StateWatch::States fresh, cut, behind_hit;
    const auto run = [&](StateWatch::States* states, uint32_t step_tokens, std::initializer_list<Prompt> first) {
      EngineConfig config = plain_config();
      config.overlap = false;
      config.step_tokens_max = config.chunk_tokens = step_tokens;
      ModelUnderTest model(on.model, std::make_unique<StateWatch>(on.open(), states), config);
      for (const Prompt& before : first) model.run({before});
      states->clear();
      model.run({prompt});
    };
    run(&fresh, 256, {});
    run(&cut, 7, {});
    run(&behind_hit, 50, {prompt_of(on, 70, 1, 1)});
    CHECK(fresh.size() == 3);  // 64, 128, 192
    CHECK((cut == fresh));
    CHECK(behind_hit.size() == 2);
    for (const auto& [position, state] : behind_hit) CHECK((fresh.at(position) == state));
  });
}

}  // namespace llmrt::test
