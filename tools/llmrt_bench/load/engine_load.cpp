#include "tools/llmrt_bench/load/engine_load.h"

#include <algorithm>

namespace llmrt::bench {
namespace {

class EngineLoad {
 public:
  EngineLoad(Engine* engine, const Clock& clock, const std::vector<EngineItem>& items, const EngineLoadOptions& options,
             const OnOutcome& on_outcome)
      : clock_(clock),
        items_(items),
        options_(options),
        on_outcome_(on_outcome),
        drive_(engine, &clock, RequestErrors::kKeep),
        begin_ns_(clock.now_ns()),
        outcomes_(items.size()) {}

  Result<std::vector<Outcome>> run(const std::function<void(TimeNs)>& wait_until) {
    const Arrivals arrivals = [this](TimeNs now) {
      take_ended();
      return submit_due(now);
    };
    const auto is_over = [this] {
      take_ended();
      return num_over_ == items_.size();
    };
    Result<bool> ended = drive_.until(is_over, kNever, arrivals, wait_until);
    if (!ended) return ended.error();
    if (Status status = drive_.finish(); !status) return status.error();
    return std::move(outcomes_);
  }

 private:
  // Engines have a thread of their own in a server: here grammars are taken between ticks, and where the engine has
  // nothing to do they are waited for.
  Result<TimeNs> submit_due(TimeNs now) {
    take_grammars();
    const Result<TimeNs> next_ns = submit_arrived(now);
    if (!next_ns || num_compiling_ == 0 || !open_.empty()) return next_ns;
    options_.grammars->wait();
    return clock_.now_ns();
  }

  struct Open {
    size_t item;
    std::shared_ptr<const Answer> answer;
  };

  Result<TimeNs> submit_arrived(TimeNs now) {
    for (; next_ < items_.size(); ++next_) {
      const bool is_closed = options_.concurrency > 0;
      if (is_closed && open_.size() + num_compiling_ >= options_.concurrency) return kNever;
      const TimeNs due_ns =
          is_closed ? now : begin_ns_ + static_cast<TimeNs>(items_[next_].arrival_s.value_or(0) * 1e9);
      if (due_ns > now) return due_ns;
      begin(next_, due_ns);
    }
    return num_over_ == items_.size() ? now : kNever;
  }

  void begin(size_t i, TimeNs due_ns) {
    Outcome& outcome = outcomes_[i];
    outcome.due_ns = due_ns;
    outcome.sent_ns = clock_.now_ns();
    outcome.asked_tokens = items_[i].output_tokens;
    outcome.prompt_tokens = static_cast<uint32_t>(items_[i].prompt.size());
    outcome.is_structured = !items_[i].schema.is_null();
    if (!outcome.is_structured) return submit(i, nullptr);
    ++num_compiling_;
    options_.grammars->ask(i, items_[i].schema);
  }

  void take_grammars() {
    if (num_compiling_ == 0) return;
    for (GrammarSupply::Ready& ready : options_.grammars->take()) {
      --num_compiling_;
      if (ready.constraint.ok()) {
        submit(ready.id, *std::move(ready.constraint));
      } else {
        fail(&outcomes_[ready.id], Failure::kRefused, ready.constraint.error());
        end(&outcomes_[ready.id], clock_.now_ns());
      }
    }
  }

  void submit(size_t i, std::shared_ptr<const TokenConstraint> constraint) {
    Outcome& outcome = outcomes_[i];
    Request request;
    request.prompt = items_[i].prompt;
    request.sampling = options_.sampling;
    request.sampling.seed = i;
    request.stop.ignore_eos = !constraint;
    request.constraint = std::move(constraint);
    request.max_tokens = items_[i].output_tokens;
    request.request_class = options_.request_class;
    request.arrival_ns = outcome.due_ns;
    if (const uint32_t adapter = items_[i].adapter; adapter > 0) {
      request.adapter = options_.adapters[adapter - 1].image;
      request.adapter_id = options_.adapters[adapter - 1].id;
      request.adapter_digest = options_.adapters[adapter - 1].digest;
    }
    Result<std::shared_ptr<const Answer>> answer = drive_.submit(std::move(request));
    if (answer) {
      open_.push_back({i, *std::move(answer)});
      return;
    }
    fail(&outcome, Failure::kRefused, answer.error());
    end(&outcome, outcome.sent_ns);
  }

  void take_ended() {
    std::erase_if(open_, [this](const Open& open) {
      const Answer& answer = *open.answer;
      if (!answer.finished) return false;
      Outcome& outcome = outcomes_[open.item];
      outcome.times_ns = answer.times_ns;
      outcome.output_tokens = static_cast<uint32_t>(answer.times_ns.size());
      outcome.is_counted_by_server = true;
      outcome.finish_reason = finish_reason_name(answer.finish);
      for (size_t i = 0; outcome.is_structured && i < answer.tokens.size(); ++i)
        outcome.answer.content += options_.grammars->vocabulary().bytes(answer.tokens[i]);
      if (answer.error) {
        const bool is_refused = answer.error->code == ErrorCode::kOverloaded && answer.times_ns.empty();
        fail(&outcome, is_refused ? Failure::kRefused : Failure::kEngine, *answer.error);
      }
      end(&outcome, outcome.failure || answer.times_ns.empty() ? clock_.now_ns() : answer.times_ns.back());
      return true;
    });
    on_outcome_(nullptr);
  }

  static void fail(Outcome* outcome, Failure failure, const Error& error) {
    outcome->fail(failure, fmt::format("{}: {}", error_code_name(error.code), error.message));
  }

  void end(Outcome* outcome, TimeNs end_ns) {
    outcome->end_ns = end_ns;
    ++num_over_;
    on_outcome_(outcome);
  }

  const Clock& clock_;
  const std::vector<EngineItem>& items_;
  const EngineLoadOptions& options_;
  const OnOutcome& on_outcome_;
  Drive drive_;
  TimeNs begin_ns_;
  std::vector<Outcome> outcomes_;
  std::vector<Open> open_;
  size_t next_ = 0, num_over_ = 0, num_compiling_ = 0;
};

}  // namespace

Result<std::vector<EngineItem>> tokenize(const std::vector<LoadItem>& items, const Tokenizer* tokenizer,
                                         uint32_t vocab_size) {
  Draws draws(1);
  std::vector<EngineItem> out;
  for (const LoadItem& item : items) {
    if (!tokenizer && item.prompt_tokens == 0)
      return make_error(ErrorCode::kInvalidArgument,
                        "request {}: expected prompt_tokens, as the model has no vocabulary to read its prompt with",
                        out.size() + 1);
    out.push_back({item.arrival_s,
                   tokenizer ? tokenizer->encode(item.prompt) : draws.tokens(item.prompt_tokens, vocab_size),
                   item.output_tokens, item.adapter, item.schema});
  }
  return out;
}

Result<std::vector<Outcome>> run_on_engine(Engine* engine, const Clock& clock,
                                           const std::function<void(TimeNs)>& wait_until,
                                           const std::vector<EngineItem>& items, const EngineLoadOptions& options,
                                           const OnOutcome& on_outcome) {
  return EngineLoad(engine, clock, items, options, on_outcome).run(wait_until);
}

}  // namespace llmrt::bench
