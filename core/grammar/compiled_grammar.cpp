#include "core/grammar/compiled_grammar.h"

#include <algorithm>
#include <utility>

#include "core/platform/thread_clock.h"

namespace llmrt {

class GrammarMatcher final : public ConstraintMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar)
      : grammar_(std::move(grammar)), has_marks_(grammar_->states_.network().has_marks), position_(grammar_->states_) {
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
    TextPosition next = position_;
    const std::string_view bytes = vocabulary.bytes(token);
    const bool goes_on = is_named ? next.step_token(&states, token)
                                  : !bytes.empty() && next.step(&states, bytes) && next.is_live(&states);
    if (!goes_on && vocabulary.is_end(token) && accepts_) {
      is_over_ = true;
      return true;
    }
    if (states.failed() || grammar_->held_bytes() > CompiledGrammar::kBytesMax) {
      error_ = make_error(ErrorCode::kGrammarTooComplex, "the grammar's states: expected at most {} MiB of them",
                          CompiledGrammar::kBytesMax >> 20);
      return true;
    }
    if (next.failed()) {
      error_ = make_error(ErrorCode::kGrammarTooComplex,
                          "items and keys that must differ: expected at most {} KiB of one, {} MiB of all, depth {}",
                          JsonTracker::kOpenBytesMax >> 10, JsonTracker::kSeenBytesMax >> 20, JsonTracker::kDepthMax);
      return true;
    }
    if (!goes_on) return false;
    position_ = std::move(next);
    mask_ = nullptr;
    read_state();
    return true;
  }

  NextTokens next() override {
    if (error_) return {.state = NextTokens::State::kFailed, .error = error_};
    if (mask_) return {.mask = mask_};
    const ParseStates::StateId state = position_.state();
    std::unique_lock lock(grammar_->mutex_);
    auto& made = grammar_->masks_[state];
    if (!made.is_done() && !made.is_asked) {
      made.is_asked = true;
      lock.unlock();
      if (const auto workers = grammar_->workers_.lock()) {
        // The work keeps the grammar alive, for the case that its last request has gone.
        workers->post([grammar = grammar_, state] { grammar->make_mask(state); });
      } else {
        grammar_->make_mask(state);
      }
      lock.lock();
    } else if (made.is_done()) {
      grammar_->figures_->num_found.fetch_add(1, std::memory_order_relaxed);
    }
    const auto& now = grammar_->masks_[state];
    if (now.error) return {.state = NextTokens::State::kFailed, .error = now.error};
    if (!now.mask) return {.state = NextTokens::State::kLate};
    if (!has_marks_) return {.mask = now.mask};
    mask_ = position_.narrow(&grammar_->states_, *grammar_->vocabulary_, now.mask, *now.crossing);
    if (mask_->num_allowed() == 0) {
      error_ = make_error(ErrorCode::kEmptySupport, "no token of the vocabulary can make an item or key that is new");
      return {.state = NextTokens::State::kFailed, .error = error_};
    }
    return {.mask = mask_};
  }

  void wait(std::chrono::microseconds most) override {
    if (error_) return;
    std::unique_lock lock(grammar_->mutex_);
    grammar_->made_one_.wait_for(lock, most, [this] { return grammar_->masks_[position_.state()].is_done(); });
  }

  int32_t fixed_token(const TokenMask& mask) const override {
    if (mask.num_allowed() == 1) return mask.first();
    if (mask.list().empty() || mask.num_allowed() > kFixedMax) return -1;
    const auto bytes_of = [this](uint32_t token) { return grammar_->vocabulary_->bytes(static_cast<int32_t>(token)); };
    const uint32_t longest = *std::ranges::max_element(
        mask.list(), [&](uint32_t a, uint32_t b) { return bytes_of(a).size() < bytes_of(b).size(); });
    const auto& named = grammar_->states_.network().named_tokens;
    const bool is_fixed = std::ranges::all_of(mask.list(), [&](uint32_t token) {
      return !bytes_of(token).empty() && !named.contains(static_cast<int32_t>(token)) &&
             bytes_of(longest).starts_with(bytes_of(token));
    });
    return is_fixed ? static_cast<int32_t>(longest) : -1;
  }
  bool accepts() const override { return is_over_ || accepts_; }
  bool ended() const override { return is_over_ || (accepts_ && is_last_); }

 private:
  static constexpr uint32_t kFixedMax = 32;  // tokens of a mask that is looked at

  // With the mutex locked.
  void read_state() {
    accepts_ = grammar_->states_.accepts(position_.state());
    is_last_ = grammar_->states_.is_last(position_.state());
  }

  std::shared_ptr<const CompiledGrammar> grammar_;
  bool has_marks_;
  TextPosition position_;
  TokenMaskPtr mask_;                       // of the position, where marks matter and it was asked for
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
  Made found = find_mask(state);
  found.is_asked = true;
  masks_[state] = std::move(found);
  mask_bytes_ += sizeof(Made);
  count_bytes();
  figures_->num_made.fetch_add(1, std::memory_order_relaxed);
  figures_->cpu_us.fetch_add(static_cast<uint64_t>(1e3 * (thread_cpu_ms() - begin_ms)), std::memory_order_relaxed);
  made_one_.notify_all();
}

// Made once for all states that differ only beyond the longest token.
CompiledGrammar::Made CompiledGrammar::find_mask(StateId state) const {
  const StateId near = states_.within(&reach_, state);
  if (near != ParseStates::kDead && masks_[near].mask) return masks_[near];
  const StateId asked = near == ParseStates::kDead ? state : near;
  const auto let_others = [this] { mutex_.let_others(); };
  Result<TokenMaskPtr> mask = maker_.make(asked, kMaskCpuMsMax, let_others);
  if (!mask.ok()) return {.error = mask.error()};
  Made made{.mask = *mask};
  mask_bytes_ += made.mask->held_bytes();
  if (states_.network().has_marks) {
    std::vector<int32_t> crossing;
    for (const TokenTrie* trie : maker_.tried_tokens(asked))
      add_crossing(*trie, &states_, asked, let_others, &crossing);
    mask_bytes_ += crossing.size() * sizeof(int32_t);
    made.crossing = std::make_shared<const std::vector<int32_t>>(std::move(crossing));
  }
  if (asked != state) {
    masks_[near] = made;
    mask_bytes_ += sizeof(Made);
  }
  return made;
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
