// A grammar over a vocabulary, ready for use: its states, and the masks of those that were asked for. Shared by all
// requests that ask for the same; grows as it is used. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "core/grammar/grammar_builder.h"
#include "core/grammar/mask_maker.h"
#include "core/grammar/mask_workers.h"
#include "core/grammar/parse_states.h"
#include "core/grammar/regex_reach.h"
#include "core/grammar/text_position.h"
#include "core/grammar/token_vocabulary.h"
#include "core/grammar/yielding_mutex.h"
#include "core/request/token_constraint.h"

namespace llmrt {

struct MaskFigures {
  std::atomic<uint64_t> num_made = 0, num_found = 0;  // made by a walk; found because another row had been there
  std::atomic<uint64_t> cpu_us = 0;                   // of the walks
};

class CompiledGrammar final : public TokenConstraint, public std::enable_shared_from_this<CompiledGrammar> {
 public:
  static constexpr double kMaskCpuMsMax = 50;
  static constexpr size_t kBytesMax = 64u << 20;  // of states and masks: beyond, rows that need more end with an error
  static constexpr size_t kBytesWorn = 32u << 20;

  // Takes the builder's expressions. workers: null = the caller of next() makes masks (tools and
  // tests).
  static Result<std::shared_ptr<CompiledGrammar>> create(GrammarBuilder* builder,
                                                         std::shared_ptr<const TokenVocabulary> vocabulary,
                                                         std::shared_ptr<MaskWorkers> workers,
                                                         std::shared_ptr<MaskFigures> figures = nullptr);

  std::unique_ptr<ConstraintMatcher> start() const override;
  size_t held_bytes() const override;
  std::span<const ConstraintNote> notes() const override { return notes_; }
  // It has grown so much that the next request is better served by a new one.
  bool is_worn() const { return held_bytes() > kBytesWorn; }
  // Makes the first mask, by this thread.
  Status prepare() const;

 private:
  friend class GrammarMatcher;
  using StateId = ParseStates::StateId;
  struct Made {
    bool is_asked = false;
    TokenMaskPtr mask = nullptr;
    // Tokens that end or begin an item or a key that must differ; null in a grammar without marks.
    std::shared_ptr<const std::vector<int32_t>> crossing = nullptr;
    std::optional<Error> error = {};
    bool is_done() const { return mask || error; }
  };

  CompiledGrammar(Network network, RegexPool regexes, std::vector<ConstraintNote> notes,
                  std::shared_ptr<const TokenVocabulary> vocabulary, std::shared_ptr<MaskWorkers> workers,
                  std::shared_ptr<MaskFigures> figures);
  void make_mask(StateId state) const;
  Made find_mask(StateId state) const;  // under the mutex
  void count_bytes() const;             // under the mutex

  std::shared_ptr<const TokenVocabulary> vocabulary_;
  std::weak_ptr<MaskWorkers> workers_;  // a worker may drop the last grammar: it must not own its thread
  std::shared_ptr<MaskFigures> figures_;
  const std::vector<ConstraintNote> notes_;
  size_t network_bytes_;

  mutable YieldingMutex mutex_;
  mutable std::condition_variable_any made_one_;
  mutable ParseStates states_;
  mutable MaskMaker maker_;
  mutable RegexReach reach_;  // of the longest token
  mutable std::unordered_map<StateId, Made> masks_;
  mutable size_t mask_bytes_ = 0;
  mutable std::atomic<size_t> held_bytes_ = 0;
};

}  // namespace llmrt
