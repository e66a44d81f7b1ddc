#include "core/engine/draft_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/base/checked_math.h"
#include "core/engine/pool_sizing.h"
#include "core/model/decoder.h"
#include "core/text/vocabulary_digest.h"

namespace llmrt {
namespace {

constexpr uint32_t kReadTokens = 1024;  // of a step: what the rows that decode wait for while a long prompt is read
constexpr uint64_t kCallsKept = 16;     // a place that was not asked for in so many calls may be taken from its branch

std::string tokens_text(const Model& model) {
  if (!model.vocabulary) return fmt::format("{} tokens without a tokenizer", model.config.vocab_size);
  return fmt::format("{} tokens, {}", model.vocabulary->tokens.size(),
                     to_hex(vocabulary_digest(*model.vocabulary)).substr(0, 12));
}

bool same_tokens(const Model& target, const Model& draft) {
  if (target.vocabulary && draft.vocabulary)
    return vocabulary_digest(*target.vocabulary) == vocabulary_digest(*draft.vocabulary);
  return !target.vocabulary && !draft.vocabulary && target.config.vocab_size == draft.config.vocab_size;
}

Status check_pair(const Model& target, const Model& draft) {
  if (draft.draft_input) {
    if (&draft != target.draft_head.get())
      return make_error(ErrorCode::kInvalidArgument, "draft model: expected the model's own layer, found {}",
                        draft.path);
  } else if (!same_tokens(target, draft)) {
    return make_error(ErrorCode::kInvalidArgument, "draft model: expected the model's tokens ({}), found others ({})",
                      tokens_text(target), tokens_text(draft));
  }
  const auto is_state = [](const CacheGroup& group) { return group.state_columns > 0; };
  if (std::ranges::any_of(cache_groups(draft.config.layers), is_state))
    return make_error(ErrorCode::kUnsupported, "a draft model: expected one without recurrent layers, found {}",
                      draft.config.architecture);
  return {};
}

EngineConfig config_of(const EngineConfig& engine, const Model& draft, const Caps& caps) {
  EngineConfig config;
  config.context_max = std::min(engine.context_max, draft.config.context_max);
  config.sequences_max = engine.sequences_max;
  config.step_tokens_max = std::min({engine.step_tokens_max, caps.step_tokens_max, kReadTokens});
  config.sample_rows_max = std::min(engine.sequences_max, config.step_tokens_max);
  config.penalty_rows_max = 1;  // none is used
  config.kv_tokens = engine.kv_tokens;
  config.block_tokens = engine.block_tokens;
  config.kv_dtype = check_kv_dtype(engine.kv_dtype, draft, caps) ? engine.kv_dtype : KvDType::kF16;
  config.keeps_windows = true;  // one table serves all groups
  config.f16_copies_share = 0;
  return config;
}

}  // namespace

// A branch's hold of a place; without one it begins anew.
class DraftModel::Handle final : public DraftPlace {
 public:
  Handle(DraftModel* model, const Digest& its_identity) : identity(its_identity), model_(model) {}
  ~Handle() override {
    if (slot) model_->places_[*slot].holder = nullptr;
  }

  const Digest identity;
  std::optional<uint32_t> slot;
  HiddenRows hidden;         // where reads_hidden()
  uint32_t text_begin = 0;   // in the branch's tokens
  bool is_hopeless = false;  // the draft model's numbers for its text are not finite, or it cannot read the text

 private:
  DraftModel* const model_;
};

Result<std::unique_ptr<DraftModel>> DraftModel::load(const EngineConfig& config, const Model& target, DraftParts parts,
                                                     const Clock* clock, const Progress& progress) {
  if (Status status = check_pair(target, *parts.model); !status) return status.error();
  const EngineConfig own = config_of(config, *parts.model, parts.backend->caps());
  Result<WarmModel> warm = warm_up_beside(own, parts.model, parts.backend.get(), progress);
  if (!warm) return make_error(warm.error().code, "draft model: {}", warm.error().message);
  const uint32_t vocab_size = std::min(target.config.vocab_size, parts.model->config.vocab_size);
  return std::unique_ptr<DraftModel>(
      new DraftModel(*std::move(warm), std::move(parts.model), std::move(parts.backend), clock, vocab_size));
}

DraftModel::DraftModel(WarmModel warm, std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
                       const Clock* clock, uint32_t vocab_size)
    : model_(std::move(model)),
      backend_(std::move(backend)),
      clock_(clock),
      vocab_size_(static_cast<int32_t>(vocab_size)),
      config_(std::move(warm.config)),
      shapes_(model_->config, config_),
      lowering_(std::move(warm.lowering)),
      memory_{.fixed_bytes = warm.fixed_bytes,
              .block_bytes = shapes_.bytes_block(),
              .reads_hidden = model_->draft_input.has_value()},
      places_(config_.sequences_max),
      pass_ms_(std::bit_width(config_.sequences_max)) {}

Status DraftModel::create_pool(uint32_t num_blocks) {
  num_blocks_ = static_cast<uint32_t>(std::min<uint64_t>(num_blocks, shapes_.blocks_by_range(backend_->caps())));
  if (Status status = backend_->create_kv_pools(shapes_.groups(num_blocks_, 0)); !status)
    return make_error(status.error().code, "draft model: {}", status.error().message);
  free_blocks_.clear();
  for (uint32_t block = num_blocks_; block > 0; --block) free_blocks_.push_back(block - 1);
  return {};
}

// ---- places --------------------------------------------------------------------------------------------------------

std::unique_ptr<DraftPlace> DraftModel::begin(const Digest& identity) {
  return std::make_unique<Handle>(this, reads_hidden() ? Digest() : identity);
}

void DraftModel::put_hidden(DraftPlace* place, uint32_t position, std::span<const float> hidden) {
  static_cast<Handle&>(*place).hidden.put(position, hidden);
}

// Others may take it.
bool DraftModel::is_idle(const Place& place) const {
  return place.used_in != call_ && (place.holder == nullptr || place.used_in + kCallsKept < call_);
}

void DraftModel::cut(Place& place, uint32_t num_tokens) {
  place.tokens.resize(num_tokens);
  place.num_agreed = std::min(place.num_agreed, num_tokens);
  const size_t num_blocks = ceil_div(num_tokens, config_.block_tokens);
  for (; place.blocks.size() > num_blocks; place.blocks.pop_back()) free_blocks_.push_back(place.blocks.back());
  place.num_sent = std::min(place.num_sent, static_cast<uint32_t>(place.blocks.size()));
}

// The idle place that is best given up: one that no branch holds before one that does, then the oldest.
DraftModel::Place* DraftModel::oldest_idle(bool has_blocks) {
  Place* oldest = nullptr;
  const auto age = [](const Place& place) { return std::pair(place.holder != nullptr, place.used_in); };
  for (Place& place : places_)
    if (is_idle(place) && (!has_blocks || !place.blocks.empty()) && (oldest == nullptr || age(place) < age(*oldest)))
      oldest = &place;
  return oldest;
}

// What another branch of the same identity left is of use as far as whole blocks of it are the row's.
DraftModel::Place* DraftModel::place_to_begin(const Digest& identity, std::span<const int32_t> tokens) {
  Place *best = nullptr, *unused = nullptr;
  uint32_t most = 0;
  for (Place& place : places_) {
    if (!is_idle(place) || place.holder != nullptr) continue;
    if (place.tokens.empty() && unused == nullptr) unused = &place;
    if (place.identity != identity || identity == Digest()) continue;
    const auto common = static_cast<uint32_t>(std::ranges::mismatch(place.tokens, tokens).in1 - place.tokens.begin());
    if (common / config_.block_tokens <= most) continue;
    most = common / config_.block_tokens;
    best = &place;
  }
  if (best == nullptr) best = unused ? unused : oldest_idle(/*has_blocks=*/false);
  if (best == nullptr) return nullptr;
  if (best->holder) best->holder->slot.reset();
  cut(*best, most * config_.block_tokens);
  best->identity = identity;
  best->num_agreed = 0;
  best->is_set = false;
  return best;
}

std::span<const int32_t> DraftModel::text_of(const Row& row) const {
  return row.tokens.subspan(static_cast<Handle&>(*row.place).text_begin);
}

// Where the state in front of the next token that a place lacks is not there, its text begins with the first one in
// front of which one is. Whether all are there to its end.
bool DraftModel::begin_text(const Row& row, Place& place) const {
  Handle& handle = static_cast<Handle&>(*row.place);
  const uint32_t next = handle.text_begin + static_cast<uint32_t>(place.tokens.size());
  const auto size = static_cast<uint32_t>(row.tokens.size());
  if (next == 0 || next - 1 < handle.hidden.begin()) {
    place.tokens.clear();
    place.num_agreed = 0;
    handle.text_begin = handle.hidden.begin() + 1;
  }
  return handle.text_begin < size && handle.hidden.end() + 1 >= size;
}

// As much of its place as is the row's text, but for the last token, which must be computed.
DraftModel::Place* DraftModel::find_place(const Row& row) {
  Handle& handle = static_cast<Handle&>(*row.place);
  if (handle.is_hopeless) return nullptr;
  Place* place = handle.slot ? &places_[*handle.slot] : place_to_begin(handle.identity, row.tokens);
  if (place == nullptr) return nullptr;
  place->holder = &handle;
  place->used_in = call_;
  handle.slot = static_cast<uint32_t>(place - places_.data());
  if (reads_hidden() && !begin_text(row, *place)) return nullptr;
  const std::span<const int32_t> text = text_of(row);
  const size_t most = std::min(place->tokens.size(), text.size() - 1);
  while (place->num_agreed < most && place->tokens[place->num_agreed] == text[place->num_agreed]) ++place->num_agreed;
  place->num_agreed = std::min(place->num_agreed, static_cast<uint32_t>(most));
  place->tokens.resize(place->num_agreed);
  return place;
}

bool DraftModel::grow(Place& place, uint32_t positions) {
  const size_t wanted = ceil_div(positions, config_.block_tokens);
  while (place.blocks.size() < wanted) {
    if (free_blocks_.empty()) {
      Place* const other = oldest_idle(/*has_blocks=*/true);
      if (other == nullptr) return false;
      cut(*other, 0);
    }
    place.blocks.push_back(free_blocks_.back());
    free_blocks_.pop_back();
  }
  return true;
}

Status DraftModel::check() const {
  std::vector<bool> is_used(num_blocks_);
  size_t num_used = 0;
  const auto use = [&](uint32_t block) {
    if (block >= num_blocks_ || is_used[block]) return false;
    is_used[block] = true;
    ++num_used;
    return true;
  };
  bool is_right = std::ranges::all_of(free_blocks_, use);
  for (const Place& place : places_) is_right &= std::ranges::all_of(place.blocks, use);
  if (is_right && num_used == num_blocks_) return {};
  return make_error(ErrorCode::kInternal, "draft model: {} of {} blocks are in one place", num_used, num_blocks_);
}

// ---- a call --------------------------------------------------------------------------------------------------------

// Rows that are read but for their last step's tokens draft first; the others share what is left.
void DraftModel::find_work(std::span<Row> rows) {
  work_.clear();
  for (Row& row : rows) {
    if (row.tokens.size() > config_.context_max) continue;
    Place* const place = find_place(row);
    if (place == nullptr) continue;
    const auto start = static_cast<uint32_t>(place->tokens.size());
    const std::span<const int32_t> text = text_of(row), unread = text.subspan(start);
    const auto is_known = [this](int32_t token) { return token >= 0 && token < vocab_size_; };
    if (!std::ranges::all_of(unread, is_known)) {
      place->holder->is_hopeless = true;
      continue;
    }
    const auto most = std::min(row.most, config_.context_max - static_cast<uint32_t>(row.tokens.size()) + 1);
    work_.push_back({&row, place, text, start, static_cast<uint32_t>(unread.size()), most});
  }
  std::stable_partition(work_.begin(), work_.end(), [](const Work& work) { return work.is_near(); });
  uint32_t tokens_left = config_.step_tokens_max, samples_left = config_.sample_rows_max;
  const auto has_room = [&](Work& work) {
    const bool is_whole = work.count <= tokens_left && samples_left > 0;
    if (!is_whole) {
      work.count = std::min(work.count - 1, tokens_left);
      work.most = 0;
    }
    if (work.count == 0 || !grow(*work.place, work.start + work.count + (is_whole ? work.most - 1 : 0))) return false;
    tokens_left -= work.count;
    samples_left -= is_whole ? 1 : 0;
    return true;
  };
  auto kept = work_.begin();
  for (Work& work : work_)
    if (has_room(work)) *kept++ = work;
  work_.erase(kept, work_.end());
}

void DraftModel::add_row(const Work& work, uint32_t start, std::span<const int32_t> tokens, uint32_t output_position) {
  const auto slot = static_cast<uint32_t>(work.place - places_.data()), count = static_cast<uint32_t>(tokens.size());
  plan_.rows.push_back({.request_id = slot + 1u,
                        .slot = slot,
                        .start = start,
                        .num_tokens = count,
                        .token_first = static_cast<uint32_t>(plan_.tokens.size()),
                        .sample_first = static_cast<uint32_t>(plan_.samples.size()),
                        .num_samples = work.most > 0 ? 1u : 0u,
                        .adapter_slot = 0,
                        .batch_invariant = false});
  plan_.tokens.insert(plan_.tokens.end(), tokens.begin(), tokens.end());
  if (work.most > 0) plan_.samples.push_back({.token_offset = count - 1, .output_position = output_position});
}

void DraftModel::add_updates(const Work& work) {
  const auto slot = static_cast<uint32_t>(work.place - places_.data());
  const auto append = [&](RowUpdateKind kind, uint32_t arg0, uint32_t arg1, const void* words, size_t count) {
    const size_t first = plan_.row_payload.size();
    plan_.row_updates.push_back({kind, slot, arg0, arg1, static_cast<uint32_t>(first), static_cast<uint32_t>(count)});
    plan_.row_payload.resize(first + count);
    std::memcpy(plan_.row_payload.data() + first, words, count * sizeof(uint32_t));
  };
  Place& place = *work.place;
  if (!place.is_set) append(RowUpdateKind::kSet, 0, 0, &work.row->sampling, sizeof(RowSampling) / sizeof(uint32_t));
  place.is_set = true;
  const size_t count = place.blocks.size() - place.num_sent;
  for (uint32_t group = 0; group < shapes_.size() && count > 0; ++group)
    append(RowUpdateKind::kPatchTable, place.num_sent, group, place.blocks.data() + place.num_sent, count);
  place.num_sent = static_cast<uint32_t>(place.blocks.size());
}

void DraftModel::plan_first() {
  plan_.clear();
  hidden_in_.clear();
  for (const Work& work : work_) {
    add_updates(work);
    const auto tokens = work.text.subspan(work.start, work.count);
    add_row(work, work.start, tokens, work.row->output_position);
    if (reads_hidden()) {
      Handle& handle = *work.place->holder;
      const uint32_t begin = handle.text_begin + work.start - 1;  // the state in front of the first token
      for (uint32_t i = 0; i < work.count; ++i) {
        const std::span<const float> hidden = handle.hidden.at(begin + i);
        hidden_in_.insert(hidden_in_.end(), hidden.begin(), hidden.end());
      }
      handle.hidden.drop_before(begin + work.count);
    }
    work.place->tokens.insert(work.place->tokens.end(), tokens.begin(), tokens.end());
    work.place->num_agreed = work.start + work.count;
  }
}

// The last drafts are read, for one more each.
void DraftModel::plan_next(uint32_t num_drafts) {
  plan_.clear();
  hidden_in_.clear();
  const size_t width = model_->config.width;
  for (const Work& work : work_) {
    const int32_t draft = work.row->drafts->back();
    const auto read = static_cast<uint32_t>(work.place->tokens.size());
    add_row(work, reads_hidden() ? read + num_drafts - 1 : read, {&draft, 1}, work.row->output_position + num_drafts);
    if (!reads_hidden()) {
      work.place->tokens.push_back(draft);
      continue;
    }
    const auto hidden = std::span(hidden_out_).subspan(work.result_idx * width, width);
    hidden_in_.insert(hidden_in_.end(), hidden.begin(), hidden.end());
  }
}

// Milliseconds. Those of making a list's code or recording, which its first step waits for, say nothing of the next.
Result<double> DraftModel::run_step() {
  lowering_->lower(plan_, &step_);
  for (const SealedList* list : {step_.forward, step_.sample})
    if (Status status = list ? backend_->prepare(*list) : Status(); !status) return status.error();
  const TimeNs begin_ns = clock_->now_ns();
  if (reads_hidden()) {
    const TensorId hidden = draft_hidden(step_.forward->list);
    hidden_in_.resize(step_.forward->list.bytes_of(hidden) / sizeof(float));
    if (Status status = backend_->write_tensor(*step_.forward, hidden, std::as_bytes(std::span(hidden_in_))); !status)
      return status.error();
  }
  Result<Ticket> ticket = backend_->submit(step_.submission());
  if (!ticket) return ticket.error();
  Result<StepOutput> output = backend_->wait(*ticket);
  if (!output) return output.error();
  results_ = std::move(output->results);
  if (reads_hidden() && step_.sample)
    if (Status status = read_final_hidden(*step_.sample, backend_.get(), &hidden_out_); !status) return status.error();
  return std::max(ms_between(begin_ns, clock_->now_ns()), output->forward_ms + output->sample_ms);
}

// Rows that have as many as they may, or no more that are any good, are left out of what follows.
void DraftModel::take_drafts(uint32_t num_drafts) {
  size_t next = 0;
  std::erase_if(work_, [&](Work& work) {
    if (work.most == 0) return true;
    work.result_idx = static_cast<uint32_t>(next);
    const SampleResult& result = results_[next++];
    if (result.flags != 0) {
      work.place->holder->is_hopeless = true;
    } else if (result.token >= 0 && result.token < vocab_size_) {
      work.row->drafts->push_back(result.token);
      return num_drafts + 1 >= work.most;
    }
    return true;
  });
}

ModelDrafter::Took DraftModel::propose(std::span<Row> rows) {
  Took took;
  if (failure_) return took;
  ++call_;
  find_work(rows);
  for (uint32_t num_drafts = 0; !work_.empty(); ++num_drafts) {
    uint64_t num_tokens = 0, num_near = 0;
    for (const Work& work : work_) {
      const uint32_t count = num_drafts == 0 ? work.count : 1;
      num_tokens += count;
      num_near += work.is_near() ? count : 0;
    }
    num_drafts == 0 ? plan_first() : plan_next(num_drafts);
    const Result<double> ms = run_step();
    if (!ms) {
      failure_ = make_error(ms.error().code, "draft model: {}", ms.error().message);
      return took;
    }
    const double share = num_drafts > 0 ? 1 : static_cast<double>(num_near) / static_cast<double>(num_tokens);
    took.draft_ms += share * *ms;
    took.read_ms += (1 - share) * *ms;
    if (share == 1) note_pass(work_.size(), *ms);
    take_drafts(num_drafts);
  }
  return took;
}

// Less than before is believed at once, a hiccup bit by bit.
void DraftModel::note_pass(size_t num_rows, double ms) {
  double& known = pass_ms_[std::bit_width(num_rows) - 1];
  known = known == 0 ? ms : known + (ms < known ? 0.5 : 0.1) * (std::min(ms, 2 * known) - known);
}

double DraftModel::pass_ms(size_t num_rows) const {
  return pass_ms_[std::min(static_cast<size_t>(std::bit_width(num_rows)), pass_ms_.size()) - 1];
}

}  // namespace llmrt
