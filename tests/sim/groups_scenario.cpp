#include "tests/sim/groups_scenario.h"

#include <random>

#include "core/ops/recurrent_ops.h"
#include "tests/fakes/late_mask.h"

namespace llmrt::test::groups {
namespace {

struct Dice {
  std::mt19937_64 random;
  uint32_t between(uint32_t low, uint32_t high) { return low + static_cast<uint32_t>(random() % (high - low + 1)); }
  bool one_in(uint32_t n) { return random() % n == 0; }
  uint32_t one_of(std::initializer_list<uint32_t> values) { return *(values.begin() + random() % values.size()); }
  int32_t token() { return static_cast<int32_t>(between(2, kFakeVocab - 1)); }
};

// One pool with hardly room for one sequence, or for some of those that could run.
void make_tight(SchedulerConfig& config, Dice& dice) {
  KvPoolSize& pool = config.kv_pools[dice.between(0, static_cast<uint32_t>(config.kv_pools.size()) - 1)];
  const uint32_t context_blocks = ceil_div(config.context_max, pool.block_tokens);
  if (pool.kind == CacheKind::kState)
    pool.num_blocks = dice.between(1, config.sequences_max);
  else if (pool.window > 0)
    pool.num_blocks = std::min(context_blocks, blocks_needed(pool, config.context_max));
  else
    pool.num_blocks = dice.between(ceil_div(context_blocks, 2u), context_blocks);
}

// A host that is given all that is lost and keeps it for long, so that it is loaded again.
void make_host_large(SchedulerConfig& config) {
  config.on_exhaustion = OnExhaustion::kSwap;
  config.host_blocks = 200;
  for (KvPoolSize& pool : std::span(config.kv_pools).subspan(1)) pool.num_host_blocks = 400;
}

// Group 0 keeps all blocks; the others are windows and states, with blocks of other sizes.
void choose_groups(Scenario& scenario, Dice& dice) {
  const uint32_t num_groups = dice.between(2, 4), leading = dice.one_of({16, 16, 32});
  const uint32_t context = scenario.config.context_max, rows = scenario.config.sequences_max;
  const bool has_host = dice.one_in(2);
  scenario.backend.groups.clear();
  for (uint32_t g = 0; g < num_groups; ++g) {
    KvPoolSize pool{.block_tokens = leading};
    const uint32_t kind = g == 0 ? 0 : dice.between(1, 3);
    if (kind == 3) {
      pool.kind = CacheKind::kState;
      pool.block_tokens = leading * dice.one_of({1, 1, 2, 4});
      pool.num_blocks = rows + dice.between(0, 6);
    } else {
      if (g > 0) pool.block_tokens = dice.one_of({16, 32, 64});
      if (kind == 2) pool.window = dice.one_of({1, 7, 16, 20, 40, 100});
      const uint32_t seen = pool.window > 0 ? pool.window + pool.block_tokens : context;
      pool.num_blocks = dice.between(ceil_div(seen, pool.block_tokens) + 1, ceil_div(seen, pool.block_tokens) * 3);
    }
    if (g > 0 && has_host) pool.num_host_blocks = dice.between(1, 20);
    scenario.config.kv_pools.push_back(pool);
    const bool is_state = pool.kind == CacheKind::kState;
    scenario.backend.groups.push_back({is_state, pool.window});
    scenario.attention.push_back(is_state ? AttentionGroup{} : AttentionGroup{1, 1, pool.window});
  }
  if (has_host) scenario.config.host_blocks = dice.between(1, 30);
  scenario.config.prefix_cache =
      std::array{PrefixCacheKind::kOff, PrefixCacheKind::kHashed, PrefixCacheKind::kRadix}[dice.between(0, 2)];
}

void make_pools(Scenario& scenario) {
  for (const KvPoolSize& pool : scenario.config.kv_pools) {
    const uint32_t num_host_blocks = scenario.pools.empty() ? scenario.config.host_blocks : pool.num_host_blocks;
    KvGroup& group = scenario.pools.emplace_back(
        KvGroup{1, 1, 8, pool.block_tokens, pool.num_blocks, KvDType::kF16, num_host_blocks});
    if (pool.kind != CacheKind::kState) continue;
    group.num_kv_heads = group.head_dim = 0;
    group.state_columns = 1;
  }
}

// What is drawn behind the newest token alone, or of all branches together.
void choose_draws(Request& request, Dice& dice) {
  if (request.n > 1 && dice.one_in(3)) {
    request.beam = BeamParams{.length_penalty = static_cast<float>(dice.between(0, 2)), .early_stopping = true};
    request.max_tokens = std::min(request.max_tokens, 16u);
    request.sampling = {};
  } else if (dice.one_in(6)) {
    request.sampling.no_repeat_ngram_size = dice.between(1, 2);
  } else if (dice.one_in(3)) {
    request.processors = {std::make_shared<LateMask>(dice.between(1, 4))};
  }
}

Client random_client(const std::vector<std::vector<int32_t>>& texts, const SchedulerConfig& config, Dice& dice) {
  Client client;
  Request& request = client.request;
  const std::vector<int32_t>& text = texts[dice.between(0, 2)];
  const uint32_t shared = dice.one_in(4) ? 0 : dice.one_in(2) ? 16 * dice.between(1, 5) : dice.between(1, 90);
  request.prompt.assign(text.begin(), text.begin() + shared);
  for (uint32_t i = dice.one_of({0, 1, 3, 30}) + (shared == 0); i-- > 0;) request.prompt.push_back(dice.token());
  request.max_tokens = dice.between(1, dice.one_of({3, 30, 60}));
  request.max_tokens = std::min(request.max_tokens, config.context_max - static_cast<uint32_t>(request.prompt.size()));
  request.sampling.temperature = dice.one_in(2) ? 0 : 1;
  request.sampling.seed = dice.between(0, 3);
  request.stop.ignore_eos = true;
  if (dice.one_in(4)) request.n = dice.between(2, 4);
  if (dice.one_in(2)) request.cache_salt = "salt";
  if (dice.one_in(8)) request.adapter_id = 1;
  if (request.adapter_id == 1 && request.prompt.back() % 2 == 0) {  // it counts from its invocation on
    request.adapter_start = static_cast<uint32_t>(request.prompt.size()) / 2;
    request.prompt[*request.adapter_start] = 41;
  }
  if (dice.one_in(6)) client.cancel_after_ticks = static_cast<int>(dice.between(0, 30));
  return client;
}

}  // namespace

uint32_t blocks_needed(const KvPoolSize& pool, uint32_t num_tokens) {
  if (pool.kind == CacheKind::kState) return 1;
  const uint32_t all = ceil_div(num_tokens, pool.block_tokens);
  return pool.window == 0 ? all : std::min(all, ceil_div(pool.window - 1, pool.block_tokens) + 1);
}

Scenario make_scenario(uint64_t seed) {
  Dice dice{std::mt19937_64(seed * 0x2545f4914f6cdd1d)}, own{std::mt19937_64(seed * 0xd6e8feb86659fd93)};
  Scenario scenario;
  SchedulerConfig& config = scenario.config;
  config.context_max = dice.one_of({160, 200});
  config.sequences_max = dice.one_of({1, 4, 8});
  config.step_tokens_max = dice.one_of({5, 16, 64, 256});
  config.sample_rows_max = dice.one_of({3, 8, 32});
  config.penalty_rows_max = 0;
  config.chunks_by_need = false;
  config.chunk_tokens = std::min(config.step_tokens_max, dice.one_of({7, 32, 256}));
  config.reserve_output_tokens = dice.one_of({0, 0, 16});
  config.watermark = dice.one_in(2) ? 0.0 : 0.1;
  config.queue_tokens_max = 1u << 20;
  choose_groups(scenario, dice);
  config.state_interval = Dice{std::mt19937_64(seed ^ 0x94d049bb133111eb)}.one_of({16, 50, 64, 8192});
  const OnExhaustion policies[] = {OnExhaustion::kPreempt, OnExhaustion::kRecompute, OnExhaustion::kSwap};
  config.on_exhaustion = policies[dice.between(0, config.host_blocks > 0 ? 2 : 1)];
  if (config.host_blocks > 0 && own.one_in(2)) make_host_large(config);
  if (own.one_in(2)) make_tight(config, own);
  make_pools(scenario);
  config.state_back_tokens = kStateBackTokens;
  config.end_of_generation = kFakeEnds;
  scenario.engine.context_max = config.context_max;
  scenario.engine.sequences_max = config.sequences_max;
  scenario.engine.step_tokens_max = config.step_tokens_max;
  scenario.engine.sample_rows_max = config.sample_rows_max;
  scenario.engine.penalty_rows_max = 1;
  scenario.engine.block_tokens = 16;  // the smallest: tables have room for them
  if (dice.one_in(4)) scenario.backend.poison = 300;
  std::vector<std::vector<int32_t>> texts(3);
  for (std::vector<int32_t>& text : texts)
    for (int i = 0; i < 90; ++i) text.push_back(dice.token());
  uint32_t tick = 0;
  for (uint32_t i = dice.between(5, 30); i-- > 0;) {
    scenario.clients.push_back(random_client(texts, config, dice));
    choose_draws(scenario.clients.back().request, own);
    if (seed % 2 == 0 && i % 3 != 0) scenario.clients.back().right_drafts_of_16 = i % 2 == 0 ? 16 : 12;
    scenario.clients.back().arrival_tick = tick += dice.between(0, dice.one_of({0, 3, 12}));
  }
  return scenario;
}

}  // namespace llmrt::test::groups
