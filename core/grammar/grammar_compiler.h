// Compiles grammars beside the engine: threads of its own, a deadline, a cache of what was compiled. What clients ask
// for is hostile: the time of each is bounded, and a client's grammar is found only by a client with the same salt.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/base/sha256.h"
#include "core/grammar/compiled_grammar.h"

namespace llmrt {

struct GrammarCompilerOptions {
  uint32_t compile_threads = 1;
  uint32_t mask_threads = 0;       // 0: half of the processors, at least one
  uint32_t compile_ms_max = 2000;  // of a thread's time
  uint32_t waiting_max = 256;      // jobs
  size_t cache_bytes_max = 256u << 20;
  GrammarLimits limits = {};
};

struct GrammarJob {
  std::string key;   // everything that the grammar depends on: text, dialect, options
  std::string salt;  // of the client
  std::function<Status(GrammarBuilder*)> build;
};

struct GrammarFigures {
  uint64_t num_compiled = 0, num_cached = 0, num_refused = 0;
  uint64_t num_masks_made = 0, num_masks_found = 0, mask_cpu_us = 0;
  uint64_t cache_bytes = 0, cache_grammars = 0;
  double compile_ms_last = 0, compile_ms_sum = 0;  // of threads' time; failures among them
  uint64_t num_waiting = 0;                        // to be compiled, now
  std::map<ErrorCode, uint64_t> refused = {};      // by reason; num_refused in all
};

class GrammarCompiler {
 public:
  using Answer = Result<std::shared_ptr<const TokenConstraint>>;
  // Cancels the job when it goes, unless it is done.
  class Ticket {
   public:
    ~Ticket() { is_cancelled.store(true, std::memory_order_relaxed); }
    std::atomic<bool> is_cancelled = false;
  };

  GrammarCompiler(std::shared_ptr<const TokenVocabulary> vocabulary, const GrammarCompilerOptions& options = {});
  ~GrammarCompiler();

  // `done` is called once, on this thread when the answer is there already, else on one of the compiler's; never when
  // the ticket has gone before. kOverloaded when too many wait.
  std::shared_ptr<Ticket> compile(GrammarJob job, std::function<void(Answer)> done);
  // The same, waiting for it; for tools and tests.
  Answer compile(GrammarJob job);
  const TokenVocabulary& vocabulary() const { return *vocabulary_; }
  GrammarFigures figures() const;

 private:
  struct Waiting {
    GrammarJob job;
    Digest digest;
    std::function<void(Answer)> done;
    std::weak_ptr<Ticket> ticket;
  };
  struct Cached {
    Digest digest;
    std::shared_ptr<const CompiledGrammar> grammar;
  };

  void run();
  Answer make(const Waiting& waiting);
  std::shared_ptr<const CompiledGrammar> find(const Digest& digest);  // under the mutex
  void keep(const Digest& digest, std::shared_ptr<const CompiledGrammar> grammar);

  const GrammarCompilerOptions options_;
  const std::shared_ptr<const TokenVocabulary> vocabulary_;
  const std::shared_ptr<MaskFigures> mask_figures_;
  const std::shared_ptr<MaskWorkers> workers_;
  mutable std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<Waiting> waiting_;
  std::list<Cached> cache_;  // the newest use first
  GrammarFigures figures_;
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace llmrt
