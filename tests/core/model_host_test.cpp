// The registry with threads: leases from many threads while models come and go, slow loads, loads that throw; the last
// reference is the host's own, and nobody sees a model that is gone. No real time is judged but generous bounds.
#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <future>
#include <random>

#include "core/router/model_host.h"

namespace llmrt {
namespace {

constexpr TimeNs kMillisecond = 1'000'000;

struct Thing final : LoadedModel {
  Thing(ModelIdx its_model, std::atomic<int>* counter) : model(its_model), num_alive(counter) { ++*num_alive; }
  ~Thing() override { --*num_alive; }
  uint64_t held_bytes() const override { return 10; }
  const ModelIdx model;
  std::atomic<int>* const num_alive;
};

struct Loader final : ModelLoader {
  Result<std::shared_ptr<LoadedModel>> load(ModelIdx model, std::function<void(Error)> on_lost) override {
    ++num_loads;
    CHECK(!is_loading.exchange(true));
    std::this_thread::sleep_for(load_time);
    is_loading = false;
    if (model == fails) return make_error(ErrorCode::kIo, "no such file");
    if (model == throws) throw std::bad_alloc();
    lost = std::move(on_lost);
    return std::shared_ptr<LoadedModel>(std::make_shared<Thing>(model, &num_alive));
  }
  void unload(ModelIdx, std::shared_ptr<LoadedModel> loaded) override {
    if (loaded.use_count() != 1) ++num_shared;
    loaded.reset();
    ++num_unloads;
  }
  uint64_t need_bytes(ModelIdx) const override { return 10; }
  uint64_t free_bytes(uint64_t held_bytes) const override { return 25 - held_bytes; }

  std::chrono::milliseconds load_time{1};
  ModelIdx fails = 100, throws = 100;
  std::atomic<int> num_alive{0}, num_loads{0}, num_unloads{0}, num_shared{0};
  std::atomic<bool> is_loading{false};
  std::function<void(Error)> lost;
};

std::vector<ModelSpec> three() {
  return {{.name = "a"}, {.name = "b"}, {.name = "c"}};
}

Result<ModelLease> wait_for(ModelHost& host, ModelIdx model) {
  auto promise = std::make_shared<std::promise<Result<ModelLease>>>();
  auto future = promise->get_future();
  host.acquire(model, [promise](Result<ModelLease> lease) { promise->set_value(std::move(lease)); });
  if (future.wait_for(std::chrono::seconds(60)) != std::future_status::ready)
    return make_error(ErrorCode::kTimeout, "no answer");
  return future.get();
}

RegistryLimits quick() {
  RegistryLimits limits;
  limits.linger_ns = kMillisecond;
  limits.patience_ns = 5 * kMillisecond;
  limits.cooldown_ns = 20 * kMillisecond;
  return limits;
}

TEST_CASE("many threads share three models with room for two") {
  const SteadyClock clock;
  const auto loader = std::make_shared<Loader>();
  std::atomic<int> num_served{0}, num_wrong{0}, num_cancelled{0};
  {
    ModelHost host(three(), quick(), loader, &clock);
    std::vector<std::thread> threads;
    for (uint64_t seed = 0; seed < 6; ++seed)
      threads.emplace_back([&, seed] {
        std::mt19937_64 random(seed);
        for (int i = 0; i < 60; ++i) {
          const auto model = static_cast<ModelIdx>(random() % 3);
          if (random() % 8 == 0) {  // asks and leaves
            const WaiterId waiter = host.acquire(model, [](Result<ModelLease>) {});
            if (waiter != 0) host.cancel(waiter), ++num_cancelled;
            continue;
          }
          const Result<ModelLease> lease = wait_for(host, model);
          if (!lease || static_cast<Thing*>(lease->get())->model != model) ++num_wrong;
          ++num_served;
          for (const ModelLease& seen : host.look())
            if (seen && static_cast<Thing*>(seen.get())->num_alive->load() < 1) ++num_wrong;
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(num_wrong == 0);
    CHECK(num_served > 250);
    CHECK(loader->num_alive <= 2);
    host.stop();
    CHECK(wait_for(host, 0).error().code == ErrorCode::kCancelled);
  }
  CHECK(loader->num_alive == 0);
  CHECK(loader->num_loads >= 3);
  CHECK(loader->num_loads == loader->num_unloads);
  CHECK(loader->num_shared == 0);
}

TEST_CASE("while a model loads slowly others are had at once") {
  const SteadyClock clock;
  const auto loader = std::make_shared<Loader>();
  ModelHost host(three(), quick(), loader, &clock);
  { REQUIRE(wait_for(host, 0).ok()); }
  loader->load_time = std::chrono::milliseconds(300);
  std::atomic<bool> is_there{false};
  host.acquire(1, [&](Result<ModelLease>) { is_there = true; });
  int num_served = 0;
  while (!is_there) {
    REQUIRE(wait_for(host, 0).ok());
    ++num_served;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(num_served > 20);
}

TEST_CASE("loads that fail or throw are told with the loader's words, and take nobody down") {
  const SteadyClock clock;
  const auto loader = std::make_shared<Loader>();
  loader->fails = 1;
  loader->throws = 2;
  ModelHost host(three(), quick(), loader, &clock);
  CHECK(wait_for(host, 1).error().message == "model 'b' cannot be loaded: no such file");
  CHECK(wait_for(host, 2).error().code == ErrorCode::kOutOfMemory);
  REQUIRE(wait_for(host, 0).ok());
  CHECK(host.figures(1).state == ModelState::kFailed);
  loader->lost(make_error(ErrorCode::kDeviceLost, "gone"));
  while (host.figures(0).state != ModelState::kFailed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(loader->num_alive == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(wait_for(host, 0).ok());  // behind the cooldown it is tried again
}

TEST_CASE("a model that is adopted is held until it is told to go") {
  const SteadyClock clock;
  const auto loader = std::make_shared<Loader>();
  ModelHost host({{.name = "a", .is_pinned = true, .is_adopted = true}}, quick(), loader, &clock);
  std::atomic<int> num_alive{0};
  host.adopt(0, std::make_shared<Thing>(0, &num_alive));
  CHECK(host.find("a") == 0u);
  CHECK_FALSE(host.find("b"));
  {
    const Result<ModelLease> lease = wait_for(host, 0);
    REQUIRE(lease.ok());
    REQUIRE(host.unload(0).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(num_alive == 1);
  }
  while (host.figures(0).state != ModelState::kUnloaded) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(num_alive == 0);
}

}  // namespace
}  // namespace llmrt
