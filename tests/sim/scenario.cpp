#include "tests/sim/scenario.h"

#include <algorithm>
#include <array>
#include <random>

#include "core/engine/pool_shapes.h"
#include "tests/fakes/deny_list.h"
#include "tests/fakes/fake_constraint.h"
#include "tests/fakes/late_mask.h"
#include "tests/fakes/processors.h"
#include "tests/fakes/sim_clock.h"

namespace llmrt::test {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint32_t between(uint32_t low, uint32_t high) { return low + static_cast<uint32_t>(random_() % (high - low + 1)); }
  bool one_in(uint32_t n) { return random_() % n == 0; }
  uint32_t one_of(std::initializer_list<uint32_t> values) { return *(values.begin() + random_() % values.size()); }
  int32_t token() { return static_cast<int32_t>(between(0, kFakeVocab - 1)); }

 private:
  std::mt19937_64 random_;
};

// Under pressure the sequences together want several times the pool.
EngineConfig random_config(bool under_pressure, Dice& dice) {
  EngineConfig config;
  config.context_max = dice.one_of({100, 200, 400});
  config.sequences_max = dice.one_of({1, 4, 8, 16});
  config.step_tokens_max = dice.one_of({1, 5, 16, 64, 64, 256});
  config.sample_rows_max = dice.one_of({1, 3, 8, 32, 32});
  config.penalty_rows_max = dice.one_of({0, 1, 3, 3, 8, 8});
  config.chunk_tokens = dice.one_of({1, 7, 32, 256});
  config.reserve_output_tokens = dice.one_of({0, 0, 8, 64});
  config.learns_output = dice.one_in(2);
  config.tpot_target_ms = dice.one_of({0, 0, 1, 2});
  config.idle_step_ms = dice.one_of({0, 1, 5});
  if (dice.one_in(6)) config.ttft_target_ms = dice.between(1, 50);
  if (dice.one_in(6)) config.request_timeout_ms = dice.between(1, 200);
  if (dice.one_in(6)) config.queue_timeout_ms = dice.between(1, 50);
  config.watermark = dice.one_in(2) ? 0.0 : 0.1;
  config.queue_tokens_max = dice.one_in(4) ? dice.between(50, 400) : 1u << 20;
  config.block_tokens = dice.one_in(4) ? 32 : 16;
  // From hardly one sequence to many.
  config.kv_tokens = dice.between(3, dice.one_of({6, 12, 30, 100})) * 16;
  config.audit_steps = 1;
  config.prefix_cache = std::array{PrefixCacheKind::kOff, PrefixCacheKind::kHashed, PrefixCacheKind::kRadix,
                                   PrefixCacheKind::kRadix}[dice.between(0, 3)];
  const OnExhaustion policies[] = {OnExhaustion::kPreempt, OnExhaustion::kPreempt,   OnExhaustion::kSwap,
                                   OnExhaustion::kSwap,    OnExhaustion::kRecompute, OnExhaustion::kQueue,
                                   OnExhaustion::kReject};
  config.on_exhaustion = policies[dice.between(0, dice.one_in(3) ? 6 : 4)];
  if (config.on_exhaustion == OnExhaustion::kSwap || dice.one_in(2)) {
    const uint64_t block_bytes = PoolShapes(make_fake_model()->config, config).bytes_block();
    config.kv_host_bytes = dice.between(1, dice.one_of({3, 10, 40})) * block_bytes;
  }
  if (!under_pressure) return config;
  config.sequences_max = 8;
  config.reserve_output_tokens = 0;
  config.watermark = 0;
  config.kv_tokens = dice.between(8, 20) * 16;
  return config;
}

SamplingParams random_sampling(Dice& dice) {
  SamplingParams params;
  params.temperature = static_cast<float>(dice.between(0, 3)) / 2;
  params.top_k = dice.one_of({0, 5});
  params.top_p = dice.one_in(2) ? 1.0f : 0.5f;
  params.min_p = dice.one_in(4) ? 0.25f : 0.0f;
  params.seed = (uint64_t{dice.between(0, 3)} << 32) + dice.between(0, 3);
  if (dice.one_in(3)) params.presence_penalty = 0.5f;
  if (dice.one_in(6)) params.repetition_penalty = 1.5f;
  if (dice.one_in(4)) params.logit_bias = {{dice.token(), 1.0f}, {dice.token(), -2.0f}};
  if (dice.one_in(5)) params.no_repeat_ngram_size = dice.between(1, 3);
  if (dice.one_in(5)) {
    for (uint32_t i = dice.between(1, 30); i-- > 0;) {
      std::vector<int32_t> word = {dice.token()};
      if (dice.one_in(2)) word.push_back(dice.token());
      params.bad_words.push_back(word);
    }
  }
  if (dice.one_in(3)) params.logprobs = 1;
  params.prompt_logprobs = params.logprobs >= 0 && dice.one_in(2);
  params.processed_logprobs = dice.one_in(2);
  params.tell_draws = dice.one_in(4);
  return params;
}

StopParams random_stop(Dice& dice) {
  StopParams stop;
  if (dice.one_in(2)) stop.ignore_eos = true;
  if (dice.one_in(6)) stop.token_ids = {dice.token()};
  // Texts are made of a and b, so stop strings must be long to be rare.
  for (uint32_t i = dice.one_of({0, 0, 1, 3}); i-- > 0;) {
    std::string string(dice.between(5, 9), 'a');
    for (char& c : string) c = dice.one_in(2) ? 'a' : 'b';
    stop.strings.push_back(string);
  }
  stop.include_string = dice.one_in(3);
  return stop;
}

// Beam search, and nothing that does not go together with it.
void search_beams(Request& request, Dice& dice) {
  request.beam = BeamParams{.length_penalty = static_cast<float>(dice.between(0, 2)), .early_stopping = dice.one_in(2)};
  request.max_tokens = std::max(1u, request.max_tokens);
  request.min_tokens = 0;
  request.sampling = {};
  request.stop = {.ignore_eos = request.stop.ignore_eos};
  request.processors = {};
  request.policy = {};
}

ClientPlan random_client(const EngineConfig& config, bool under_pressure, Dice& dice) {
  ClientPlan client;
  Request& request = client.request;
  // Now and then beyond the context: that must be refused.
  for (uint32_t i = dice.between(1, dice.one_of({3, 20, 20, 60, config.context_max + 2})); i-- > 0;) {
    request.prompt.push_back(dice.token());
  }
  request.max_tokens = dice.between(0, dice.one_of({2, 20, 80, 80}));
  if (dice.one_in(4)) request.min_tokens = dice.between(0, request.max_tokens);
  request.sampling = random_sampling(dice);
  request.stop = random_stop(dice);
  if (dice.one_in(8)) request.policy = std::make_shared<DenyList>(std::vector<std::string>{"aabb", "babab"});
  if (dice.one_in(8)) request.processors = {std::make_shared<LimitRuns>(dice.between(1, 2))};
  if (dice.one_in(4)) request.n = dice.between(2, 6);
  if (request.n > 1 && dice.one_in(2)) request.sampling.temperature = 0;  // all branches say the same
  if (dice.one_in(8)) request.cache_salt = dice.one_in(2) ? "salt" : "pepper";
  if (dice.one_in(8)) request.adapter_id = dice.between(1, 2);
  if (dice.one_in(6)) request.deadline_ns = dice.between(0, 100) * kMs;
  if (dice.one_in(3)) request.request_class = static_cast<RequestClass>(dice.between(0, 4));
  if (dice.one_in(3)) request.route = Route::kChat;
  if (dice.one_in(5)) client.cancel_after_ticks = static_cast<int>(dice.between(0, 40));
  if (dice.one_in(10)) client.cancel_after_events = static_cast<int>(dice.between(1, 10));
  client.drain_after_ticks = dice.between(0, 5);
  if (under_pressure && !dice.one_in(4)) {
    request.prompt.resize(dice.between(1, 20), dice.token());
    request.max_tokens = dice.between(30, 80);
    request.min_tokens = dice.between(0, 30);
    request.stop.ignore_eos = true;
  }
  // Beams yield to each other even where everything is reserved.
  if (dice.one_in(request.n > 1 ? 3 : 20) && !reserves_all(config.on_exhaustion)) search_beams(request, dice);
  return client;
}

// By dice of its own, too: half of the adapters count from a position on.
void add_invocation(const Scenario& scenario, Request& request) {
  Dice dice(scenario.seed ^ 0x94d049bb133111eb ^ scenario.clients.size());
  if (request.adapter_id == 0 || !dice.one_in(2)) return;
  request.adapter_start = dice.between(0, static_cast<uint32_t>(request.prompt.size()) - 1);
  request.prompt[*request.adapter_start] = 40 + static_cast<int32_t>(request.adapter_id);  // its invocation
}

// By dice of its own, too. Beam search takes no processors.
void add_late_mask(const Scenario& scenario, Request& request) {
  Dice dice(scenario.seed ^ 0xd6e8feb86659fd93 ^ scenario.clients.size());
  if (dice.one_in(6) && !request.beam) request.processors.push_back(std::make_shared<LateMask>(dice.between(1, 4)));
}

// By dice of its own, too. A constraint alone says where the answer ends.
void add_constraint(const Scenario& scenario, Request& request) {
  Dice dice(scenario.seed ^ 0xa0761d6478bd642f ^ (scenario.clients.size() << 8));
  if (!dice.one_in(4) || request.beam) return;
  request.min_tokens = 0;
  request.stop.ignore_eos = false;
  request.constraint =
      std::make_shared<FakeConstraint>(FakeConstraintConfig{.seed = dice.between(0, 1000),
                                                            .asks_max = dice.one_in(2) ? 0 : dice.between(1, 4),
                                                            .end_one_in = dice.between(5, 60),
                                                            .fail_one_in = dice.one_in(8) ? 40u : 0u,
                                                            .fixed_of_16 = dice.one_of({0, 4, 12})});
}

// By dice of its own, too.
void add_drafts(const Scenario& scenario, ClientPlan& client) {
  Dice dice(scenario.seed ^ 0x589965cc75374cc3 ^ (scenario.clients.size() << 24));
  if (scenario.has_drafts() && !dice.one_in(3))
    client.right_drafts_of_16 = static_cast<int>(dice.one_of({0, 8, 14, 16}));
}

// By dice of its own, too. The answer fills a block with its last token, so the whole block is kept: whatever was
// drafted for that token's place must not be in it. A stop token ends a run anywhere, max_tokens only where it has no
// draft.
void end_with_block(const Scenario& scenario, ClientPlan& client) {
  Dice dice(scenario.seed ^ 0x2545f4914f6cdd1d ^ (scenario.clients.size() << 12));
  Request& request = client.request;
  if (client.right_drafts_of_16 < 0 || request.constraint || request.beam || !dice.one_in(2)) return;
  const FakeBackendConfig& backend = scenario.backend;
  const std::vector<int32_t> tokens =
      answer_alone(request, *make_fake_tokenizer(), backend.poison, backend.groups).tokens;
  const size_t last = 15 - request.prompt.size() % 16;
  if (last >= request.min_tokens && last < tokens.size()) request.stop.token_ids = {tokens[last]};
}

// By dice of its own, too. Beams cannot be paused.
void add_pause(const Scenario& scenario, ClientPlan& client) {
  Dice dice(scenario.seed ^ 0x8ebc6af09c88c6e3 ^ (scenario.clients.size() << 16));
  client.disconnects = dice.one_in(2);
  if (client.request.beam || !dice.one_in(5)) return;
  client.pause_at_ticks = static_cast<int>(dice.between(0, 30));
  client.pause_ticks = static_cast<int>(dice.between(1, 40));
}

// Clients that ask about the same texts: how one begins is how another begins, or what another one got.
class SharedTexts {
 public:
  explicit SharedTexts(Dice& dice) : texts_(3) {
    for (std::vector<int32_t>& text : texts_)
      for (int i = 0; i < 100; ++i) text.push_back(dice.token());
  }
  void rewrite(Request& request, Dice& dice) const {
    if (dice.one_in(4)) return;
    const std::vector<int32_t>& text = texts_[dice.between(0, static_cast<uint32_t>(texts_.size()) - 1)];
    std::vector<int32_t>& prompt = request.prompt;
    // Whole blocks now and then: then all but one token of a block may be known.
    const size_t count = dice.one_in(3) ? dice.between(1, 5) * 16 : dice.between(1, 100);
    if (!dice.one_in(3)) prompt.resize(std::min<size_t>(prompt.size(), dice.between(0, 10)));
    prompt.insert(prompt.begin(), text.begin(), text.begin() + std::min(count, text.size()));
  }
  void add(const ClientPlan& client, const FakeBackendConfig& backend) {
    std::vector<int32_t> text = client.request.prompt;
    const FakeAnswer answer = answer_alone(client.request, *tokenizer_, backend.poison, backend.groups);
    text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
    texts_.push_back(std::move(text));
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_ = make_fake_tokenizer();
  std::vector<std::vector<int32_t>> texts_;
};

// Some go on with an answer that they have the begin of.
void begin_answer(Request& request, const FakeBackendConfig& backend, Dice& dice) {
  if (!dice.one_in(6) || request.beam || request.n > 1 || request.max_tokens == 0) return;
  const std::vector<int32_t> tokens =
      answer_alone(request, *make_fake_tokenizer(), backend.poison, backend.groups).tokens;
  if (tokens.size() < 2) return;
  request.begun.assign(tokens.begin(), tokens.begin() + dice.between(1, static_cast<uint32_t>(tokens.size()) - 1));
}

// By dice of its own: the rest of a run is what it is with continuous batching. Where time stands still nobody waits
// for a batch to be full.
void choose_batching(Scenario& scenario) {
  Dice dice(~scenario.seed);
  if (!dice.one_in(4)) return;
  scenario.config.batching = dice.one_in(2) ? Batching::kStatic : Batching::kDynamic;
  scenario.config.batch_wait_ms = scenario.tick_ms_max == 0 ? 0 : dice.between(0, 30);
  // A batch that is never full begins before its requests time out.
  const int64_t timeout_ms = scenario.config.request_timeout_ms;
  if (timeout_ms > 0) scenario.config.batch_wait_ms = std::min(scenario.config.batch_wait_ms, timeout_ms / 2);
}

// By dice of its own, too.
void choose_queue(Scenario& scenario) {
  Dice dice(scenario.seed ^ 0x9e3779b97f4a7c15);
  if (dice.one_in(6)) scenario.config.queue_branches_max = dice.between(1, 40);
  if (dice.one_in(6)) scenario.config.queue_bytes_max = dice.between(1, 60) * kBranchBytes;
}

// By dice of its own, too.
void choose_chunks(Scenario& scenario) {
  Dice dice(scenario.seed ^ 0x94d049bb133111eb);
  if (!dice.one_in(6)) return;
  scenario.config.chunk_tokens = 0;
  scenario.config.slo = {.ttft_ms = 1.0 * dice.between(1, 100), .tpot_ms = 1.0 * dice.between(1, 10)};
}

// By dice of its own, too.
void choose_model(Scenario& scenario) {
  if (Dice(scenario.seed ^ 0xe7037ed1a0b428db).one_in(5)) scenario.backend.groups = kFakeHybrid;
}

// Some drafts are those of the client's own text.
void choose_drafts(Scenario& scenario) {
  scenario.config.ngram_drafts = Dice(scenario.seed ^ 0xc2b2ae3d27d4eb4f).one_in(6);
}

// By dice of its own, too. A device that says nothing of a row but that its numbers are not finite is among them.
void choose_draft_model(Scenario& scenario) {
  Dice dice(scenario.seed ^ 0x94d049bb133111eb);
  if (!dice.one_in(3)) return;
  FakeBackendConfig& draft = scenario.draft_model.emplace();
  scenario.has_twin = dice.one_in(2) && !scenario.is_hybrid();  // a draft model has no state
  if (scenario.has_twin) {
    scenario.backend.poison = 0;
  } else {
    draft.wrong_of_16 = dice.one_of({0, 4, 16});
    if (dice.one_in(4)) draft.poison = 30;
    scenario.config.model_drafts = dice.one_in(2);
  }
  draft.step_ms = 0.001 * dice.one_of({1, 20, 100});
  draft.token_ms = 0.001 * dice.one_of({1, 5});
}

// By dice of its own, too.
void ask_draft_model(const Scenario& scenario, ClientPlan& client) {
  Dice dice(scenario.seed ^ 0xff51afd7ed558ccd ^ (scenario.clients.size() << 20));
  if (!scenario.draft_model || dice.one_in(3)) return;
  Request& request = client.request;
  if (scenario.has_twin && request.beam) return;
  client.asks_draft_model = true;
  if (!scenario.has_twin) return;
  SamplingParams& sampling = request.sampling;
  sampling.repetition_penalty = 1;
  sampling.presence_penalty = sampling.frequency_penalty = 0;
  sampling.no_repeat_ngram_size = 0;
  sampling.logit_bias = {};
  sampling.bad_words = {};
  request.adapter_id = 0;
  request.stop = {.ignore_eos = true};
  request.min_tokens = 0;
  request.constraint = {};
  request.policy = {};
  request.processors = {};
}

// Whether all clients of a run have a salt: else few of them share parts of blocks.
bool is_salted(const Scenario& scenario) {
  return Dice(scenario.seed ^ 0xbf58476d1ce4e5b9).one_in(2);
}

// Rows of one text in a pool of a few blocks: they hold the same ones, and outgrow all of them.
void crowd(Scenario& scenario, Dice& dice) {
  EngineConfig& config = scenario.config;
  config.context_max = 400;
  config.sample_rows_max = dice.one_of({2, 8, 32});
  config.block_tokens = 16;
  config.kv_tokens = dice.between(2, 6) * config.block_tokens;
  config.learns_output = false;
  if (reserves_all(config.on_exhaustion)) config.on_exhaustion = OnExhaustion::kPreempt;
  std::vector<int32_t> text;
  for (uint64_t i = 0; i < config.kv_tokens; ++i) text.push_back(dice.token());
  const auto pool = static_cast<uint32_t>(config.kv_tokens);
  uint32_t tick = 0;
  for (uint32_t i = dice.between(2, 8); i-- > 0;) {
    ClientPlan client;
    Request& request = client.request;
    const uint32_t length = dice.one_in(2) ? 16 * dice.between(1, pool / 16) : dice.between(1, pool);
    request.prompt.assign(text.begin(), text.begin() + length);
    request.max_tokens = dice.one_of({1, 2, 20, 80, 80, 80});
    request.sampling.temperature = 0;
    request.stop.ignore_eos = true;
    if (dice.one_in(4)) request.sampling.logprobs = request.sampling.prompt_logprobs = true;
    if (dice.one_in(3)) request.n = dice.between(2, 4);
    request.request_class = static_cast<RequestClass>(dice.between(0, 4));
    if (dice.one_in(3)) search_beams(request, dice);
    tick += dice.between(0, 30);
    client.arrival_tick = tick;
    scenario.clients.push_back(std::move(client));
  }
}

void add_clients(Scenario& scenario, bool under_pressure, uint32_t tick, Dice& dice) {
  const bool shares = !dice.one_in(3);
  SharedTexts texts(dice);
  const uint32_t ticks_between = dice.one_of({0, 2, 10});
  for (uint32_t i = dice.between(1, 30); i-- > 0;) {
    ClientPlan client = random_client(scenario.config, under_pressure, dice);
    add_late_mask(scenario, client.request);
    add_constraint(scenario, client.request);
    add_drafts(scenario, client);
    if (!(scenario.has_twin && client.right_drafts_of_16 >= 0)) ask_draft_model(scenario, client);
    if (shares) texts.rewrite(client.request, dice);
    add_invocation(scenario, client.request);
    if (shares) {
      end_with_block(scenario, client);
      texts.add(client, scenario.backend);
    }
    if (is_salted(scenario) && client.request.cache_salt.empty()) client.request.cache_salt = "salt";
    begin_answer(client.request, scenario.backend, dice);
    add_pause(scenario, client);
    tick += dice.between(0, ticks_between);
    client.arrival_tick = tick;
    scenario.clients.push_back(std::move(client));
  }
}

}  // namespace

bool Scenario::has_drafts() const {
  return Dice(seed ^ 0x165667b19e3779f9).one_in(2);
}

Scenario make_scenario(uint64_t seed) {
  Dice dice(seed);
  Scenario scenario;
  scenario.seed = seed;
  const bool under_pressure = dice.one_in(3);
  scenario.config = random_config(under_pressure, dice);
  scenario.tick_ms_max = dice.one_of({0, 1, 3});
  choose_batching(scenario);
  choose_queue(scenario);
  choose_chunks(scenario);
  choose_model(scenario);
  choose_drafts(scenario);
  if (dice.one_in(4)) scenario.backend.poison = dice.one_of({50, 500});
  choose_draft_model(scenario);
  scenario.backend.move_ms = 0.001 * dice.one_of({1, 10, 100, 1000});
  if (dice.one_in(15)) scenario.backend.lost_at_submit = dice.between(12, 80);  // after the measured steps of the start
  if (seed % 8 == 0)
    crowd(scenario, dice);
  else
    add_clients(scenario, under_pressure, /*tick=*/0, dice);
  return scenario;
}

void add_wave(Scenario& scenario, uint32_t tick) {
  Dice dice(scenario.seed ^ (uint64_t{scenario.clients.size()} << 32));
  add_clients(scenario, dice.one_in(3), tick, dice);
}

}  // namespace llmrt::test
