#include "tools/llmrt_bench/serving/grammar_supply.h"

#include <chrono>

namespace llmrt::bench {
namespace {

using WallClock = std::chrono::steady_clock;

GrammarJob job_of(boost::json::value schema, SchemaOptions::Spaces spaces, uint32_t vocabulary_size) {
  GrammarSource source;
  source.dialect = GrammarSource::Dialect::kJsonSchema;
  source.schema = std::move(schema);
  source.spaces = spaces;
  GrammarJob job;
  job.key = source.key();
  job.build = [source = std::move(source), vocabulary_size](GrammarBuilder* builder) -> Status {
    SchemaNotes notes;
    const GrammarNames names{[](std::string_view) { return -1; }, vocabulary_size};
    Result<SymbolId> symbol = add_source(builder, source, names, &notes);
    if (!symbol.ok()) return symbol.error();
    builder->set_start(*symbol);
    return builder->status();
  };
  return job;
}

}  // namespace

struct GrammarSupply::Shared {
  std::mutex mutex;
  std::condition_variable has_ready;
  std::vector<Ready> ready;
  size_t num_pending = 0;
};

GrammarSupply::GrammarSupply(std::shared_ptr<const TokenVocabulary> vocabulary, SchemaOptions::Spaces spaces)
    : spaces_(spaces),
      shared_(std::make_shared<Shared>()),
      compiler_(std::make_unique<GrammarCompiler>(std::move(vocabulary))) {}

GrammarSupply::~GrammarSupply() {
  tickets_.clear();
  compiler_.reset();  // joins its threads, which may be in a callback
}

void GrammarSupply::ask(size_t id, boost::json::value schema) {
  {
    const std::lock_guard lock(shared_->mutex);
    ++shared_->num_pending;
  }
  const auto begin = WallClock::now();
  auto done = [id, begin, shared = shared_, compiler = compiler_.get()](GrammarCompiler::Answer answer) {
    const std::chrono::duration<double, std::milli> waited = WallClock::now() - begin;
    const double cpu_ms = compiler->figures().compile_ms_last;
    const std::lock_guard lock(shared->mutex);
    --shared->num_pending;
    shared->ready.push_back({id, std::move(answer), waited.count(), cpu_ms});
    shared->has_ready.notify_all();
  };
  auto ticket = compiler_->compile(job_of(std::move(schema), spaces_, vocabulary().num_tokens()), std::move(done));
  tickets_.emplace_back(id, std::move(ticket));
}

std::vector<GrammarSupply::Ready> GrammarSupply::take() {
  std::vector<Ready> ready;
  {
    const std::lock_guard lock(shared_->mutex);
    ready.swap(shared_->ready);
  }
  for (const Ready& each : ready) std::erase_if(tickets_, [&](const auto& kept) { return kept.first == each.id; });
  return ready;
}

void GrammarSupply::wait() {
  std::unique_lock lock(shared_->mutex);
  shared_->has_ready.wait_for(lock, std::chrono::milliseconds(1), [this] { return !shared_->ready.empty(); });
}

size_t GrammarSupply::num_pending() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->num_pending;
}

}  // namespace llmrt::bench
