// Aim: engines of one model are one: an answer is what it would be alone, wherever it is made and though engines are
// lost on the way, each is told once and in order, and the books of all engines balance.
// Method: engines over fakes, some of which are lost at a step; answers against those of the fake model alone.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <thread>

#include "core/disk/block_exchange.h"
#include "core/engine/disk_source.h"
#include "core/engine/engine_thread.h"
#include "core/router/fleet.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/sim_clock.h"

namespace llmrt::test {
namespace {

using Catch::Matchers::ContainsSubstring;

struct Client final : EventSink {
  void on_events(std::span<const TokenEvent> events) override {
    std::lock_guard lock(mutex);
    for (const TokenEvent& event : events) {
      if (event.branch >= answers.size()) answers.resize(event.branch + 1);
      if (first_id != 0) ids_are_right &= event.request_id == first_id + event.branch;
      FakeAnswer& answer = answers[event.branch];
      came_behind_end |= answer.finish != FinishReason::kNone;
      if (event.token >= 0 && !event.is_prompt) answer.tokens.push_back(event.token);
      if (event.finish == FinishReason::kNone) continue;
      answer.finish = event.finish;
      ++num_over;
      if (event.error) error = event.error;
    }
  }
  std::mutex mutex;
  std::vector<FakeAnswer> answers;
  RequestId first_id = 0;
  uint32_t num_over = 0;
  bool ids_are_right = true, came_behind_end = false;
  std::optional<Error> error;
};

EngineConfig small_config() {
  EngineConfig config;
  config.context_max = 200;
  config.kv_tokens = 40 * 16;
  config.sequences_max = 8;
  config.penalty_rows_max = 8;
  config.audit_steps = 1;
  return config;
}

// Engines that are ticked in turn.
struct Bed {
  explicit Bed(const std::vector<FakeBackendConfig>& backends, const PlacementConfig& config = {},
               EngineConfig engine = small_config()) {
    std::vector<Fleet::Worker> workers;
    for (const FakeBackendConfig& backend : backends) {
      auto made = Engine::create(engine, make_fake_model(), make_fake_tokenizer(),
                                 std::make_unique<FakeBackend>(backend), &clock, {});
      REQUIRE(made.ok());
      engines.push_back(*std::move(made));
      workers.push_back({"fake:" + std::to_string(workers.size()), engines.back()});
    }
    is_lost.resize(engines.size());
    fleet = std::make_unique<Fleet>(std::move(workers), config, &clock);
  }

  std::shared_ptr<Client> send(Request request) {
    auto client = std::make_shared<Client>();
    request.sink = client;
    const Result<RequestId> id = fleet->submit(std::move(request));
    INFO((id ? "" : id.error().message));
    REQUIRE(id.ok());
    std::lock_guard lock(client->mutex);
    client->first_id = *id;
    return client;
  }
  bool tick() {
    bool worked = false;
    for (size_t i = 0; i < engines.size(); ++i) {
      if (is_lost[i]) continue;
      const Result<bool> ticked = engines[i]->tick();
      if (!ticked) {
        REQUIRE(ticked.error().code == ErrorCode::kDeviceLost);
        is_lost[i] = true;
        fleet->lose(i);
        worked = true;
        continue;
      }
      worked |= *ticked;
    }
    return worked;
  }
  void run() {
    while (tick()) {
    }
  }

  SimClock clock;
  std::vector<std::shared_ptr<Engine>> engines;
  std::vector<bool> is_lost;
  std::unique_ptr<Fleet> fleet;
};

Request request_of(uint64_t seed, uint32_t n = 1) {
  Request request;
  request.prompt = {5, 6, 7, static_cast<int32_t>(8 + seed % 9)};
  request.n = n;
  request.max_tokens = 30;
  request.stop.ignore_eos = true;
  request.sampling.seed = seed;
  return request;
}

// Branches that went on elsewhere.
uint64_t num_moved(const Fleet& fleet) {
  uint64_t sum = 0;
  for (const FleetWorkerFigures& worker : fleet.figures()) sum += worker.num_moved_in;
  return sum;
}

void check_answers(const Request& asked, Client& client) {
  std::lock_guard lock(client.mutex);
  REQUIRE(client.answers.size() == asked.n);
  CHECK(client.num_over == asked.n);
  CHECK(client.ids_are_right);
  CHECK_FALSE(client.came_behind_end);
  for (uint32_t branch = 0; branch < asked.n; ++branch) {
    Request one = asked;
    one.n = 1;
    one.sampling.branch = branch;
    const FakeAnswer alone = answer_alone(one, *make_fake_tokenizer(), 0);
    CHECK(client.answers[branch].tokens == alone.tokens);
    CHECK(client.answers[branch].finish == alone.finish);
  }
}

}  // namespace

TEST_CASE("requests of a fleet are answered as alone, by all of its engines") {
  for (const PlacementPolicy policy :
       {PlacementPolicy::kLateness, PlacementPolicy::kLeastLoad, PlacementPolicy::kRoundRobin}) {
    Bed bed({{}, {}, {}}, {.policy = policy});
    std::vector<Request> asked;
    std::vector<std::shared_ptr<Client>> clients;
    for (uint64_t i = 0; i < 30; ++i) {
      asked.push_back(request_of(i, 1 + i % 3));
      clients.push_back(bed.send(asked.back()));
      bed.tick();
    }
    bed.run();
    for (size_t i = 0; i < asked.size(); ++i) {
      check_answers(asked[i], *clients[i]);
      for (uint32_t branch = 0; branch < asked[i].n; ++branch) bed.fleet->drained(clients[i]->first_id + branch);
    }
    bed.run();
    for (const FleetWorkerFigures& worker : bed.fleet->figures()) CHECK(worker.num_placed >= 10);
    for (const auto& engine : bed.engines) CHECK(engine->stats().num_streaming == 0);
  }
}

TEST_CASE("answers of an engine that is lost go on elsewhere, from the tokens that their clients have") {
  uint64_t total_moved = 0;
  for (uint64_t lost_at = 10; lost_at < 60; lost_at += 7) {
    Bed bed({{.lost_at_submit = lost_at}, {}, {.lost_at_submit = lost_at + 30}},
            {.policy = PlacementPolicy::kRoundRobin});
    std::vector<Request> asked;
    std::vector<std::shared_ptr<Client>> clients;
    for (uint64_t i = 0; i < 12; ++i) {
      Request request = request_of(i, 1 + i % 2);
      if (i % 4 == 1) request.sampling.presence_penalty = 0.7f;
      if (i % 4 == 2) request.stop.token_ids = std::vector<int32_t>{3};
      if (i % 4 == 3) request.sampling.temperature = 0;
      asked.push_back(request);
      clients.push_back(bed.send(request));
      bed.tick();
    }
    bed.run();
    CAPTURE(lost_at);
    for (size_t i = 0; i < asked.size(); ++i) {
      check_answers(asked[i], *clients[i]);
      for (uint32_t branch = 0; branch < asked[i].n; ++branch) bed.fleet->drained(clients[i]->first_id + branch);
    }
    bed.run();
    CHECK(bed.engines[1]->stats().num_streaming == 0);
    CHECK(bed.engines[1]->stats().blocks_free == bed.engines[1]->stats().blocks_total);
    total_moved += num_moved(*bed.fleet);
  }
  CHECK(total_moved > 20);
}

TEST_CASE("a request that fails at an engine that lives goes on at another one, and nothing of it stays behind") {
  // The second engine is the busier one: but for the failure the first would be chosen again.
  Bed bed({{.best_logprob = 100}, {}}, {.policy = PlacementPolicy::kLeastLoad});
  Request request = request_of(1);
  request.sampling.logprobs = 2;
  bed.fleet->drain(0, true);
  bed.send(request_of(2, 4));
  bed.fleet->drain(0, false);
  const auto client = bed.send(request);
  bed.run();
  check_answers(request, *client);
  CHECK(num_moved(*bed.fleet) == 1);
  bed.fleet->drained(client->first_id);
  bed.run();
  CHECK(bed.engines[0]->stats().num_streaming == 0);
  CHECK(bed.fleet->figures()[0].num_failed == 1);
}

TEST_CASE("a lost fleet says so, and what cannot go on ends with the error") {
  Bed bed({{.lost_at_submit = 20}, {}}, {.policy = PlacementPolicy::kRoundRobin});
  // Log-probabilities of the prompt were told: they would be told again.
  Request scored = request_of(1);
  scored.sampling.prompt_logprobs = true;
  scored.sampling.logprobs = 2;
  scored.max_tokens = 100;
  const auto client = bed.send(scored);
  bed.run();
  CHECK(client->num_over == 1);
  REQUIRE(client->error);
  CHECK(client->error->code == ErrorCode::kDeviceLost);
  CHECK(num_moved(*bed.fleet) == 0);
  CHECK(bed.fleet->lose(1) == 0);
  const auto refused = bed.fleet->submit(request_of(2));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kDeviceLost);
  CHECK_THAT(refused.error().message, ContainsSubstring("fake:0: its engine is lost; fake:1: its engine is lost"));
}

TEST_CASE("a worker that is drained takes no more, and one that cannot serve a request says why") {
  Bed bed(std::vector<FakeBackendConfig>(2));
  const auto before = bed.send(request_of(1));
  bed.fleet->drain(0, true);
  bed.fleet->drain(1, false);
  for (uint64_t i = 0; i < 4; ++i) bed.send(request_of(i));
  bed.run();
  CHECK(before->num_over == 1);
  CHECK(bed.fleet->figures()[1].num_placed >= 4);
  Request large = request_of(1);
  large.max_tokens = 1000;
  const auto refused = bed.fleet->submit(large);
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message, ContainsSubstring("fake:1: context: expected 1004, found 200"));
}

TEST_CASE("a cancelled answer ends wherever it is") {
  Bed bed({{.lost_at_submit = 16}, {}}, {.policy = PlacementPolicy::kRoundRobin});
  const auto client = bed.send(request_of(1));
  while (!bed.is_lost[0]) bed.tick();
  CHECK(num_moved(*bed.fleet) == 1);
  for (int i = 0; i < 3; ++i) bed.tick();
  bed.fleet->cancel(client->first_id);
  bed.run();
  CHECK(client->num_over == 1);
  CHECK(client->answers[0].finish == FinishReason::kCancelled);
  CHECK(bed.engines[1]->stats().num_running == 0);
  CHECK(bed.engines[1]->stats().num_streaming == 0);
}

TEST_CASE("an engine that comes back in the place of a lost one is tried by one request, then takes its share") {
  Bed bed({{.lost_at_submit = 16}, {}}, {.policy = PlacementPolicy::kRoundRobin});
  std::vector<Request> asked;
  std::vector<std::shared_ptr<Client>> clients;
  const auto send = [&] {
    asked.push_back(request_of(asked.size()));
    clients.push_back(bed.send(asked.back()));
  };
  const auto placed = [&] { return bed.fleet->figures()[0].num_placed; };
  send();
  while (!bed.is_lost[0]) bed.tick();
  const uint64_t before = placed();
  for (int i = 0; i < 4; ++i) send();
  CHECK(placed() == before);
  auto made = Engine::create(small_config(), make_fake_model(), make_fake_tokenizer(),
                             std::make_unique<FakeBackend>(FakeBackendConfig{}), &bed.clock, {});
  REQUIRE(made.ok());
  bed.engines[0] = *std::move(made);
  bed.is_lost[0] = false;
  bed.fleet->bring_back(0, bed.engines[0]);
  CHECK(bed.fleet->figures()[0].is_out);
  for (int i = 0; i < 6; ++i) send();
  CHECK(placed() == before + 1);
  SECTION("one that ends well") {
    bed.run();
    CHECK_FALSE(bed.fleet->figures()[0].is_out);
    for (int i = 0; i < 6; ++i) send();
    CHECK(placed() == before + 4);
  }
  SECTION("one that its client gives up says nothing: another one tries it") {
    for (const std::shared_ptr<Client>& client : clients) bed.fleet->cancel(client->first_id);
    bed.run();
    asked.clear();
    clients.clear();
    CHECK(bed.fleet->figures()[0].is_out);
    for (int i = 0; i < 6; ++i) send();
    CHECK(placed() == before + 2);
  }
  bed.run();
  for (size_t i = 0; i < asked.size(); ++i) check_answers(asked[i], *clients[i]);
  const std::vector<FleetWorkerFigures> figures = bed.fleet->figures();
  CHECK(figures[0].num_losses == 1);
  CHECK_FALSE(figures[0].is_lost);
}

namespace {

// Engines that hand prompts over: those of the first roles compute them for the others.
struct HandOverBed {
  explicit HandOverBed(std::vector<FakeBackendConfig> backends, HandOverRule rule, uint64_t exchange_bytes = 1u << 24)
      : exchange(std::make_shared<BlockExchange>(exchange_bytes)), bed(backends, {}, config_with(exchange)) {
    bed.fleet->set_hand_over(std::move(rule));
  }
  // The exchange's ends work in ticks, as the simulated time would not wait for threads.
  struct Ticked final : DiskSource {
    Result<std::unique_ptr<Folder>> open(const std::string&) override { return make_error(ErrorCode::kIo, "no files"); }
    uint32_t next_jobs() override { return 2; }
  };
  static EngineConfig config_with(const std::shared_ptr<BlockExchange>& exchange) {
    EngineConfig config = small_config();
    config.disk.source = std::make_shared<Ticked>();
    config.exchange = exchange;
    return config;
  }
  void send(Request request) {
    asked.push_back(request);
    clients.push_back(bed.send(std::move(request)));
  }
  // Until every answer is whole: what waits for blocks does so in time.
  void run() {
    const auto is_over = [this](size_t i) {
      std::lock_guard lock(clients[i]->mutex);
      return clients[i]->num_over == asked[i].n;
    };
    for (int ticks = 0; ticks < 200'000; ++ticks) {
      if (!bed.tick()) bed.clock.advance_ns(1'000'000);
      size_t num_over = 0;
      while (num_over < clients.size() && is_over(num_over)) ++num_over;
      if (num_over == clients.size()) break;
    }
    bed.run();
  }
  void check() {
    for (size_t i = 0; i < asked.size(); ++i) {
      INFO(i);
      check_answers(asked[i], *clients[i]);
      for (uint32_t branch = 0; branch < asked[i].n; ++branch) bed.fleet->drained(clients[i]->first_id + branch);
    }
    bed.run();
    for (size_t i = 0; i < bed.engines.size(); ++i) {
      if (bed.is_lost[i]) continue;
      const EngineStats stats = bed.engines[i]->stats();
      CHECK(stats.num_running + stats.num_waiting + stats.num_streaming == 0);
      CHECK(stats.blocks_free == stats.blocks_total);
    }
  }
  EngineStats stats(size_t engine) const { return bed.engines[engine]->stats(); }

  std::shared_ptr<BlockExchange> exchange;
  Bed bed;
  std::vector<Request> asked;
  std::vector<std::shared_ptr<Client>> clients;
};

Request long_request(uint64_t seed, uint32_t n = 1) {
  Request request = request_of(seed, n);
  request.prompt.clear();
  for (uint64_t i = 0; i < 70 + seed % 30; ++i) request.prompt.push_back(static_cast<int32_t>(5 + (i * 7 + seed) % 20));
  return request;
}

constexpr WorkerRole kPrefills = WorkerRole::kPrefill, kDecodes = WorkerRole::kDecode;

uint64_t finished(const EngineStats& stats, FinishReason reason) {
  return stats.finished[static_cast<size_t>(reason)];
}

}  // namespace

TEST_CASE("one engine computes prompts, the other goes on from their blocks") {
  HandOverBed bed({{}, {}}, {.roles = {kPrefills, kDecodes}});
  const bool at_once = GENERATE(false, true);
  for (uint64_t i = 0; i < 12; ++i) {
    bed.send(long_request(i, 1 + i % 3));
    if (!at_once) bed.run();
  }
  bed.run();
  bed.check();
  uint64_t num_branches = 0, num_blocks = 0;
  for (const Request& request : bed.asked) {
    num_branches += request.n;
    num_blocks += request.n * (request.prompt.size() / 16);
  }
  CHECK(finished(bed.stats(0), FinishReason::kHandedOver) == num_branches);
  CHECK(finished(bed.stats(1), FinishReason::kLength) == num_branches);
  CHECK(bed.bed.fleet->figures()[1].num_handed_in == num_branches);
  // All that is full of the prompts came with them: from the exchange, or as a branch before had brought it. Where many
  // are on their way at once the pools are too small for some.
  CHECK(bed.stats(1).prefix_hits >= num_blocks * (at_once ? 10 : 16));
  CHECK(bed.stats(1).prefix_disk_hits > 0);
  CHECK(bed.exchange->stats().num_got > 0);
  CHECK(bed.exchange->stats().num_missed == 0);
}

TEST_CASE("what the giver's prefix cache had already is handed over, too") {
  HandOverBed bed({{}, {}}, {.roles = {kPrefills, kDecodes}});
  Request alone = long_request(1);
  alone.batch_invariant = false;
  alone.max_tokens = 1;  // nothing to hand over
  bed.send(alone);
  bed.run();
  CHECK(bed.exchange->stats().num_put == 0);
  bed.send(long_request(1));
  bed.run();
  bed.check();
  CHECK(bed.stats(0).prefix_hits > 0);
  CHECK(bed.stats(1).prefix_disk_hits == bed.asked[1].prompt.size() / 16 * 16);
}

TEST_CASE("without room in the exchange prompts are computed again") {
  HandOverBed bed({{}, {}}, {.roles = {kPrefills, kDecodes}}, /*exchange_bytes=*/10);
  for (uint64_t i = 0; i < 4; ++i) bed.send(long_request(i));
  bed.run();
  bed.check();
  CHECK(bed.bed.fleet->figures()[1].num_handed_in == 4);
  CHECK(bed.stats(1).prefix_disk_hits == 0);
}

TEST_CASE("a hand-over outlives the loss of either side") {
  for (uint64_t at = 10; at < 50; at += 3)
    for (const bool loses_giver : {true, false}) {
      INFO("lost at " << at << (loses_giver ? ", the giver" : ", the taker"));
      const FakeBackendConfig lost{.lost_at_submit = at};
      HandOverBed bed({loses_giver ? lost : FakeBackendConfig{}, loses_giver ? FakeBackendConfig{} : lost},
                      {.roles = {kPrefills, kDecodes}});
      for (uint64_t i = 0; i < 6; ++i) bed.send(long_request(i, 1 + i % 2));
      bed.run();
      bed.check();
    }
}

TEST_CASE("a client that leaves in the middle of a hand-over leaves nothing behind") {
  for (int ticks = 1; ticks < 14; ++ticks) {
    HandOverBed bed({{}, {}}, {.roles = {kPrefills, kDecodes}});
    const auto client = bed.bed.send(long_request(3));
    for (int i = 0; i < ticks; ++i) bed.bed.tick();
    bed.bed.fleet->cancel(client->first_id);
    for (int i = 0; i < 50; ++i) bed.bed.tick();
    bed.bed.run();
    CHECK(client->num_over == 1);
    CHECK_FALSE(client->came_behind_end);
    bed.check();
  }
}

TEST_CASE("what another device would round otherwise, or cannot go on, is not handed over") {
  HandOverBed bed({{}, {}}, {.roles = {kPrefills, kDecodes}});
  Request invariant = long_request(1);
  invariant.batch_invariant = true;
  bed.send(invariant);
  Request one = long_request(2);
  one.max_tokens = 1;
  bed.send(one);
  bed.run();
  bed.check();
  CHECK(bed.bed.fleet->figures()[0].num_handed_in + bed.bed.fleet->figures()[1].num_handed_in == 0);
}

TEST_CASE("engines on threads of their own, one of them lost under load") {
  SteadyClock clock;
  std::vector<std::shared_ptr<Engine>> engines;
  std::vector<Fleet::Worker> workers;
  for (const uint64_t lost_at : {0, 60}) {
    auto made = Engine::create(small_config(), make_fake_model(), make_fake_tokenizer(),
                               std::make_unique<FakeBackend>(FakeBackendConfig{.lost_at_submit = lost_at}), &clock, {});
    REQUIRE(made.ok());
    engines.push_back(*std::move(made));
    workers.push_back({"fake", engines.back()});
  }
  Fleet fleet(workers, {.policy = PlacementPolicy::kRoundRobin}, &clock);
  std::vector<std::unique_ptr<EngineThread>> threads;
  for (size_t i = 0; i < engines.size(); ++i) threads.push_back(std::make_unique<EngineThread>(engines[i].get()));
  for (size_t i = 0; i < engines.size(); ++i) threads[i]->start([&fleet, i] { fleet.lose(i); });
  std::vector<Request> asked;
  std::vector<std::shared_ptr<Client>> clients;
  for (uint64_t i = 0; i < 60; ++i) {
    asked.push_back(request_of(i));
    Request request = asked.back();
    request.sink = clients.emplace_back(std::make_shared<Client>());
    REQUIRE(fleet.submit(std::move(request)).ok());
    if (i % 8 == 7) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto is_over = [](const std::shared_ptr<Client>& client) {
    std::lock_guard lock(client->mutex);
    return client->num_over == 1;
  };
  for (int waits = 0; waits < 3000 && !std::ranges::all_of(clients, is_over); ++waits)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(threads[1]->failure().has_value());
  for (size_t i = 0; i < asked.size(); ++i) check_answers(asked[i], *clients[i]);
  CHECK(num_moved(fleet) > 0);
}

// ---- prefix caches -------------------------------------------------------------------------------------------------

namespace {

// A conversation of so many tokens; its texts share nothing.
Request turn_of(int32_t conversation, uint32_t num_tokens) {
  Request request;
  std::mt19937 random(static_cast<uint32_t>(conversation));
  for (uint32_t i = 0; i < num_tokens; ++i) request.prompt.push_back(5 + static_cast<int32_t>(random() % 50));
  request.max_tokens = 4;
  request.stop.ignore_eos = true;
  return request;
}

// Which worker got the last request, told by Fleet::on_choice.
struct LastChoice {
  explicit LastChoice(Fleet* fleet) {
    fleet->on_choice([this](const PlacementRecord& record) { worker = record.worker.value_or(99); });
  }
  uint32_t worker = 99;
};

std::vector<PrefixView> views_of(Bed& bed) {
  std::vector<PrefixView> views;
  for (const auto& engine : bed.engines) views.push_back(listen_to(engine));
  return views;
}

}  // namespace

TEST_CASE("a conversation goes on where its beginning is, also when another worker has less to do") {
  // Reading a prompt is what takes long here.
  Bed bed({{.token_ms = 1}, {.token_ms = 1}});
  LastChoice last(bed.fleet.get());
  uint64_t num_told = 0;
  for (int32_t conversation = 0; conversation < 6; ++conversation) {
    CAPTURE(conversation);
    bed.send(turn_of(conversation, 80));
    const uint32_t first = last.worker;
    bed.run();
    // A request that goes elsewhere would find the other worker idle.
    bed.fleet->drain(1 - first, true);
    const auto beside = bed.send(turn_of(100 + conversation, 20));
    CHECK(last.worker == first);
    bed.fleet->drain(1 - first, false);
    bed.send(turn_of(conversation, 120));
    CHECK(last.worker == first);
    bed.run();
    num_told += first;
  }
  uint64_t num_cached = 0;
  for (const auto& engine : bed.engines) num_cached += engine->stats().prefix_hits;
  CHECK(num_cached == 6 * 80);
  CHECK(num_told > 0);  // both workers had some
  CHECK(num_told < 6);
}

TEST_CASE("what an engine has cached is known by block, until it is evicted, for requests that may use it") {
  Bed bed(std::vector<FakeBackendConfig>(2));
  const std::vector<PrefixView> views = views_of(bed);
  using Cached = std::vector<uint64_t>;
  const Request turn = turn_of(1, 100);
  CHECK(cached_tokens(views, turn) == Cached{0, 0});
  bed.fleet->drain(0, true);
  bed.send(turn);
  bed.run();
  CHECK(cached_tokens(views, turn) == Cached{0, 96});
  CHECK(cached_tokens(views, turn_of(1, 97)) == Cached{0, 96});
  CHECK(cached_tokens(views, turn_of(1, 96)) == Cached{0, 80});  // the last token is computed in any case
  CHECK(cached_tokens(views, turn_of(2, 100)) == Cached{0, 0});
  Request begun = turn_of(1, 60);  // an answer that goes on elsewhere
  begun.begun.assign(turn.prompt.begin() + 60, turn.prompt.end());
  CHECK(cached_tokens(views, begun) == Cached{0, 96});

  Request salted = turn, adapted = turn, invariant = turn, evaluation = turn;
  salted.cache_salt = "s";
  adapted.adapter_id = 3;
  invariant.batch_invariant = true;
  evaluation.request_class = RequestClass::kEvaluation;
  for (const Request& other : {salted, adapted, invariant, evaluation})
    CHECK(cached_tokens(views, other) == Cached{0, 0});
  // An adapter that counts from a position on has the model's own blocks before it.
  adapted.adapter_start = 70;
  CHECK(cached_tokens(views, adapted) == Cached{0, 64});
  bed.send(salted);
  bed.send(invariant);
  bed.run();
  for (const Request& other : {salted, invariant, evaluation}) CHECK(cached_tokens(views, other) == Cached{0, 96});

  for (int32_t other = 10; other < 20; ++other) {
    bed.send(turn_of(other, 150));
    bed.run();
  }
  CHECK(cached_tokens(views, turn) == Cached{0, 0});
  CHECK(cached_tokens(views, turn_of(19, 150)) == Cached{0, 144});
}

TEST_CASE("an engine that comes back tells what its own cache has") {
  Bed bed({{.token_ms = 1, .lost_at_submit = 30}, {.token_ms = 1}});
  LastChoice last(bed.fleet.get());
  const auto send_to = [&](uint32_t worker, const Request& request) {
    bed.fleet->drain(1 - worker, true);
    bed.send(request);
    bed.fleet->drain(1 - worker, false);
    REQUIRE(last.worker == worker);
  };
  send_to(1, turn_of(50, 80));  // its speed is known then
  bed.run();
  for (int32_t i = 0; !bed.is_lost[0]; ++i) {
    send_to(0, turn_of(1, 80));
    bed.fleet->drain(1, true);
    bed.run();
    bed.fleet->drain(1, false);
  }
  auto made = Engine::create(small_config(), make_fake_model(), make_fake_tokenizer(),
                             std::make_unique<FakeBackend>(FakeBackendConfig{.token_ms = 1}), &bed.clock, {});
  REQUIRE(made.ok());
  bed.engines[0] = *std::move(made);
  bed.is_lost[0] = false;
  bed.fleet->bring_back(0, bed.engines[0]);
  send_to(0, turn_of(2, 80));
  bed.run();
  send_to(0, turn_of(3, 20));
  bed.send(turn_of(2, 120));
  CHECK(last.worker == 0);
  bed.send(turn_of(1, 120));  // which the engine before had
  CHECK(last.worker == 1);
  bed.run();
}

TEST_CASE("an engine without a prefix cache has nothing of a request, and other sizes of blocks are no obstacle") {
  EngineConfig config = small_config();
  config.prefix_cache = PrefixCacheKind::kOff;
  Bed off(std::vector<FakeBackendConfig>(1), {}, config);
  config = small_config();
  config.block_tokens = 32;
  config.prefix_cache = PrefixCacheKind::kHashed;
  Bed wide(std::vector<FakeBackendConfig>(1), {}, config);
  Bed narrow(std::vector<FakeBackendConfig>(1));
  std::vector<PrefixView> views;
  for (Bed* bed : {&off, &wide, &narrow}) views.push_back(listen_to(bed->engines[0]));
  for (Bed* bed : {&off, &wide, &narrow}) {
    bed->send(turn_of(1, 120));
    bed->run();
  }
  CHECK(cached_tokens(views, turn_of(1, 120)) == std::vector<uint64_t>{0, 96, 112});
}

}  // namespace llmrt::test
