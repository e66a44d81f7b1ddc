#include "core/request/sequence.h"

#include <algorithm>

#include "core/request/draft_rules.h"
#include "core/request/logit_changes.h"

namespace llmrt {

Sequence::Sequence(Request from, uint32_t branch_idx, std::shared_ptr<const std::vector<int32_t>> shared)
    : request(std::move(from)),
      branch(branch_idx),
      shared_prompt(std::move(shared)),
      tokens(std::move(request.prompt)),
      num_prompt(static_cast<uint32_t>(shared_prompt ? shared_prompt->size() : tokens.size())),
      reads_newest_(reads_newest_token(request)) {
  progress.scored = wants_scores() ? 1 : num_prompt;
  request.prompt.clear();
  tokens.insert(tokens.end(), request.begun.begin(), request.begun.end());
  record.goes_on = !request.begun.empty();
  if (gets_drafts(request)) {
    if (request.speculation->source) drafts.drafter = request.speculation->source->begin(num_prompt);
    drafts.by_model = request.speculation->by_model;
  }
  if (request.constraint) constraint = std::make_unique<BranchConstraint>(*request.constraint, request.begun);
}

void Sequence::move_to(RequestState state) {
  LLMRT_CHECK(is_legal_move(state_, state),
              fmt::format("request {}: {} to {}", request.id, request_state_name(state_), request_state_name(state)));
  state_ = state;
}

void Sequence::take_prompt() {
  if (!shared_prompt) return;
  tokens = *shared_prompt;
  shared_prompt.reset();
}

uint32_t Sequence::same_adapter_until(const Sequence& other) const {
  const Request &a = request, &b = other.request;
  const bool is_same = a.adapter_id == b.adapter_id && a.adapter_start == b.adapter_start;
  if (is_same && a.adapter_scale == b.adapter_scale) return UINT32_MAX;
  const auto start_of = [](const Request& r) { return r.adapter_id == 0 ? UINT32_MAX : r.adapter_start.value_or(0); };
  return std::min(start_of(a), start_of(b));
}

uint32_t Sequence::reusable() const {
  const uint32_t known = num_known() - 1;
  return progress.scored < num_prompt ? std::min(known, progress.scored - 1) : known;
}

uint32_t Sequence::samples_for(uint32_t count) const {
  // The hidden state of position p scores the prompt token at p + 1.
  const uint32_t end = std::min(progress.computed + count + 1, num_prompt);
  const uint32_t begin = std::max(progress.computed + 1, progress.scored);
  const uint32_t forced = end > begin ? end - begin : 0;
  return forced + (draws(count) ? 1 : 0);
}

// Changes that depend on no token differ only before and after min_tokens.
uint32_t Sequence::changes_key() const {
  if (reads_newest_) return static_cast<uint32_t>(tokens.size()) - num_prompt + 1;
  return num_output() < request.min_tokens ? 1 : 2;
}

bool Sequence::changes_are_ready() const {
  if (constraint && !constraint->is_ready()) return false;
  if (request.processors.empty() || changes_key_ == changes_key()) return true;
  return std::ranges::all_of(request.processors,
                             [this](const auto& processor) { return processor->is_ready(tokens, num_prompt); });
}

const std::vector<TokenBias>& Sequence::logit_changes(std::span<const int32_t> end_of_generation) {
  const uint32_t key = changes_key();
  if (changes_key_ == key || !changes_logits(request)) return changes_;
  const uint32_t position = reads_newest_ ? static_cast<uint32_t>(tokens.size()) - num_prompt : num_output();
  find_logit_changes(request, tokens, num_prompt, position, end_of_generation, &changes_);
  changes_key_ = key;
  return changes_;
}

bool Sequence::expects_text_drafts() {
  return (drafts.drafter && drafts.drafter->expects_more(tokens)) || (constraint && constraint->stays_fixed());
}

void Sequence::begin_drafts() {
  drafts.tokens.clear();
  drafts.changes.clear();
  drafts.origin = DraftOrigin::kText;
}

void Sequence::complete_drafts(uint32_t most, std::span<const int32_t> end_of_generation) {
  if (constraint) constraint->follow(std::min(most, draft_room()), &drafts.tokens);
  if (!changes_logits(request)) return;
  const size_t num_known = tokens.size();
  const bool bans_ends = request.min_tokens > 0 && num_output() < request.min_tokens;
  for (size_t i = 0; i < drafts.tokens.size(); ++i) {
    if (!reads_newest_ && !bans_ends) break;
    tokens.push_back(drafts.tokens[i]);
    const bool is_ready = std::ranges::all_of(
        request.processors, [this](const auto& processor) { return processor->is_ready(tokens, num_prompt); });
    if (!is_ready) {
      drafts.tokens.resize(i);
      break;
    }
    find_logit_changes(request, tokens, num_prompt, num_output(), end_of_generation, &drafts.changes.emplace_back());
  }
  tokens.resize(num_known);
}

uint32_t Sequence::count_within(uint32_t count, uint32_t samples_max) const {
  if (progress.scored < num_prompt) {
    const uint32_t unscored_first = progress.scored - 1;  // positions from here need a sample each
    const uint32_t without = unscored_first > progress.computed ? unscored_first - progress.computed : 0;
    count = std::min(count, without + samples_max);
  }
  while (samples_for(count) > samples_max) --count;
  return count;
}

void Sequence::release_memory() {
  tokens = {};
  shared_prompt = {};
  changes_ = {};
  drafts = {};
  request.speculation = {};
  residency.tables = {};
  request.sampling = {};
  request.stop = {};
  request.processors = {};
  request.policy = {};
  request.constraint = {};
  constraint = {};
  request.begun = {};
}

}  // namespace llmrt
