// How much of their prompts requests find where the model has recurrent layers: a hit needs a state, and states are
// kept at few places. Method: the scheduler with pools of real sizes, plans carried out by nobody, one step ahead;
// tokens that are drawn are a function of request and position.
#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <map>

#include "core/schedule/scheduler.h"

using namespace llmrt;

namespace {

constexpr uint32_t kPlace = 64;

SchedulerConfig hybrid(uint32_t sequences, uint32_t num_blocks, uint32_t num_records) {
  SchedulerConfig config;
  config.context_max = 1u << 16;
  config.sequences_max = sequences;
  config.kv_pools = {{num_blocks, 16}, {num_records, kPlace, CacheKind::kState}};
  config.prefix_cache = PrefixCacheKind::kRadix;
  return config;
}

std::vector<int32_t> text(uint32_t size, int32_t seed) {
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < size; ++i) tokens.push_back(static_cast<int32_t>((i * 7919u + 104729u * seed) % 50000));
  return tokens;
}

struct Server {
  struct Branch {
    uint32_t max_tokens = 0;
    std::vector<int32_t> tokens = {};  // of the answer
    uint32_t cached_tokens = 0;
    bool is_over = false;
  };
  Scheduler scheduler;
  std::map<RequestId, Branch> branches;
  std::map<RequestId, uint32_t> num_drawn;
  std::deque<const IterationPlan*> in_flight;
  RequestId next_id = 1;
  uint64_t num_plans = 0, num_copies = 0;
  TimeNs now = 0;

  explicit Server(const SchedulerConfig& config) : scheduler(config) {}

  RequestId add(std::vector<int32_t> prompt, uint32_t max_tokens, uint32_t n = 1,
                RequestClass request_class = RequestClass::kInteractive) {
    Request request;
    request.id = next_id;
    next_id += n;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.n = n;
    request.request_class = request_class;
    request.arrival_ns = now;
    for (uint32_t i = 0; i < n; ++i) branches[request.id + i] = {max_tokens};
    const RequestId id = request.id;
    scheduler.add(std::move(request), now);
    return id;
  }

  void commit() {
    const IterationPlan& plan = *in_flight.front();
    in_flight.pop_front();
    std::vector<Verdict> verdicts(plan.samples.size());
    for (const PlanRow& row : plan.rows)
      for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i) {
        const uint32_t count = ++num_drawn[row.request_id];
        verdicts[i].token = static_cast<int32_t>((row.request_id * 31 + count * 17) % 50000);
        if (count == branches[row.request_id].max_tokens) verdicts[i].finish = FinishReason::kLength;
      }
    scheduler.commit(plan, verdicts, now, {});
  }

  void step() {
    now += 1'000'000;
    if (const IterationPlan* plan = scheduler.plan(now)) {
      in_flight.push_back(plan);
      if (++num_plans % 64 == 0) REQUIRE(scheduler.check_books().ok());
      for (const BlockCopy& copy : plan->block_copies) num_copies += copy.kv_group == 1;
      if (in_flight.size() == 2) commit();
    } else {
      REQUIRE(!in_flight.empty());
      commit();
    }
    std::vector<TokenEvent> events;
    scheduler.take_events(&events);
    for (const TokenEvent& event : events) {
      Branch& branch = branches.at(event.request_id);
      if (event.token >= 0) branch.tokens.push_back(event.token);
      if (event.finish == FinishReason::kNone) continue;
      branch.is_over = true;
      branch.cached_tokens = event.cached_tokens;
      scheduler.drained(event.request_id);
    }
  }
  void run() {
    while (scheduler.has_work() || !in_flight.empty()) step();
    REQUIRE(scheduler.check_books().ok());
    const StateStats& states = scheduler.stats().states;
    REQUIRE(states.records_used == 0);
    REQUIRE(states.checkpoints <= states.records_total);
  }
};

struct Conversation {
  std::vector<int32_t> prompt;
  RequestId id = 0;

  // The next turn: what was answered, and what the user says to it.
  void go_on(Server& server, uint32_t num_new, uint32_t num_answer, int32_t seed, uint32_t num_thoughts = 0) {
    if (id != 0) {
      const std::vector<int32_t>& answer = server.branches[id].tokens;
      prompt.insert(prompt.end(), answer.begin() + num_thoughts, answer.end());
    }
    const std::vector<int32_t> own = text(num_new, seed);
    prompt.insert(prompt.end(), own.begin(), own.end());
    id = server.add(prompt, num_answer);
  }
  double cached_share(const Server& server) const {
    return static_cast<double>(server.branches.at(id).cached_tokens) / static_cast<double>(prompt.size());
  }
};

}  // namespace

TEST_CASE("each turn of a conversation goes on from the end of the last answer") {
  Server server(hybrid(16, 4096, 20));
  Conversation conversation{text(14'000, 1)};
  for (int32_t turn = 1; turn <= 20; ++turn) {
    conversation.go_on(server, 80, 400, 100 + turn);
    server.run();
    CAPTURE(turn, server.branches.at(conversation.id).cached_tokens);
    if (turn > 1) CHECK(conversation.cached_share(server) >= 0.98);
  }
  CHECK(server.num_copies == 0);
}

TEST_CASE("what 64 users have in common is computed twice") {
  for (const uint32_t step_tokens : {512u, 2048u, 8192u}) {
    SchedulerConfig config = hybrid(64, 16384, 80);
    config.step_tokens_max = step_tokens;
    Server server(config);
    const std::vector<int32_t> shared = text(2000, 1);
    std::vector<RequestId> ids;
    for (int32_t user = 0; user < 64; ++user) {
      std::vector<int32_t> prompt = shared;
      const std::vector<int32_t> own = text(200, 10 + user);
      prompt.insert(prompt.end(), own.begin(), own.end());
      ids.push_back(server.add(std::move(prompt), 50));
    }
    server.run();
    uint32_t num_hits = 0;
    uint64_t cached_tokens = 0;
    for (const RequestId id : ids) {
      num_hits += server.branches[id].cached_tokens > 0;
      cached_tokens += server.branches[id].cached_tokens;
    }
    CAPTURE(step_tokens, num_hits, cached_tokens, server.num_plans);
    // Those that hit start together: some 18,000 tokens are computed, then 50 steps decode.
    CHECK(server.num_plans < 18'000 / std::min(step_tokens, config.chunk_tokens) + 60);
    CHECK(num_hits >= 62);
    CHECK(cached_tokens * 100 >= 86ull * 64 * 2200);
    CHECK(server.scheduler.stats().prefix_hits == cached_tokens);
    CHECK(server.scheduler.stats().states.num_hits == num_hits);
  }
}

TEST_CASE("conversations that take turns keep what they need where records are few") {
  Server server(hybrid(8, 16384, 24));
  std::vector<Conversation> conversations;
  for (int32_t i = 0; i < 8; ++i) {
    std::vector<int32_t> prompt = text(3000, 1);
    const std::vector<int32_t> own = text(500, 10 + i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    conversations.push_back({std::move(prompt)});
  }
  for (int32_t turn = 1; turn <= 6; ++turn) {
    for (size_t i = 0; i < conversations.size(); ++i)
      conversations[i].go_on(server, 100, 300, 1000 * turn + static_cast<int32_t>(i));
    server.run();
    for (const Conversation& conversation : conversations) {
      CAPTURE(turn, server.branches.at(conversation.id).cached_tokens, conversation.prompt.size());
      // After the first turn it is not known yet that conversations go on behind their answers.
      if (turn > 1) CHECK(conversation.cached_share(server) >= (turn == 2 ? 0.89 : 0.95));
    }
  }
}

namespace {

// Conversations that go on at once, each with instructions that all have in common and a text of its own.
struct Talks {
  uint32_t num_records = 0;
  uint32_t pause_steps_max = 0;  // between an answer and the next turn; 0: all turns begin together
  uint32_t num_shared = 2000, num_own = 500;
  uint32_t num_talks = 64, num_turns = 6;
  uint32_t num_new = 100, num_answer = 300;
  uint32_t num_thoughts = 0;  // of the answer's first tokens, which the next turn leaves out
};

struct TalksResult {
  double share = 0;  // of the prompt tokens behind the first turn that were cached
  uint64_t num_plans = 0;
};

TalksResult run_talks(const Talks& talks) {
  Server server(hybrid(64, 32768, talks.num_records));
  struct State {
    Conversation conversation;
    uint32_t num_turns = 0;
    uint64_t begins_at = 0;  // plan
  };
  std::vector<State> states;
  for (uint32_t i = 0; i < talks.num_talks; ++i) {
    std::vector<int32_t> prompt = text(talks.num_shared, 1);
    const std::vector<int32_t> own = text(talks.num_own, 10 + static_cast<int32_t>(i));
    prompt.insert(prompt.end(), own.begin(), own.end());
    states.push_back({{std::move(prompt)}});
  }
  uint64_t num_cached = 0, num_prompt = 0, random = 1;
  for (uint32_t num_over = 0; num_over < talks.num_talks;) {
    const bool all_wait = std::ranges::all_of(states, [&](const State& state) {
      return state.conversation.id == 0 || server.branches[state.conversation.id].is_over;
    });
    num_over = 0;
    for (uint32_t i = 0; i < talks.num_talks; ++i) {
      State& state = states[i];
      const bool runs = state.conversation.id != 0 && !server.branches[state.conversation.id].is_over;
      if (runs) continue;
      if (state.begins_at == 0) {
        if (state.num_turns > 1) {
          num_cached += server.branches[state.conversation.id].cached_tokens;
          num_prompt += state.conversation.prompt.size();
        }
        random = random * 6364136223846793005u + 1442695040888963407u;
        state.begins_at = server.num_plans + 1 + (random >> 33) % (talks.pause_steps_max + 1);
      }
      if (state.num_turns == talks.num_turns) {
        ++num_over;
        continue;
      }
      const bool begins = talks.pause_steps_max == 0 ? all_wait : state.begins_at <= server.num_plans;
      if (!begins && server.scheduler.has_work()) continue;
      state.begins_at = 0;
      ++state.num_turns;
      state.conversation.go_on(server, talks.num_new, talks.num_answer,
                               static_cast<int32_t>(1000 * state.num_turns + i), talks.num_thoughts);
    }
    if (server.scheduler.has_work() || !server.in_flight.empty()) server.step();
  }
  server.run();
  return {static_cast<double>(num_cached) / static_cast<double>(num_prompt), server.num_plans};
}

double share_of(Talks talks, uint32_t num_records) {
  talks.num_records = num_records;
  return run_talks(talks).share;
}

}  // namespace

TEST_CASE("64 conversations find most of what they would find with any number of records") {
  Talks alone{.num_shared = 0}, pauses{.pause_steps_max = 2000, .num_shared = 0}, thoughts = pauses;
  thoughts.num_thoughts = 250;
  CHECK(share_of(alone, 128) >= 0.95 * share_of(alone, 1024));
  for (const Talks& talks : {pauses, thoughts}) {
    CAPTURE(talks.num_thoughts);
    CHECK(share_of(talks, 128) >= 0.98 * share_of(talks, 1024));
    CHECK(share_of(talks, 80) >= 0.8 * share_of(talks, 1024));
  }
}

TEST_CASE("figures of many conversations", "[.figures]") {
  for (const uint32_t thoughts : {0u, 250u})
    for (const uint32_t shared : {2000u, 0u})
      for (const uint32_t pause : {0u, 400u, 2000u}) {
        Talks talks{.pause_steps_max = pause, .num_shared = shared, .num_thoughts = thoughts};
        fmt::print("thoughts {:3}, shared {:4}, pause {:4}:", thoughts, shared, pause);
        for (const uint32_t records : {80u, 96u, 128u, 192u, 1024u})
          fmt::print(" {:.2f} ({})", share_of(talks, records), records);
        fmt::print("\n");
      }
}

TEST_CASE("branches begin from their prompt's checkpoint without a copy") {
  Server server(hybrid(8, 1024, 10));
  const RequestId first = server.add(text(1000, 1), 40, 4);
  uint32_t num_read = 0, num_alone = 0;
  while (server.scheduler.has_work() || !server.in_flight.empty()) {
    server.step();
    if (server.in_flight.empty()) continue;
    const IterationPlan& plan = *server.in_flight.back();
    for (const PlanRow& row : plan.rows) {
      if (row.request_id != first && row.start < 960) ++num_alone;
      for (uint32_t i = row.places_first; i < row.places_first + row.num_places; ++i)
        num_read += plan.state_places[i].position == row.start && row.start == 960;
    }
  }
  CHECK(num_read >= 3);
  CHECK(num_alone == 0);
  CHECK(server.num_copies == 0);
}

TEST_CASE("a long prompt that is cut off is found up to its last interval") {
  SchedulerConfig config = hybrid(4, 4096, 8);
  config.state_interval = 1000;  // 1024
  Server server(config);
  const RequestId first = server.add(text(6000, 1), 8);
  while (server.branches[first].tokens.empty() && server.num_plans < 2) server.step();
  server.scheduler.cancel(first, server.now);
  server.run();
  const RequestId again = server.add(text(6000, 1), 8);
  server.run();
  CHECK(server.branches[again].cached_tokens >= 3072);
  CHECK(server.branches[again].cached_tokens % kPlace == 0);
}
