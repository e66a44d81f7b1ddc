#include "tests/fakes/fake_backend.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <utility>

#include "core/ops/recurrent_ops.h"
#include "tests/fakes/sample_mask.h"

namespace llmrt::test {
namespace {

template <typename... Args>
Error refuse(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kInvalidArgument, "fake backend: {}", fmt::format(format, std::forward<Args>(args)...));
}

LogprobRow best_logprobs(uint64_t hidden) {
  std::vector<LogprobRow::Entry> all;
  for (int32_t token = 0; token < static_cast<int32_t>(kFakeVocab); ++token)
    all.push_back({token, fake_logprob(hidden, token)});
  std::ranges::stable_sort(all, std::greater(), &LogprobRow::Entry::logprob);
  LogprobRow row;
  std::copy_n(all.begin(), kLogprobsMax, row.entries);
  return row;
}

Error no_door() {
  return make_error(ErrorCode::kUnsupported, "fake backend: it has neither tensors nor KV bytes");
}

}  // namespace

FakeBackend::FakeBackend(FakeBackendConfig config) : config_(config) {
  caps_.device_id = "fake:0";
  caps_.device_name = "hashes";
  caps_.memory_bytes = caps_.memory_free_bytes = 1ull << 32;
  caps_.range_bytes_max = 1ull << 32;
  caps_.kv_dtypes = {KvDType::kF16};
  caps_.batch_invariant = config.batch_invariant;
}

Status FakeBackend::load_weights(const WeightTable&, const Progress&) {
  return {};
}

Status FakeBackend::create_state(const StateConfig& config) {
  state_ = config;
  slots_.assign(config.slots_max, {});
  for (Slot& slot : slots_)
    for (uint32_t g = 0; g < config.num_kv_groups; ++g) slot.tables[g].assign(config.blocks_row_max, ~0u);
  counts_.assign(config.penalty_rows_max, {});
  return {};
}

Status FakeBackend::create_kv_pools(std::span<const KvGroup> groups) {
  if (groups.size() != state_.num_kv_groups)
    return refuse("expected {} KV groups, found {}", state_.num_kv_groups, groups.size());
  pools_.clear();
  for (const KvGroup& group : groups) {
    if (group.is_state() != config_.groups.at(pools_.size()).is_state)
      return refuse("group {}: blocks where the model has states, or states for blocks", pools_.size());
    Pool& pool = pools_.emplace_back();
    pool.block_tokens = group.block_tokens;
    pool.num_blocks = group.num_blocks;
    pool.block_cells = group.is_state() ? 1 : group.block_tokens;
    pool.cells.resize((size_t{group.num_blocks} + group.num_host_blocks) * pool.block_cells);
  }
  return {};
}

Status FakeBackend::prepare(const SealedList&) {
  return {};
}

Result<Ticket> FakeBackend::submit(const StepSubmission& step) {
  ++num_submitted_;
  if (config_.lost_at_submit != 0 && num_submitted_ >= config_.lost_at_submit) {
    return make_error(ErrorCode::kDeviceLost, "fake backend: lost at submission {}", num_submitted_);
  }
  if (finished_.size() >= kInFlightMax) return refuse("{} submissions are in flight already", finished_.size());
  Result<ForwardInputs> forward = ForwardInputs{};  // a tail alone has none
  if (step.memory != nullptr || step.forward != nullptr) forward = unpack_forward(step.forward_inputs);
  if (!forward) return forward.error();
  if (Status status = check_sizes(step, *forward); !status) return status.error();
  if (Status status = move_blocks(step, *forward); !status) return status.error();
  if (step.forward != nullptr)
    if (Status status = run_forward(*forward); !status) return status.error();
  StepOutput output;
  if (step.memory != nullptr)
    output.memory_ms =
        0.02 + config_.move_ms * static_cast<double>(forward->block_stores.size() + forward->block_loads.size());
  if (step.forward != nullptr) {
    output.forward_ms = config_.step_ms + config_.token_ms * static_cast<double>(forward->tokens.size());
    for (const StepToken& token : tokens_) output.forward_ms += config_.key_ms * (token.position + 1);
    has_tail_ = false;
    if (config_.tokens_read) *config_.tokens_read += tokens_.size();
  }
  if (step.sample != nullptr) {
    if (std::exchange(has_tail_, true)) return refuse("a second tail of one forward part");
    Result<SampleInputs> sample = unpack_sample(step.sample_inputs);
    if (!sample) return sample.error();
    if (sample->records.size() != step.num_sampled) return refuse("num_sampled is not the number of records");
    if (Status status = run_sample(*sample, step.want_logprobs, &output); !status) return status.error();
  }
  finished_.emplace_back(num_submitted_, std::move(output));
  return num_submitted_;
}

Result<StepOutput> FakeBackend::wait(Ticket ticket) {
  if (config_.lost_at_submit != 0 && num_submitted_ >= config_.lost_at_submit) {
    return make_error(ErrorCode::kDeviceLost, "fake backend: lost at submission {}", num_submitted_);
  }
  if (finished_.empty() || finished_.front().first != ticket) return refuse("ticket {} is not the next", ticket);
  StepOutput output = std::move(finished_.front().second);
  finished_.pop_front();
  return output;
}

Result<std::vector<double>> FakeBackend::profile(const StepSubmission&) {
  return make_error(ErrorCode::kUnsupported, "fake backend: it has no ops to time");
}

MemoryReport FakeBackend::memory() const {
  MemoryReport report;
  report.total_bytes = report.free_bytes = caps_.memory_bytes;
  return report;
}

Status FakeBackend::check_sizes(const StepSubmission& step, const ForwardInputs& forward) const {
  if (step.forward_inputs.size() > state_.forward_words_max) return refuse("more forward words than announced");
  if (step.sample_inputs.size() > state_.sample_words_max) return refuse("more sample words than announced");
  if (forward.tokens.size() > std::min(state_.step_tokens_max, step.forward ? step.forward->list.num_tokens : 0)) {
    return refuse("{} tokens do not fit the list", forward.tokens.size());
  }
  if (step.num_sampled > state_.sample_rows_max) return refuse("{} sampled rows are too many", step.num_sampled);
  if (step.sample != nullptr && step.num_sampled > step.sample->list.num_sampled) {
    return refuse("{} sampled rows do not fit the list", step.num_sampled);
  }
  for (const AttentionWork& work : forward.attention)
    if (work.num_partials > state_.partials_max) return refuse("{} partials are too many", work.num_partials);
  return {};
}

Status FakeBackend::update_rows(const ForwardInputs& in) {
  for (const RowUpdate& update : in.row_updates) {
    if (update.slot >= slots_.size()) return refuse("slot {} of {}", update.slot, slots_.size());
    Slot& slot = slots_[update.slot];
    const uint32_t* words = in.row_payload.data() + update.payload_first;
    switch (update.kind) {
      case RowUpdateKind::kSet:
        std::memcpy(static_cast<void*>(&slot.sampling), words, sizeof(slot.sampling));
        slot.last_token = -1;
        break;
      case RowUpdateKind::kPatchTable:
        if (update.arg1 >= state_.num_kv_groups) return refuse("a table of group {}", update.arg1);
        if (uint64_t{update.arg0} + update.payload_words > state_.blocks_row_max) return refuse("table entry too far");
        std::copy_n(words, update.payload_words, slot.tables[update.arg1].begin() + update.arg0);
        break;
      case RowUpdateKind::kCopySlot:
        slot = slots_[update.arg0];
        break;
      case RowUpdateKind::kRecount: {
        if (update.arg0 >= counts_.size()) return refuse("penalty slot {} of {}", update.arg0, counts_.size());
        FakeCounts counts;
        for (uint32_t i = 0; i < update.payload_words; ++i) {
          const int32_t token = static_cast<int32_t>(words[i]);
          i < update.arg1 ? counts.add_prompt(token) : counts.add_output(token);
        }
        counts_[update.arg0] = counts;
        break;
      }
      case RowUpdateKind::kCount:
        if (update.arg0 >= counts_.size()) return refuse("penalty slot {} of {}", update.arg0, counts_.size());
        for (uint32_t i = 0; i < update.payload_words; ++i)
          counts_[update.arg0].add_output(static_cast<int32_t>(words[i]));
        break;
      case RowUpdateKind::kClear:
        slot.sampling = {};
        slot.last_token = -1;
        for (std::vector<uint32_t>& table : slot.tables) std::ranges::fill(table, ~0u);
        break;
    }
  }
  return {};
}

Result<FakeBackend::Cell*> FakeBackend::block_at(uint32_t group, bool on_host, uint32_t block) {
  if (group >= pools_.size()) return refuse("a move in group {} of {}", group, pools_.size());
  Pool& pool = pools_[group];
  const size_t num_all = pool.cells.size() / pool.block_cells;
  if (block >= (on_host ? num_all - pool.num_blocks : pool.num_blocks))
    return refuse("no {} block {} in group {}", on_host ? "host" : "device", block, group);
  return &pool.cells[(on_host ? size_t{pool.num_blocks} + block : block) * pool.block_cells];
}

// Stores, then loads, then copies.
Status FakeBackend::move_blocks(const StepSubmission& step, const ForwardInputs& in) {
  const bool any = !in.block_stores.empty() || !in.block_loads.empty() || !in.block_copies.empty();
  if (any != (step.memory != nullptr)) return refuse("a memory list where there is nothing to move, or none");
  for (const bool is_load : {false, true}) {
    std::set<std::pair<uint32_t, uint32_t>> targets;  // group, block
    for (const BlockCopy& move : is_load ? in.block_loads : in.block_stores) {
      const Result<Cell*> source = block_at(move.kv_group, is_load, move.source);
      const Result<Cell*> target = block_at(move.kv_group, !is_load, move.target);
      if (!source) return source.error();
      if (!target) return target.error();
      const uint32_t block_tokens = pools_[move.kv_group].block_tokens;
      if (move.num_tokens != block_tokens) return refuse("a move of {} tokens", move.num_tokens);
      if (!targets.emplace(move.kv_group, move.target).second) return refuse("block {} is moved to twice", move.target);
      for (uint32_t i = 0; i < pools_[move.kv_group].block_cells; ++i) (*target)[i].take((*source)[i]);
    }
  }
  return copy_blocks(in);
}

Status FakeBackend::copy_blocks(const ForwardInputs& in) {
  std::set<std::pair<uint32_t, uint32_t>> sources, targets;  // group, block
  for (const BlockCopy& copy : in.block_copies) {
    const Result<Cell*> source = block_at(copy.kv_group, false, copy.source);
    const Result<Cell*> target = block_at(copy.kv_group, false, copy.target);
    if (!source) return source.error();
    if (!target) return target.error();
    if (copy.num_tokens == 0 || copy.num_tokens > pools_[copy.kv_group].block_tokens)
      return refuse("a copy of {} tokens", copy.num_tokens);
    const uint32_t count = std::min(copy.num_tokens, pools_[copy.kv_group].block_cells);
    for (uint32_t i = 0; i < count; ++i) (*target)[i].take((*source)[i]);
    sources.emplace(copy.kv_group, copy.source);
    if (!targets.emplace(copy.kv_group, copy.target).second) return refuse("block {} is copied to twice", copy.target);
  }
  for (const auto& target : targets)
    if (sources.contains(target)) return refuse("block {} is copied to and from in one step", target.second);
  return {};
}

Result<FakeBackend::Cell*> FakeBackend::cell_at(uint32_t group, uint32_t slot, uint32_t position) {
  Pool& pool = pools_[group];
  const uint32_t entry = position / pool.block_tokens;
  if (slot >= slots_.size() || entry >= state_.blocks_row_max) return refuse("position {} is too far", position);
  const uint32_t block = slots_[slot].tables[group][entry];
  if (block >= pool.num_blocks)
    return refuse("slot {} has no block of group {} for position {}", slot, group, position);
  return &pool.cells[size_t{block} * pool.block_tokens + position % pool.block_tokens];
}

Status FakeBackend::prepare_rows(const ForwardInputs& in) {
  tokens_.clear();
  for (uint32_t t = 0; t < in.tokens.size(); ++t) {
    const RowRecord& row = in.rows[in.token_rows[t]];
    if (t < row.token_first || t >= row.token_first + row.num_tokens) return refuse("token {} is not its row's", t);
    const uint32_t position = row.start + (t - row.token_first);
    const int32_t token = in.tokens[t] == kLastSampled ? slots_[row.slot].last_token : in.tokens[t];
    const uint32_t adapter_id = t - row.token_first >= row.adapter_first ? row.adapter_id : 0;
    tokens_.push_back({token, position, adapter_id + config_.model, {}});
    for (uint32_t g = 0; g < pools_.size(); ++g) {
      if (config_.groups[g].is_state) continue;
      Result<Cell*> cell = cell_at(g, row.slot, position);
      if (!cell) return cell.error();
      tokens_.back().cells[g] = *cell;
    }
  }
  return {};
}

Result<uint64_t> FakeBackend::attend_token(const AttentionItem& item, uint32_t i, uint32_t group,
                                           uint64_t FakeCell::*layer, const Attended& before) {
  uint64_t sum = before.sum;
  const uint32_t end = std::min(item.key_end, item.position_first + i + 1);  // causal
  const uint32_t window = config_.groups[group].window, position = item.position_first + i;
  const uint32_t visible = window > 0 && position >= window ? position + 1 - window : 0;
  // Blocks behind the window of the item's first token may be others' already.
  if (i == 0 && item.key_begin < visible)
    return refuse("an attention item reads key {}, behind its window", item.key_begin);
  const uint32_t block_tokens = pools_[group].block_tokens;
  for (uint32_t key = std::max({item.key_begin, visible, before.end}); key < end;) {
    const Result<Cell*> found = cell_at(group, item.slot, key);
    if (!found) return found.error();
    const Cell* cell = *found;  // and those behind it in its block
    const uint32_t block_end = std::min(end, key / block_tokens * block_tokens + block_tokens);
    for (; key < block_end; ++key, ++cell) sum += read_cell(cell->stored.*layer);
  }
  return sum;
}

Result<std::vector<uint64_t>> FakeBackend::attend(const ForwardInputs& in, uint32_t group, uint64_t FakeCell::*layer) {
  const AttentionWork& work = in.attention[group];
  std::vector<uint64_t> out(in.tokens.size()), partials(work.num_partials);
  for (const auto* items : {&work.decode_items, &work.prompt_items}) {
    for (const AttentionItem& item : *items) {
      if (item.token_first + item.num_tokens > out.size()) return refuse("attention item beyond the tokens");
      const size_t stride = items == &work.prompt_items ? item.partial_stride
                            : item.partial < 0          ? 0
                                                        : work.merge_items.at(item.merge_idx).num_partials;
      Attended before;
      for (uint32_t i = 0; i < item.num_tokens; ++i) {
        const Result<uint64_t> sum = attend_token(item, i, group, layer, before);
        if (!sum) return sum.error();
        // Without a window a token reads what the one before it has, and more.
        if (config_.groups[group].window == 0)
          before = {*sum, std::max(before.end, std::min(item.key_end, item.position_first + i + 1))};
        if (item.partial < 0) {
          out[item.token_first + i] = *sum;
        } else {
          partials.at(static_cast<size_t>(item.partial) + i * stride) = *sum;
        }
      }
    }
  }
  for (const MergeItem& merge : work.merge_items) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < merge.num_partials; ++i) sum += partials[merge.partial_first + i];
    out[merge.token] = sum;
  }
  return out;
}

Status FakeBackend::run_forward(const ForwardInputs& in) {
  if (Status status = update_rows(in); !status) return status;
  if (Status status = check_places(in); !status) return status;
  if (Status status = prepare_rows(in); !status) return status;
  hidden_.assign(tokens_.size(), 0);
  for (uint32_t g = 0; g < pools_.size(); ++g)
    if (Status status = config_.groups[g].is_state ? run_states(in, g) : run_layers(in, g); !status) return status;
  return {};
}

// Places are those of the rows in their order, and lie where rows pass, at multiples of what the group says.
Status FakeBackend::check_places(const ForwardInputs& in) const {
  uint32_t next = 0;
  for (const RowRecord& row : in.rows) {
    if (row.num_places > 0 && row.places_first != next)
      return refuse("places of a row from {}, expected {}", row.places_first, next);
    uint32_t last = row.start;
    for (; row.num_places > 0 && next < row.places_first + row.num_places; ++next) {
      if (next >= in.state_places.size()) return refuse("{} places, a row has more", in.state_places.size());
      const StatePlace& place = in.state_places[next];
      if (place.kv_group >= pools_.size() || !config_.groups[place.kv_group].is_state)
        return refuse("a place in group {}, which has no states", place.kv_group);
      if (place.position < last || place.position == 0 || place.position > row.start + row.num_tokens)
        return refuse("a place at position {} of a row from {}", place.position, row.start);
      if (place.position > row.start && place.position % pools_[place.kv_group].block_tokens != 0)
        return refuse("a place at position {}", place.position);
      last = place.position;
    }
  }
  return next == in.state_places.size() ? Status{} : refuse("{} places, {} of rows", in.state_places.size(), next);
}

// All rows read before one writes: in a step no record is both.
Status FakeBackend::run_states(const ForwardInputs& in, uint32_t group) {
  Pool& pool = pools_[group];
  for (const RowRecord& row : in.rows)
    for (uint32_t i = row.places_first; i < row.places_first + row.num_places; ++i) {
      const StatePlace& place = in.state_places[i];
      if (place.kv_group != group || place.position != row.start) continue;
      if (place.record >= pool.num_blocks) return refuse("record {} of {}", place.record, pool.num_blocks);
      pool.cells[place.record].read_in = num_submitted_;
    }
  for (const RowRecord& row : in.rows)
    if (Status status = run_row_states(in, row, group); !status) return status;
  return {};
}

Result<FakeBackend::Cell*> FakeBackend::record_to_write(uint32_t group, uint32_t record) {
  Pool& pool = pools_[group];
  if (record >= pool.num_blocks) return refuse("record {} of {} in group {}", record, pool.num_blocks, group);
  Cell& cell = pool.cells[record];
  if (cell.written_in == num_submitted_) return refuse("record {} is written twice in a step", record);
  if (cell.read_in == num_submitted_) return refuse("record {} is read and written in a step", record);
  cell.written_in = num_submitted_;
  return &cell;
}

std::optional<uint64_t> FakeBackend::Cell::state_behind(uint32_t tokens) const {
  if (tokens == num_tokens) return stored.layer0;
  if (tokens > num_tokens || num_tokens - tokens > back.size()) return std::nullopt;
  return back[num_tokens - tokens - 1];
}

// As devices do (core/ops/recurrent_ops.h): the row may go back behind its first token, not behind a multiple of
// kRingTokens. `states`: behind each of the row's tokens, the first of which stands at `start`.
void FakeBackend::leave_state(Cell& record, std::span<const uint64_t> states, uint32_t start) {
  record.num_tokens = start + static_cast<uint32_t>(states.size());
  record.stored.layer0 = states.back();
  record.back.clear();
  for (uint32_t i = 1; i < states.size() && i <= kStateBackTokens; ++i) {
    if ((record.num_tokens - i) / kRingTokens != record.num_tokens / kRingTokens) break;
    record.back.push_back(states[states.size() - 1 - i]);
  }
}

// The row's tokens in their order, from the state that its record holds, or the one that it reads in its place. What is
// read is the state of exactly the tokens before the row; a row that begins has none.
Status FakeBackend::run_row_states(const ForwardInputs& in, const RowRecord& row, uint32_t group) {
  Pool& pool = pools_[group];
  Result<Cell*> own = record_to_write(group, slots_[row.slot].tables[group][0]);
  if (!own) return own.error();
  const auto places = std::span(in.state_places).subspan(row.places_first, row.num_places);
  const Cell* from = *own;
  for (const StatePlace& place : places)
    if (place.kv_group == group && place.position == row.start) from = &pool.cells[place.record];
  const std::optional<uint64_t> before = row.start == 0 ? 0 : from->state_behind(row.start);
  if (!before) return refuse("a row from {} begins with the state behind {} tokens", row.start, from->num_tokens);
  uint64_t state = *before;
  std::vector<uint64_t> states;
  for (uint32_t i = 0; i < row.num_tokens; ++i) {
    const StepToken& token = tokens_[row.token_first + i];
    state = fake_state(state, fake_layer0(token.token, token.position, token.adapter_id));
    states.push_back(state);
    hidden_[row.token_first + i] =
        mix_groups(hidden_[row.token_first + i], fake_hidden(state, 0, token.position), group);
    for (const StatePlace& place : places) {
      if (place.kv_group != group || place.position != token.position + 1) continue;
      Result<Cell*> kept = record_to_write(group, place.record);
      if (!kept) return kept.error();
      leave_state(**kept, {&state, 1}, token.position);
    }
  }
  leave_state(**own, states, row.start);
  return {};
}

// The two layers of a group. Groups lie side by side: what they make is mixed.
Status FakeBackend::run_layers(const ForwardInputs& in, uint32_t group) {
  for (const StepToken& t : tokens_) {
    Cell& cell = *t.cells[group];
    if (cell.written_in == num_submitted_) return refuse("two tokens of a step write one cell");
    cell.written_in = num_submitted_;
    cell.stored.layer0 = fake_layer0(t.token, t.position, t.adapter_id);
  }
  const Result<std::vector<uint64_t>> sum0 = attend(in, group, &FakeCell::layer0);
  if (!sum0) return sum0.error();
  for (size_t i = 0; i < tokens_.size(); ++i) {
    FakeCell& stored = tokens_[i].cells[group]->stored;
    stored.layer1 = fake_layer1(stored.layer0, (*sum0)[i]);
  }
  const Result<std::vector<uint64_t>> sum1 = attend(in, group, &FakeCell::layer1);
  if (!sum1) return sum1.error();
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const uint64_t hidden = fake_hidden((*sum0)[i], (*sum1)[i], tokens_[i].position);
    hidden_[i] = mix_groups(hidden_[i], hidden, group);
  }
  return {};
}

Status FakeBackend::run_sample(const SampleInputs& in, bool want_logprobs, StepOutput* output) {
  for (const SampleRecord& record : in.records) {
    if (record.token_idx >= hidden_.size() || record.slot >= slots_.size()) return refuse("sample record out of range");
    const uint64_t hidden = hidden_[record.token_idx];
    SampleResult result;
    if (record.flags & kSampleForced) {
      result = fake_score(hidden, record.forced_token, config_.poison);
    } else {
      Slot& slot = slots_[record.slot];
      const bool counted = (slot.sampling.flags & kRowPenalties) != 0;
      FakeCounts counts;
      if (counted) counts = counts_.at(static_cast<size_t>(slot.sampling.penalty_slot));
      for (uint32_t before = record.flags >> kSampleRunShift; before > 0; --before)
        counts.add_output((&record - before)->forced_token);
      const auto bias = std::span(in.bias_entries).subspan(record.bias_first, record.num_bias);
      const TokenMaskPtr mask = mask_of(in, record, kFakeVocab);
      if (config_.masked_drafts && mask && record.flags >> kSampleRunShift > 0) ++*config_.masked_drafts;
      result = fake_draw(hidden, slot.sampling, counts, record.output_position, bias, config_.poison, mask.get());
      if (result.flags == 0 && mix(hidden, 21) % 16 < config_.wrong_of_16)
        result.token = (result.token + 1) % static_cast<int32_t>(kFakeVocab);
      if (result.flags == 0 && !(record.flags & kSampleVerify)) {
        slot.last_token = result.token;
        if (counted) counts_[static_cast<size_t>(slot.sampling.penalty_slot)].add_output(result.token);
      }
    }
    output->results.push_back(result);
    if (!want_logprobs) continue;
    output->logprobs.push_back(record.flags & kSampleLogprobs ? best_logprobs(hidden) : LogprobRow());
    output->logprobs.back().entries[0].logprob += config_.best_logprob;
  }
  return {};
}

Status FakeBackend::write_tensor(const SealedList&, TensorId, std::span<const std::byte>) {
  return no_door();
}
Status FakeBackend::read_tensor(const SealedList&, TensorId, std::span<std::byte>) {
  return no_door();
}
std::vector<std::span<std::byte>> FakeBackend::host_block(uint32_t kv_group, uint32_t block) {
  Result<Cell*> cells = block_at(kv_group, /*on_host=*/true, block);
  return {std::as_writable_bytes(std::span(cells.value(), pools_[kv_group].block_cells))};
}
Status FakeBackend::write_kv(uint32_t, uint32_t, uint32_t, std::span<const std::byte>) {
  return no_door();
}
Status FakeBackend::read_kv(uint32_t, uint32_t, uint32_t, std::span<std::byte>) {
  return no_door();
}

}  // namespace llmrt::test
