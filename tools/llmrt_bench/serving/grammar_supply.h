// Compiles the grammars of a benchmark's requests as the server does: on the compiler's threads, with its defaults,
// while the engine's thread goes on. What is ready is taken between two ticks.
#pragma once

#include <boost/json.hpp>

#include <memory>
#include <vector>

#include "core/grammar/grammar_compiler.h"
#include "core/grammar/grammar_source.h"

namespace llmrt::bench {

class GrammarSupply {
 public:
  struct Ready {
    size_t id;
    GrammarCompiler::Answer constraint;
    double waited_ms;  // from ask() on; of a wall clock
    double cpu_ms;     // of the compiler's thread
  };

  explicit GrammarSupply(std::shared_ptr<const TokenVocabulary> vocabulary,
                         SchemaOptions::Spaces spaces = SchemaOptions::Spaces::kOneSpace);
  ~GrammarSupply();

  // Errors come with take().
  void ask(size_t id, boost::json::value schema);
  // In the order of asking, as there is one compiling thread. take() does not wait; wait() does until something is
  // ready, at most a millisecond.
  std::vector<Ready> take();
  void wait();
  size_t num_pending() const;  // asked for and not ready
  GrammarFigures figures() const { return compiler_->figures(); }
  const TokenVocabulary& vocabulary() const { return compiler_->vocabulary(); }

 private:
  struct Shared;
  SchemaOptions::Spaces spaces_;
  std::shared_ptr<Shared> shared_;
  std::vector<std::pair<size_t, std::shared_ptr<GrammarCompiler::Ticket>>> tickets_;  // of what is not taken yet
  std::unique_ptr<GrammarCompiler> compiler_;
};

}  // namespace llmrt::bench
