#include "core/grammar/grammar_compiler.h"

#include <algorithm>
#include <future>
#include <utility>

#include "core/platform/thread_clock.h"

namespace llmrt {
namespace {

uint32_t num_mask_threads(const GrammarCompilerOptions& options) {
  return options.mask_threads > 0 ? options.mask_threads : std::max(1u, std::thread::hardware_concurrency() / 2);
}

Digest digest_of(const GrammarJob& job) {
  return Sha256().add_text("grammar").add_text(job.salt).add_text(job.key).finish();
}

}  // namespace

GrammarCompiler::GrammarCompiler(std::shared_ptr<const TokenVocabulary> vocabulary,
                                 const GrammarCompilerOptions& options)
    : options_(options),
      vocabulary_(std::move(vocabulary)),
      mask_figures_(std::make_shared<MaskFigures>()),
      workers_(std::make_shared<MaskWorkers>(num_mask_threads(options))) {
  for (uint32_t i = 0; i < std::max(1u, options.compile_threads); ++i) threads_.emplace_back([this] { run(); });
}

GrammarCompiler::~GrammarCompiler() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  has_work_.notify_all();
  for (auto& thread : threads_) thread.join();
}

std::shared_ptr<GrammarCompiler::Ticket> GrammarCompiler::compile(GrammarJob job, std::function<void(Answer)> done) {
  auto ticket = std::make_shared<Ticket>();
  const Digest digest = digest_of(job);
  std::unique_lock lock(mutex_);
  if (auto grammar = find(digest)) {
    ++figures_.num_cached;
    lock.unlock();
    done(std::shared_ptr<const TokenConstraint>(std::move(grammar)));
    return ticket;
  }
  if (waiting_.size() >= options_.waiting_max) {
    ++figures_.num_refused;
    ++figures_.refused[ErrorCode::kOverloaded];
    lock.unlock();
    done(make_error(ErrorCode::kOverloaded, "grammars that wait to be compiled: expected at most {}",
                    options_.waiting_max));
    return ticket;
  }
  waiting_.push_back({std::move(job), digest, std::move(done), ticket});
  lock.unlock();
  has_work_.notify_one();
  return ticket;
}

GrammarCompiler::Answer GrammarCompiler::compile(GrammarJob job) {
  std::promise<Answer> promise;
  const auto ticket = compile(std::move(job), [&](Answer answer) { promise.set_value(std::move(answer)); });
  return promise.get_future().get();
}

void GrammarCompiler::run() {
  while (true) {
    std::unique_lock lock(mutex_);
    has_work_.wait(lock, [this] { return is_over_ || !waiting_.empty(); });
    if (is_over_) return;
    const Waiting waiting = std::move(waiting_.front());
    waiting_.pop_front();
    std::shared_ptr<const CompiledGrammar> found = find(waiting.digest);
    lock.unlock();
    if (waiting.ticket.expired()) continue;
    Answer answer = found ? Answer(std::shared_ptr<const TokenConstraint>(std::move(found))) : make(waiting);
    // Holds the ticket while `done` runs: a ticket that is dropped afterwards has been answered.
    if (const auto ticket = waiting.ticket.lock()) waiting.done(std::move(answer));
  }
}

GrammarCompiler::Answer GrammarCompiler::make(const Waiting& waiting) {
  const double begin_ms = thread_cpu_ms();
  GrammarLimits limits = options_.limits;
  limits.stop = [&]() -> Status {
    if (waiting.ticket.expired()) return make_error(ErrorCode::kCancelled, "the client went away");
    if (thread_cpu_ms() - begin_ms < options_.compile_ms_max) return {};
    return make_error(ErrorCode::kGrammarTimeout, "compiling the grammar: expected at most {} ms",
                      options_.compile_ms_max);
  };
  const auto compiled = [&]() -> Result<std::shared_ptr<CompiledGrammar>> {
    GrammarBuilder builder(limits);
    if (Status built = waiting.job.build(&builder); !built) return built.error();
    if (Status stopped = limits.stop(); !stopped) return stopped.error();
    auto grammar = CompiledGrammar::create(&builder, vocabulary_, workers_, mask_figures_);
    if (!grammar.ok()) return grammar;
    if (Status ready = (*grammar)->prepare(); !ready) return ready.error();
    return grammar;
  }();
  const double took_ms = thread_cpu_ms() - begin_ms;
  const std::lock_guard lock(mutex_);
  figures_.compile_ms_last = took_ms;
  figures_.compile_ms_sum += took_ms;
  if (!compiled.ok()) {
    ++figures_.num_refused;
    ++figures_.refused[compiled.error().code];
    return compiled.error();
  }
  ++figures_.num_compiled;
  keep(waiting.digest, *compiled);
  return std::shared_ptr<const TokenConstraint>(*compiled);
}

std::shared_ptr<const CompiledGrammar> GrammarCompiler::find(const Digest& digest) {
  const auto it = std::ranges::find(cache_, digest, &Cached::digest);
  if (it == cache_.end()) return nullptr;
  if (it->grammar->is_worn()) {
    cache_.erase(it);
    return nullptr;
  }
  cache_.splice(cache_.begin(), cache_, it);
  return it->grammar;
}

void GrammarCompiler::keep(const Digest& digest, std::shared_ptr<const CompiledGrammar> grammar) {
  cache_.push_front({digest, std::move(grammar)});
  size_t held = 0;
  for (auto it = cache_.begin(); it != cache_.end();) {
    held += it->grammar->held_bytes();
    it = held > options_.cache_bytes_max && it != cache_.begin() ? cache_.erase(it) : std::next(it);
  }
}

GrammarFigures GrammarCompiler::figures() const {
  const std::lock_guard lock(mutex_);
  GrammarFigures figures = figures_;
  figures.num_masks_made = mask_figures_->num_made;
  figures.num_masks_found = mask_figures_->num_found;
  figures.mask_cpu_us = mask_figures_->cpu_us;
  figures.num_waiting = waiting_.size();
  figures.cache_grammars = cache_.size();
  for (const auto& cached : cache_) figures.cache_bytes += cached.grammar->held_bytes();
  return figures;
}

}  // namespace llmrt
