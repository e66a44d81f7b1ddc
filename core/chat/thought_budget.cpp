#include "core/chat/thought_budget.h"

#include <utility>

#include "core/chat/answer_parser.h"
#include "core/text/tokenizer.h"

namespace llmrt {
namespace {

struct ForcedToken {
  int32_t token;
  TokenMaskPtr mask;  // this token alone
};

TokenMaskPtr mask_of_one(int32_t token) {
  std::vector<uint32_t> bits(static_cast<size_t>(token) / 32 + 1, 0);
  allow_token(&bits, token);
  return std::make_shared<const TokenMask>(std::move(bits));
}

// A mark as tokens: those of the format by their ids, text between them as the tokenizer writes it.
Result<std::vector<ForcedToken>> forced_tokens(const ResolvedFormat& format, const Tokenizer& tokenizer,
                                               std::string_view mark) {
  std::vector<ForcedToken> forced;
  std::string text;
  bool is_spelled = true;
  const auto end_text = [&] {
    std::string spelled;
    for (const TokenId token : tokenizer.encode(text, {.parse_special = false, .add_bos = false})) {
      spelled += tokenizer.token_bytes(token);
      forced.push_back({token, mask_of_one(token)});
    }
    is_spelled &= spelled.ends_with(text);  // a space may stand before it
    text.clear();
  };
  for (const Unit unit : format.units(mark)) {
    if (is_byte(unit)) {
      text += static_cast<char>(unit);
      continue;
    }
    end_text();
    forced.push_back({format.token(unit).id, mask_of_one(format.token(unit).id)});
  }
  end_text();
  if (!is_spelled) {
    return make_error(ErrorCode::kUnsupported, "the vocabulary cannot spell the end of a thought, {}", mark);
  }
  return forced;
}

class BudgetConstraint final : public TokenConstraint, public std::enable_shared_from_this<BudgetConstraint> {
 public:
  BudgetConstraint(ThoughtBudget budget, std::shared_ptr<const TokenConstraint> inner,
                   std::shared_ptr<const ResolvedFormat> format, std::shared_ptr<const Tokenizer> tokenizer)
      : budget_(std::move(budget)),
        inner_(std::move(inner)),
        format_(std::move(format)),
        tokenizer_(std::move(tokenizer)) {}

  Status prepare() {
    const HeaderMarks& header = format_->format->header;
    const bool has_headers = header.used();
    const std::string end = has_headers ? header.end + header.start + "assistant" : format_->format->thought.close;
    auto first = forced_tokens(*format_, *tokenizer_, end);
    if (!first) return first.error();
    end_ = *std::move(first);
    // A model that opens one thought after the other is led to what comes behind them.
    const std::string rest = budget_.must_call ? "commentary to=" : "final" + header.message;
    auto again = forced_tokens(*format_, *tokenizer_, has_headers ? end + header.channel + rest : end);
    if (!again) return again.error();
    later_end_ = *std::move(again);
    return {};
  }

  std::unique_ptr<ConstraintMatcher> start() const override;
  size_t held_bytes() const override {
    size_t bytes = sizeof(*this) + (inner_ ? inner_->held_bytes() : 0);
    for (const auto* forced : {&end_, &later_end_}) {
      for (const ForcedToken& one : *forced) bytes += sizeof(one) + one.mask->held_bytes();
    }
    return bytes;
  }
  bool forks_fast() const override { return false; }  // a fork reads all tokens again
  bool decides_end() const override { return inner_ && inner_->decides_end(); }
  std::span<const ConstraintNote> notes() const override {
    return inner_ ? inner_->notes() : std::span<const ConstraintNote>();
  }

 private:
  friend class BudgetMatcher;
  const ThoughtBudget budget_;
  const std::shared_ptr<const TokenConstraint> inner_;  // may be null
  const std::shared_ptr<const ResolvedFormat> format_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<ForcedToken> end_, later_end_;
};

class BudgetMatcher final : public ConstraintMatcher {
 public:
  BudgetMatcher(std::shared_ptr<const BudgetConstraint> owner, std::unique_ptr<ConstraintMatcher> inner)
      : owner_(std::move(owner)), inner_(std::move(inner)), parser_(*owner_->format_, options()) {
    look();
  }

  std::unique_ptr<ConstraintMatcher> fork() const override {
    auto copy = std::make_unique<BudgetMatcher>(owner_, inner_ ? inner_->fork() : nullptr);
    for (const int32_t token : tokens_) copy->read(token);
    copy->forced_ = forced_;
    copy->num_forced_ = num_forced_;
    copy->num_closed_ = num_closed_;
    copy->gave_up_ = gave_up_;
    return copy;
  }

  bool advance(int32_t token) override {
    if (token < 0 || token >= owner_->tokenizer_->vocab_size()) return false;
    if (forced_ && token != (*forced_)[num_forced_].token) return false;
    if (inner_ && !inner_->advance(token)) return false;
    read(token);
    if (forced_ && ++num_forced_ == forced_->size()) {
      forced_ = nullptr;
      ++num_closed_;
      gave_up_ |= parser_.has_open_thought();  // its end was not read as one: to write it again would not help
    }
    if (!forced_) look();
    return true;
  }

  NextTokens next() override {
    NextTokens next;
    if (inner_) next = inner_->next();
    if (!forced_ || next.state != NextTokens::State::kReady) return next;
    const ForcedToken& forced = (*forced_)[num_forced_];
    if (next.mask && !next.mask->allows(forced.token)) {
      forced_ = nullptr;
      gave_up_ = true;
      return next;
    }
    return {.mask = forced.mask};
  }

  void wait(std::chrono::microseconds most) override {
    if (inner_) inner_->wait(most);
  }
  bool accepts() const override { return !forced_ && (!inner_ || inner_->accepts()); }
  bool ended() const override { return !forced_ && inner_ && inner_->ended(); }

 private:
  AnswerOptions options() const {
    AnswerOptions options{.tools = {}, .start = owner_->budget_.start, .reads_calls = owner_->budget_.reads_calls};
    for (const std::string& name : owner_->budget_.tools) options.tools.push_back({.name = name});
    return options;
  }
  void read(int32_t token) {
    const std::string_view shown = owner_->tokenizer_->token_bytes(token);
    const std::string_view spelled = owner_->tokenizer_->token_bytes(token, /*special=*/true);
    parser_.feed(token, spelled, shown.empty() && !spelled.empty());
    tokens_.push_back(token);
  }
  // Whether the thought must end here.
  void look() {
    const bool is_out = parser_.has_open_thought() && parser_.num_thought_tokens() >= owner_->budget_.tokens_max;
    if (!is_out || gave_up_) return;
    forced_ = num_closed_ == 0 ? &owner_->end_ : &owner_->later_end_;
    num_forced_ = 0;
  }

  std::shared_ptr<const BudgetConstraint> owner_;
  std::unique_ptr<ConstraintMatcher> inner_;  // may be null
  AnswerParser parser_;
  std::vector<int32_t> tokens_;                       // read so far: a parser cannot be copied
  const std::vector<ForcedToken>* forced_ = nullptr;  // what must be drawn now; null: nothing certain
  size_t num_forced_ = 0;                             // of them, already drawn
  uint32_t num_closed_ = 0;                           // thoughts that were ended so
  bool gave_up_ = false;
};

std::unique_ptr<ConstraintMatcher> BudgetConstraint::start() const {
  return std::make_unique<BudgetMatcher>(shared_from_this(), inner_ ? inner_->start() : nullptr);
}

}  // namespace

Result<std::shared_ptr<const TokenConstraint>> limit_thoughts(const ThoughtBudget& budget,
                                                              std::shared_ptr<const TokenConstraint> inner,
                                                              std::shared_ptr<const ResolvedFormat> format,
                                                              std::shared_ptr<const Tokenizer> tokenizer) {
  if (!format->format->has_thoughts()) {
    return make_error(ErrorCode::kUnsupported, "this model's chat format ({}) has no thoughts", format->format->name);
  }
  auto constraint =
      std::make_shared<BudgetConstraint>(budget, std::move(inner), std::move(format), std::move(tokenizer));
  if (Status ready = constraint->prepare(); !ready) return ready.error();
  return std::shared_ptr<const TokenConstraint>(std::move(constraint));
}

}  // namespace llmrt
