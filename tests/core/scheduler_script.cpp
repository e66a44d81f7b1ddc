#include "scheduler_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "core/schedule/scheduler.h"

namespace llmrt::test {
namespace {

constexpr TimeNs kMs = 1'000'000;

// "key=value" words; a bare word has the value 1.
std::map<std::string, std::string> read_words(std::istringstream& line) {
  std::map<std::string, std::string> words;
  for (std::string word; line >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      words[word] = "1";
    } else {
      words[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  return words;
}

uint32_t number(const std::map<std::string, std::string>& words, const std::string& key, uint32_t otherwise) {
  const auto it = words.find(key);
  return it == words.end() ? otherwise : static_cast<uint32_t>(std::stoul(it->second));
}

// Bans the tokens from 1,000 on, so many. It is not ready while masks are late.
class Bans final : public LogitsProcessor {
 public:
  Bans(uint32_t count, std::shared_ptr<const bool> are_late) : count_(count), are_late_(std::move(are_late)) {}
  std::string_view name() const override { return "bans"; }
  bool is_ready(std::span<const int32_t>, uint32_t) const override { return !*are_late_; }
  void process(std::span<const int32_t>, uint32_t, std::vector<TokenBias>* changes) const override {
    for (uint32_t i = 0; i < count_; ++i) changes->push_back({1000 + static_cast<int32_t>(i), kBan});
  }

 private:
  const uint32_t count_;
  const std::shared_ptr<const bool> are_late_;
};

class Script {
 public:
  void run(const std::string& line);
  std::string transcript;

 private:
  void say(const std::string& text) { transcript += "  " + text + "\n"; }
  void configure(std::istringstream& line);
  void add(std::istringstream& line);
  void plan();
  void tail();
  void print_updates();
  void print_bias();
  void print_copies();
  void commit(std::istringstream& line);
  void print_states();
  void print_events();

  std::unique_ptr<Scheduler> scheduler_;
  std::deque<const IterationPlan*> in_flight_;
  const IterationPlan* last_plan_ = nullptr;
  std::map<RequestId, uint32_t> max_tokens_;
  std::set<RequestId> beams_;
  size_t num_groups_ = 0;
  TimeNs now_ = 0;
  std::shared_ptr<bool> masks_are_late_ = std::make_shared<bool>(false);
};

void Script::configure(std::istringstream& line) {
  const auto words = read_words(line);
  SchedulerConfig config;
  config.kv_pools = {{number(words, "pool", 64), number(words, "block", 4)}};
  if (words.contains("window")) {
    config.kv_pools.push_back(config.kv_pools[0]);
    config.kv_pools.back().window = number(words, "window", 0);
  }
  if (words.contains("states"))
    config.kv_pools.push_back({number(words, "states", 0), config.kv_pools[0].block_tokens, CacheKind::kState});
  config.sequences_max = number(words, "rows", 8);
  config.step_tokens_max = number(words, "step", 64);
  config.sample_rows_max = number(words, "samples", 8);
  config.penalty_rows_max = number(words, "penalties", 1);
  config.chunk_tokens = number(words, "chunk", 64);
  config.reserve_output_tokens = number(words, "reserve", 0);
  config.watermark = number(words, "watermark", 0) / 100.0;
  config.context_max = number(words, "context", 256);
  config.queue_tokens_max = number(words, "queue", 1000);
  config.end_of_generation = {2};
  const auto cache = words.find("cache");
  if (cache != words.end()) {
    config.prefix_cache = cache->second == "radix" ? PrefixCacheKind::kRadix : PrefixCacheKind::kHashed;
  }
  if (words.contains("batching")) config.batching = *parse_batching(words.at("batching"));
  config.batch_wait_ms = number(words, "wait", 0);
  num_groups_ = config.kv_pools.size();
  scheduler_ = std::make_unique<Scheduler>(config);
}

void Script::add(std::istringstream& line) {
  Request request;
  line >> request.id;
  const auto words = read_words(line);
  const uint32_t num_same = number(words, "same", ~0u);
  for (uint32_t i = 0; i < number(words, "prompt", 1); ++i) {
    const uint32_t token = i < num_same ? 10 + i : 10'000 * static_cast<uint32_t>(request.id) + i;
    request.prompt.push_back(static_cast<int32_t>(token));
  }
  if (words.contains("beam")) request.beam = BeamParams{};
  if (words.contains("salt")) request.cache_salt = words.at("salt");
  request.n = number(words, "n", 1);
  request.max_tokens = number(words, "max", 16);
  request.min_tokens = number(words, "min", 0);
  request.deadline_ns = number(words, "deadline", 0) * kMs;
  request.expiry_ns = number(words, "expiry", 0) * kMs;
  request.start_by_ns = number(words, "start_by", 0) * kMs;
  if (words.contains("class")) request.request_class = *parse_request_class(words.at("class"));
  request.arrival_ns = now_;
  request.sampling.prompt_logprobs = words.contains("scores");
  if (words.contains("scores") || words.contains("logprobs")) request.sampling.logprobs = 0;
  if (words.contains("penalty")) request.sampling.presence_penalty = 1;
  request.sampling.no_repeat_ngram_size = number(words, "ngram", 0);
  if (words.contains("bad")) {
    std::istringstream ids(words.at("bad"));
    std::vector<int32_t> word;
    for (std::string id; std::getline(ids, id, ',');) word.push_back(std::stoi(id));
    request.sampling.bad_words.push_back(word);
  }
  if (words.contains("bans")) request.processors = {std::make_shared<Bans>(number(words, "bans", 1), masks_are_late_)};
  if (words.contains("bias")) request.sampling.logit_bias = {{7, 0.5f}};
  request.stop.ignore_eos = words.contains("ignore_eos");
  if (words.contains("stop")) request.stop.token_ids = {static_cast<int32_t>(number(words, "stop", 0))};
  if (Status status = scheduler_->check(request); !status) {
    say(fmt::format("{}: {}", error_code_name(status.error().code), status.error().message));
    return;
  }
  for (uint32_t branch = 0; branch < request.n; ++branch) {
    max_tokens_[request.id + branch] = request.max_tokens;
    if (request.beam) beams_.insert(request.id + branch);
  }
  scheduler_->add(std::move(request), now_);
}

void Script::plan() {
  const IterationPlan* plan = scheduler_->plan(now_);
  if (plan == nullptr) {
    say("nothing");
    return;
  }
  last_plan_ = plan;
  in_flight_.push_back(plan);
  std::string text;
  for (size_t r = 0; r < plan->rows.size(); ++r) {
    const PlanRow& row = plan->rows[r];
    std::string marks;
    const int32_t* tokens = plan->tokens.data() + row.token_first;
    if (std::count(tokens, tokens + row.num_tokens, kLastSampled) > 0) marks += "?";
    int num_forced = 0, num_drawn = 0;
    for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i) {
      ++(plan->samples[i].kind == TailKind::kScore ? num_forced : num_drawn);
    }
    if (num_forced > 0) marks += fmt::format("~{}", num_forced);
    const bool is_late = std::ranges::binary_search(plan->late_rows, r);
    if (num_drawn > 0) marks += is_late ? "^" : "*";
    text += fmt::format("{}{}[{},{}){}", text.empty() ? "" : " ", row.request_id, row.start, row.start + row.num_tokens,
                        marks);
  }
  say(text);
}

void Script::tail() {
  std::set<RequestId> late;
  for (const uint32_t row : last_plan_->late_rows) late.insert(last_plan_->rows[row].request_id);
  scheduler_->plan_tail(*last_plan_);
  std::string text;
  for (const PlanRow& row : last_plan_->rows) {
    const bool is_parked = row.num_samples == 0 && late.contains(row.request_id);
    if (row.num_samples == 0 && !is_parked) continue;
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", row.request_id, is_parked ? " parked" : "*");
  }
  say(text);
}

void Script::print_updates() {
  for (const RowUpdate& update : last_plan_->row_updates) {
    const uint32_t* words = last_plan_->row_payload.data() + update.payload_first;
    const std::string payload = fmt::format("{}", fmt::join(words, words + update.payload_words, ","));
    switch (update.kind) {
      case RowUpdateKind::kSet:
        say(fmt::format("set slot {}: flags {}", update.slot, words[0]));
        break;
      case RowUpdateKind::kPatchTable:
        say(fmt::format("patch slot {} from entry {}: {}", update.slot, update.arg0, payload));
        break;
      case RowUpdateKind::kRecount:
        say(fmt::format("recount {}: {} of the prompt in {}", update.arg0, update.arg1, payload));
        break;
      case RowUpdateKind::kCount:
        say(fmt::format("count {}: {}", update.arg0, payload));
        break;
      case RowUpdateKind::kClear:
        say(fmt::format("clear slot {}", update.slot));
        break;
      case RowUpdateKind::kCopySlot:
        say("copy");
        break;
    }
  }
}

void Script::print_bias() {
  for (const PlanRow& row : last_plan_->rows) {
    std::string text = fmt::format("{}:", row.request_id);
    if (row.num_samples == 0) continue;
    const LogitChanges& changes = last_plan_->samples[row.sample_first + row.num_samples - 1].changes;
    for (uint32_t i = changes.bias_first; i < changes.bias_first + changes.num_bias; ++i) {
      text += fmt::format(" {}{:+}", last_plan_->bias[i].token, last_plan_->bias[i].bias);
    }
    say(text);
  }
}

void Script::print_copies() {
  for (const BlockCopy& copy : last_plan_->block_copies) {
    say(fmt::format("{} tokens of block {} to {}", copy.num_tokens, copy.source, copy.target));
  }
}

void Script::commit(std::istringstream& line) {
  const auto words = read_words(line);
  if (in_flight_.empty()) return;
  const IterationPlan* plan = in_flight_.front();
  in_flight_.pop_front();
  std::vector<Verdict> verdicts(plan->samples.size());
  for (const PlanRow& row : plan->rows) {
    for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i) {
      Verdict& verdict = verdicts[i];
      const PlanSample& sample = plan->samples[i];
      const auto finish = words.find(std::to_string(row.request_id));
      if (finish != words.end() && finish->second == "error") {
        verdict.error = make_error(ErrorCode::kNotFinite, "logits hold nan");
        verdict.finish = FinishReason::kError;
        continue;
      }
      verdict.has_logprob = sample.logprobs;
      if (beams_.contains(row.request_id)) {
        for (int32_t k = 0; k < 4; ++k) verdict.top_logprobs.push_back({50 + k, -1.0f - static_cast<float>(k)});
        continue;
      }
      if (sample.kind == TailKind::kScore) continue;
      verdict.token = static_cast<int32_t>(100 + sample.output_position);
      if (finish != words.end()) {
        verdict.finish = FinishReason::kEos;
      } else if (sample.output_position + 1 == max_tokens_[row.request_id]) {
        verdict.finish = FinishReason::kLength;
      }
    }
  }
  scheduler_->commit(*plan, verdicts, now_);
}

void Script::print_states() {
  std::string text;
  for (const auto& [id, unused] : max_tokens_) {
    const auto state = scheduler_->state_of(id);
    if (state) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", id, request_state_name(*state));
  }
  say(text.empty() ? "none" : text);
}

void Script::print_events() {
  std::vector<TokenEvent> events;
  scheduler_->take_events(&events);
  for (const TokenEvent& event : events) {
    std::string text = fmt::format("{}:", event.request_id);
    if (event.token >= 0) text += fmt::format(" {}{}", event.is_prompt ? "prompt " : "", event.token);
    if (event.has_logprob) text += " logprob";
    if (event.finish != FinishReason::kNone) text += fmt::format(" {}", finish_reason_name(event.finish));
    if (event.cached_tokens > 0 && event.finish != FinishReason::kNone)
      text += fmt::format(", {} cached", event.cached_tokens);
    if (event.error) text += fmt::format(" ({}: {})", error_code_name(event.error->code), event.error->message);
    say(text);
  }
}

void Script::run(const std::string& text) {
  transcript += text + "\n";
  std::istringstream line(text);
  std::string command;
  line >> command;
  RequestId id = 0;
  if (command == "config") {
    configure(line);
  } else if (command == "add") {
    add(line);
  } else if (command == "plan") {
    plan();
  } else if (command == "tail") {
    tail();
  } else if (command == "updates") {
    print_updates();
  } else if (command == "bias") {
    print_bias();
  } else if (command == "copies") {
    print_copies();
  } else if (command == "commit") {
    commit(line);
  } else if (command == "cancel" && line >> id) {
    scheduler_->cancel(id, now_);
  } else if (command == "leave" && line >> id) {
    scheduler_->cancel(id, now_, {}, FinishReason::kDisconnected);
  } else if ((command == "pause" || command == "go") && line >> id) {
    scheduler_->set_paused(id, command == "pause");
  } else if (command == "drained" && line >> id) {
    scheduler_->drained(id);
  } else if (command == "fail") {
    scheduler_->fail_all(make_error(ErrorCode::kDeviceLost, "gone"), now_);
    in_flight_.clear();
  } else if (command == "time") {
    TimeNs ms = 0;
    line >> ms;
    now_ = ms * kMs;
  } else if (command == "masks") {
    std::string word;
    line >> word;
    *masks_are_late_ = word == "late";
  } else if (command == "states") {
    print_states();
  } else if (command == "preemptions") {
    std::vector<Preemption> preemptions;
    scheduler_->take_preemptions(&preemptions);
    for (const Preemption& event : preemptions)
      say(fmt::format("{} for {}: {} tokens, {} blocks, time {}", event.request_id, event.wanted_by,
                      event.computed_tokens, event.num_blocks, event.times));
  } else if (command == "free") {
    std::vector<uint32_t> free;
    while (free.size() < num_groups_) free.push_back(scheduler_->num_free_blocks(static_cast<uint32_t>(free.size())));
    say(fmt::format("{}", fmt::join(free, " ")));
  } else if (command == "cached") {
    const EngineStats& stats = scheduler_->stats();
    say(fmt::format("{} of {} prompt tokens, {} of {} free blocks", stats.prefix_hits, stats.prefix_queries,
                    stats.blocks_cached, stats.blocks_free));
  } else if (command == "queue") {
    say(fmt::format("{} tokens", scheduler_->queue_tokens()));
  } else {
    FAIL("no such command: " << text);
  }
  print_events();
  const Status books = scheduler_->check_books();
  if (!books) say(books.error().message);
}

}  // namespace

std::string run_script(const std::string& text) {
  Script script;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] != ' ') script.run(line);
  }
  return script.transcript;
}

std::string plans(int count) {
  std::string script;
  for (int i = 0; i < count; ++i) script += "plan\ncommit\n";
  return script;
}

void check_script(const std::string& script) {
  const std::string transcript = run_script(script);
  INFO("what came of it:\n" << transcript);
  const bool as_expected = transcript == script;
  CHECK(as_expected);
}

}  // namespace llmrt::test
