#include "core/grammar/compiled_grammar.h"

#include <utility>

#include "core/platform/thread_clock.h"

namespace llmrt {

class GrammarMatcher final : public ConstraintMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar)
      : grammar_(std::move(grammar)), state_(grammar_->states_.start()) {
    read_state();
  }

  std::unique_ptr<ConstraintMatcher> fork() const override { return std::make_unique<GrammarMatcher>(*this); }

  bool advance(int32_t token) override {
    const TokenVocabulary& vocabulary = *grammar_->vocabulary_;
    if (token < 0 || static_cast<uint32_t>(token) >= vocabulary.num_tokens() || is_over_) return false;
    if (error_) return true;
    const std::lock_guard lock(grammar_->mutex_);
    ParseStates& states = grammar_->states_;
    const bool is_named = states.network().named_tokens.contains(token);
    ParseStates::StateId next = ParseStates::kDead;
    if (is_named) {
      next = states.after_token(state_, token);
    } else if (!vocabulary.bytes(token).empty()) {
      next = states.after(state_, vocabulary.bytes(token));
    }
    if (next == ParseStates::kDead && vocabulary.is_end(token) && accepts_) {
      is_over_ = true;
      return true;
    }
    if (states.failed() || grammar_->held_bytes() > CompiledGrammar::kBytesMax) {
      error_ = make_error(ErrorCode::kGrammarTooComplex, "the grammar's states: expected at most {} MiB of them",
                          CompiledGrammar::kBytesMax >> 20);
      return true;
    }
    if (next == ParseStates::kDead) return false;
    state_ = next;
    read_state();
    return true;
  }

  NextTokens next() override {
    if (error_) return {.state = NextTokens::State::kFailed, .error = error_};
    std::unique_lock lock(grammar_->mutex_);
    auto& made = grammar_->masks_[state_];
    if (!made.is_done() && !made.is_asked) {
      made.is_asked = true;
      lock.unlock();
      if (const auto workers = grammar_->workers_.lock()) {
        // The work keeps the grammar alive, for the case that its last request has gone.
        workers->post([grammar = grammar_, state = state_] { grammar->make_mask(state); });
      } else {
        grammar_->make_mask(state_);
      }
      lock.lock();
    } else if (made.is_done()) {
      grammar_->figures_->num_found.fetch_add(1, std::memory_order_relaxed);
    }
    const auto& now = grammar_->masks_[state_];
    if (now.error) return {.state = NextTokens::State::kFailed, .error = now.error};
    if (!now.mask) return {.state = NextTokens::State::kLate};
    return {.mask = now.mask};
  }

  void wait(std::chrono::microseconds most) override {
    if (error_) return;
    std::unique_lock lock(grammar_->mutex_);
    grammar_->made_one_.wait_for(lock, most, [this] { return grammar_->masks_[state_].is_done(); });
  }

  bool accepts() const override { return is_over_ || accepts_; }
  bool ended() const override { return is_over_ || (accepts_ && is_last_); }

 private:
  // With the mutex locked.
  void read_state() {
    accepts_ = grammar_->states_.accepts(state_);
    is_last_ = grammar_->states_.is_last(state_);
  }

  std::shared_ptr<const CompiledGrammar> grammar_;
  ParseStates::StateId state_;
  bool accepts_ = false, is_last_ = false;  // of the state
  bool is_over_ = false;                    // an end token was taken
  std::optional<Error> error_;
};

Result<std::shared_ptr<CompiledGrammar>> CompiledGrammar::create(GrammarBuilder* builder,
                                                                 std::shared_ptr<const TokenVocabulary> vocabulary,
                                                                 std::shared_ptr<MaskWorkers> workers,
                                                                 std::shared_ptr<MaskFigures> figures) {
  Result<Network> network = make_network(builder);
  if (!network.ok()) return network.error();
  if (!figures) figures = std::make_shared<MaskFigures>();
  std::shared_ptr<CompiledGrammar> grammar(new CompiledGrammar(std::move(*network), std::move(builder->regexes()),
                                                               builder->notes(), std::move(vocabulary),
                                                               std::move(workers), std::move(figures)));
  if (grammar->states_.failed()) {
    return make_error(ErrorCode::kGrammarTooComplex, "the grammar's first state: expected less to be open at once");
  }
  return grammar;
}

CompiledGrammar::CompiledGrammar(Network network, RegexPool regexes, std::vector<ConstraintNote> notes,
                                 std::shared_ptr<const TokenVocabulary> vocabulary,
                                 std::shared_ptr<MaskWorkers> workers, std::shared_ptr<MaskFigures> figures)
    : vocabulary_(std::move(vocabulary)),
      workers_(std::move(workers)),
      figures_(std::move(figures)),
      notes_(std::move(notes)),
      network_bytes_(network.held_bytes()),
      states_(std::make_shared<const Network>(std::move(network)), std::move(regexes)),
      maker_(vocabulary_.get(), &states_),
      reach_(vocabulary_->trie().depth_max()) {
  count_bytes();
}

std::unique_ptr<ConstraintMatcher> CompiledGrammar::start() const {
  const std::lock_guard lock(mutex_);
  return std::make_unique<GrammarMatcher>(shared_from_this());
}

size_t CompiledGrammar::held_bytes() const {
  return held_bytes_.load(std::memory_order_relaxed);
}

void CompiledGrammar::count_bytes() const {
  held_bytes_.store(sizeof(*this) + network_bytes_ + states_.held_bytes() + reach_.held_bytes() + mask_bytes_,
                    std::memory_order_relaxed);
}

void CompiledGrammar::make_mask(StateId state) const {
  const double begin_ms = thread_cpu_ms();
  const std::lock_guard lock(mutex_);
  Result<TokenMaskPtr> mask = find_mask(state);
  Made& made = masks_[state];
  if (mask.ok()) {
    made.mask = std::move(*mask);
    mask_bytes_ += sizeof(Made);
  } else {
    made.error = mask.error();
  }
  count_bytes();
  figures_->num_made.fetch_add(1, std::memory_order_relaxed);
  figures_->cpu_us.fetch_add(static_cast<uint64_t>(1e3 * (thread_cpu_ms() - begin_ms)), std::memory_order_relaxed);
  made_one_.notify_all();
}

// Made once for all states that differ only beyond the longest token.
Result<TokenMaskPtr> CompiledGrammar::find_mask(StateId state) const {
  const StateId near = states_.within(&reach_, state);
  if (near != ParseStates::kDead && masks_[near].mask) return masks_[near].mask;
  Result<TokenMaskPtr> mask =
      maker_.make(near == ParseStates::kDead ? state : near, kMaskCpuMsMax, [this] { mutex_.let_others(); });
  if (mask.ok()) mask_bytes_ += (*mask)->held_bytes();
  if (mask.ok() && near != state && near != ParseStates::kDead) {
    masks_[near] = {.mask = *mask};
    mask_bytes_ += sizeof(Made);
  }
  return mask;
}

Status CompiledGrammar::prepare() const {
  const StateId first = states_.start();
  {
    const std::lock_guard lock(mutex_);
    Made& made = masks_[first];
    if (made.is_done() || made.is_asked) return {};
    made.is_asked = true;
  }
  make_mask(first);
  const std::lock_guard lock(mutex_);
  if (const auto& error = masks_[first].error) return *error;
  return {};
}

}  // namespace llmrt
