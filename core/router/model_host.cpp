#include "core/router/model_host.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace llmrt {

// Shared with leases, which may outlive the host. The lock is never held while a model is loaded or destroyed, or while
// somebody is called.
struct ModelHost::Books : std::enable_shared_from_this<ModelHost::Books> {
  Books(std::vector<ModelSpec> models, const RegistryLimits& limits, std::shared_ptr<ModelLoader> its_loader,
        const Clock* its_clock, std::shared_ptr<Log> its_log)
      : loader(std::move(its_loader)),
        clock(its_clock),
        log(std::move(its_log)),
        loaded(models.size()),
        registry(std::move(models), limits, loader.get(), clock->now_ns()) {}

  const std::shared_ptr<ModelLoader> loader;
  const Clock* const clock;
  const std::shared_ptr<Log> log;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<LoadedModel>> loaded;
  ModelRegistry registry;
  std::function<std::optional<std::string>(std::string_view)> aliases;  // empty: there are none
  std::unordered_map<WaiterId, Done> waiting;
  struct Worker {
    std::thread thread;
    bool is_done = false;
  };
  std::list<Worker> workers;
  bool is_ending = false;
  uint64_t num_changes = 0;  // the clerk looks again when it is another one

  ModelLease lease(ModelIdx model);  // counted already; locked
  ModelLease glance(ModelIdx model);
  void touch() {
    ++num_changes;
    changed.notify_all();
  }
  void run_clerk();
  void start(ModelRegistry::Action action);
  void carry_out_load(ModelIdx model);
  void carry_out_unload(ModelIdx model);
};

// What is held inside goes before the books are told: the last reference is then the books' own.
ModelLease ModelHost::Books::lease(ModelIdx model) {
  auto inner = std::make_shared<std::shared_ptr<LoadedModel>>(loaded[model]);
  LoadedModel* const raw = inner->get();
  return {raw, [self = shared_from_this(), inner, model](LoadedModel*) {
            inner->reset();
            std::lock_guard lock(self->mutex);
            self->registry.release(model, self->clock->now_ns());
            self->touch();
          }};
}

ModelLease ModelHost::Books::glance(ModelIdx model) {
  if (!registry.peek(model)) return nullptr;
  auto inner = std::make_shared<std::shared_ptr<LoadedModel>>(loaded[model]);
  LoadedModel* const raw = inner->get();
  return {raw, [self = shared_from_this(), inner, model](LoadedModel*) {
            inner->reset();
            std::lock_guard lock(self->mutex);
            self->registry.unpeek(model);
            self->touch();
          }};
}

void ModelHost::Books::run_clerk() {
  std::unique_lock lock(mutex);
  while (true) {
    const TimeNs now = clock->now_ns();
    while (const auto action = registry.next(now)) start(*action);
    for (auto it = workers.begin(); it != workers.end();) {
      if (it->is_done) it->thread.join();
      it = it->is_done ? workers.erase(it) : std::next(it);
    }
    std::vector<std::pair<Done, Result<ModelLease>>> calls;
    for (ModelRegistry::Outcome& outcome : registry.take_outcomes()) {
      const auto found = waiting.find(outcome.waiter);
      LLMRT_CHECK(found != waiting.end(), "a waiter is told once");
      calls.emplace_back(std::move(found->second), outcome.error ? Result<ModelLease>(std::move(*outcome.error))
                                                                 : Result<ModelLease>(lease(outcome.model)));
      waiting.erase(found);
    }
    if (!calls.empty()) {
      lock.unlock();
      for (auto& [done, result] : calls) done(std::move(result));
      calls.clear();
      lock.lock();
      continue;
    }
    if (is_ending && workers.empty() && registry.is_over()) return;
    const uint64_t seen = num_changes;
    const TimeNs at = registry.next_time(now);
    const auto is_changed = [&] { return num_changes != seen; };
    if (at == kNever)
      changed.wait(lock, is_changed);
    else
      changed.wait_for(lock, std::chrono::nanoseconds(std::max<TimeNs>(at - clock->now_ns(), 0) + 1'000'000),
                       is_changed);
  }
}

void ModelHost::Books::start(ModelRegistry::Action action) {
  Worker& worker = workers.emplace_back();
  worker.thread = std::thread([this, action, &worker] {
    if (action.is_load)
      carry_out_load(action.model);
    else
      carry_out_unload(action.model);
    std::lock_guard lock(mutex);
    worker.is_done = true;
    touch();
  });
}

void ModelHost::Books::carry_out_load(ModelIdx model) {
  const auto on_lost = [weak = weak_from_this(), model](Error error) {
    const auto self = weak.lock();
    if (!self) return;
    std::lock_guard lock(self->mutex);
    const std::string& name = self->registry.figures(model).name;
    self->log->event(LogLevel::kError, {{"model", name}}, "model '{}' is lost: {}", name, error.message);
    self->registry.lose(model, std::move(error), self->clock->now_ns());
    self->touch();
  };
  Result<std::shared_ptr<LoadedModel>> result = make_error(ErrorCode::kInternal, "not loaded");
  try {
    result = loader->load(model, on_lost);
  } catch (const std::exception& thrown) {  // out of memory, most likely
    result = make_error(ErrorCode::kOutOfMemory, "{}", thrown.what());
  }
  const uint64_t bytes = result ? (*result)->held_bytes() : 0;
  std::lock_guard lock(mutex);
  const std::string& name = registry.figures(model).name;
  if (result) {
    loaded[model] = std::move(*result);
    registry.loaded(model, bytes, clock->now_ns());
    log->event(LogLevel::kInfo, {{"model", name}}, "model '{}' is loaded: {:.1f} MiB, {:.2f} s", name,
               static_cast<double>(bytes) / (1 << 20), static_cast<double>(registry.figures(model).load_ns) * 1e-9);
  } else {
    log->event(LogLevel::kError, {{"model", name}, {"code", error_code_name(result.error().code)}},
               "model '{}' cannot be loaded: {}", name, result.error().message);
    registry.loaded(model, result.error(), clock->now_ns());
  }
}

void ModelHost::Books::carry_out_unload(ModelIdx model) {
  std::shared_ptr<LoadedModel> last;
  {
    std::lock_guard lock(mutex);
    last = std::exchange(loaded[model], nullptr);
  }
  loader->unload(model, std::move(last));
  std::lock_guard lock(mutex);
  registry.unloaded(model, clock->now_ns());
  const std::string& name = registry.figures(model).name;
  log->event(LogLevel::kInfo, {{"model", name}}, "model '{}' is unloaded", name);
}

ModelHost::ModelHost(std::vector<ModelSpec> models, const RegistryLimits& limits, std::shared_ptr<ModelLoader> loader,
                     const Clock* clock, std::shared_ptr<Log> log)
    : books_(std::make_shared<Books>(std::move(models), limits, std::move(loader), clock, std::move(log))) {
  clerk_ = std::thread([books = books_.get()] { books->run_clerk(); });
}

ModelHost::~ModelHost() {
  stop();
}

WaiterId ModelHost::acquire(ModelIdx model, Done done) {
  std::optional<Result<ModelLease>> now;
  {
    std::lock_guard lock(books_->mutex);
    ModelRegistry::Asked asked = books_->registry.acquire(model, books_->clock->now_ns());
    if (asked.waiter != 0) {
      books_->waiting.emplace(asked.waiter, std::move(done));
      books_->touch();
      return asked.waiter;
    }
    if (asked.error)
      now.emplace(std::move(*asked.error));
    else
      now.emplace(books_->lease(model));
  }
  done(std::move(*now));
  return 0;
}

ModelLease ModelHost::acquire_now(ModelIdx model) const {
  std::lock_guard lock(books_->mutex);
  const ModelFigures& figures = books_->registry.figures(model);
  if (figures.state != ModelState::kReady || figures.is_closing) return nullptr;
  const ModelRegistry::Asked asked = books_->registry.acquire(model, books_->clock->now_ns());
  return asked.is_leased ? books_->lease(model) : nullptr;
}

void ModelHost::cancel(WaiterId waiter) {
  Done dropped;  // destroyed without the lock
  std::lock_guard lock(books_->mutex);
  const auto found = books_->waiting.find(waiter);
  if (found == books_->waiting.end() || !books_->registry.cancel(waiter)) return;
  dropped = std::move(found->second);
  books_->waiting.erase(found);
  books_->touch();
}

std::vector<ModelLease> ModelHost::look() const {
  std::lock_guard lock(books_->mutex);
  std::vector<ModelLease> all;
  for (ModelIdx model = 0; model < books_->registry.size(); ++model) all.push_back(books_->glance(model));
  return all;
}

ModelLease ModelHost::look(ModelIdx model) const {
  std::lock_guard lock(books_->mutex);
  return books_->glance(model);
}

std::vector<ModelFigures> ModelHost::figures() const {
  std::lock_guard lock(books_->mutex);
  std::vector<ModelFigures> all;
  for (ModelIdx model = 0; model < books_->registry.size(); ++model) all.push_back(books_->registry.figures(model));
  return all;
}

ModelFigures ModelHost::figures(ModelIdx model) const {
  std::lock_guard lock(books_->mutex);
  return books_->registry.figures(model);
}

std::optional<ModelIdx> ModelHost::find(std::string_view name) const {
  const auto find_model = [this](std::string_view wanted) -> std::optional<ModelIdx> {
    std::lock_guard lock(books_->mutex);
    for (ModelIdx model = 0; model < books_->registry.size(); ++model)
      if (books_->registry.figures(model).name == wanted) return model;
    return std::nullopt;
  };
  if (const std::optional<ModelIdx> found = find_model(name)) return found;
  const std::optional<std::string> meant = books_->aliases ? books_->aliases(name) : std::nullopt;
  return meant ? find_model(*meant) : std::nullopt;
}

void ModelHost::set_aliases(std::function<std::optional<std::string>(std::string_view)> aliases) {
  books_->aliases = std::move(aliases);
}

size_t ModelHost::size() const {
  return books_->registry.size();  // fixed
}

TimeNs ModelHost::now_ns() const {
  return books_->clock->now_ns();
}

void ModelHost::adopt(ModelIdx model, std::shared_ptr<LoadedModel> loaded) {
  std::lock_guard lock(books_->mutex);
  const uint64_t bytes = loaded->held_bytes();
  books_->loaded[model] = std::move(loaded);
  books_->registry.adopt(model, bytes, books_->clock->now_ns());
  books_->touch();
}

void ModelHost::lose(ModelIdx model, Error error) {
  std::lock_guard lock(books_->mutex);
  books_->registry.lose(model, std::move(error), books_->clock->now_ns());
  books_->touch();
}

Status ModelHost::unload(ModelIdx model) {
  std::lock_guard lock(books_->mutex);
  Status status = books_->registry.unload(model, books_->clock->now_ns());
  books_->touch();
  return status;
}

void ModelHost::close() {
  std::lock_guard lock(books_->mutex);
  books_->registry.close(books_->clock->now_ns());
  books_->touch();
}

void ModelHost::stop() {
  if (!clerk_.joinable()) return;
  {
    std::lock_guard lock(books_->mutex);
    books_->registry.close(books_->clock->now_ns());
    books_->is_ending = true;
    books_->touch();
  }
  clerk_.join();
}

}  // namespace llmrt
