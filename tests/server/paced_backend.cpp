#include "tests/server/paced_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/fakes/fake_model.h"
#include "tests/fakes/sample_mask.h"

namespace llmrt::test {
namespace {

template <typename... Args>
Error refuse(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kInvalidArgument, "paced backend: {}", fmt::format(format, std::forward<Args>(args)...));
}

Error no_door() {
  return make_error(ErrorCode::kUnsupported, "paced backend: it has neither tensors nor KV bytes");
}

constexpr float kBestLogprob = -0.25f, kLogprobStep = -0.125f;

// The token itself, then others in even steps; each once.
LogprobRow logprobs_around(int32_t token, uint32_t vocab_size) {
  constexpr uint32_t kStride = 7919;  // a prime, and so no divisor of a smaller vocabulary
  LogprobRow row;
  for (uint32_t i = 0; i < kLogprobsMax; ++i)
    row.entries[i] = {static_cast<int32_t>((static_cast<uint32_t>(token) + i * kStride) % vocab_size),
                      kBestLogprob + static_cast<float>(i) * kLogprobStep};
  return row;
}

}  // namespace

PacedBackend::PacedBackend(const PacedConfig& config) : config_(config), denied_(config.vocab_size) {
  caps_.device_id = "paced:0";
  caps_.device_name = "a clock";
  caps_.memory_bytes = caps_.memory_free_bytes = 1ull << 32;
  caps_.range_bytes_max = 1ull << 32;
  caps_.kv_dtypes = {KvDType::kF16};
  caps_.batch_invariant = true;
}

Status PacedBackend::create_state(const StateConfig& config) {
  slots_.assign(config.slots_max, {});
  for (Slot& slot : slots_) slot.table.assign(config.blocks_row_max, ~0u);
  return {};
}

Status PacedBackend::create_kv_pools(std::span<const KvGroup> groups) {
  if (groups.size() != 1) return refuse("expected 1 KV group, found {}", groups.size());
  block_tokens_ = groups[0].block_tokens;
  num_blocks_ = groups[0].num_blocks;
  cells_.assign((size_t{num_blocks_} + groups[0].num_host_blocks) * block_tokens_, 0);
  return {};
}

Result<Ticket> PacedBackend::submit(const StepSubmission& step) {
  if (finished_.size() >= kInFlightMax) return refuse("{} steps are in flight already", finished_.size());
  Result<ForwardInputs> forward = ForwardInputs{};  // a tail alone has none
  if (step.memory != nullptr || step.forward != nullptr) forward = unpack_forward(step.forward_inputs);
  if (!forward) return forward.error();
  if (Status status = move_blocks(*forward); !status) return status.error();
  if (step.forward != nullptr)
    if (Status status = run_forward(*forward); !status) return status.error();
  StepOutput output;
  if (step.forward != nullptr)
    output.forward_ms = config_.step_ms + config_.token_us * 1e-3 * static_cast<double>(forward->tokens.size());
  if (step.sample != nullptr) {
    Result<SampleInputs> sample = unpack_sample(step.sample_inputs);
    if (!sample) return sample.error();
    if (Status status = run_sample(*sample, step.want_logprobs, &output); !status) return status.error();
  }
  free_at_ns_ = std::max(free_at_ns_, clock_.now_ns()) + static_cast<TimeNs>(output.forward_ms * 1e6);
  finished_.push_back({++num_submitted_, free_at_ns_, std::move(output)});
  return num_submitted_;
}

Result<StepOutput> PacedBackend::wait(Ticket ticket) {
  if (finished_.empty() || finished_.front().ticket != ticket) return refuse("ticket {} is not the next", ticket);
  Finished finished = std::move(finished_.front());
  finished_.pop_front();
  clock_.sleep_until(finished.at_ns);
  return std::move(finished.output);
}

Result<std::vector<double>> PacedBackend::profile(const StepSubmission&) {
  return make_error(ErrorCode::kUnsupported, "paced backend: it has no ops to time");
}

MemoryReport PacedBackend::memory() const {
  MemoryReport report;
  report.total_bytes = report.free_bytes = caps_.memory_bytes;
  return report;
}

Status PacedBackend::update_rows(const ForwardInputs& in) {
  for (const RowUpdate& update : in.row_updates) {
    if (update.slot >= slots_.size()) return refuse("slot {} of {}", update.slot, slots_.size());
    Slot& slot = slots_[update.slot];
    const uint32_t* words = in.row_payload.data() + update.payload_first;
    switch (update.kind) {
      case RowUpdateKind::kSet:
        std::memcpy(static_cast<void*>(&slot.sampling), words, sizeof(slot.sampling));
        break;
      case RowUpdateKind::kPatchTable:
        if (update.arg1 != 0) return refuse("a table of group {}", update.arg1);
        if (uint64_t{update.arg0} + update.payload_words > slot.table.size()) return refuse("table entry too far");
        std::copy_n(words, update.payload_words, slot.table.begin() + update.arg0);
        break;
      case RowUpdateKind::kCopySlot:
        if (update.arg0 >= slots_.size()) return refuse("slot {} of {}", update.arg0, slots_.size());
        slot = slots_[update.arg0];
        break;
      case RowUpdateKind::kRecount:
      case RowUpdateKind::kCount:
        break;  // penalties change no answer here
      case RowUpdateKind::kClear:
        slot.sampling = {};
        std::fill(slot.table.begin(), slot.table.end(), ~0u);
        break;
    }
  }
  return {};
}

// Stores, then loads, then copies.
Status PacedBackend::move_blocks(const ForwardInputs& in) {
  const auto move = [&](const BlockCopy& copy, bool from_host, bool to_host) -> Status {
    const size_t source = ((from_host ? num_blocks_ : 0) + size_t{copy.source}) * block_tokens_;
    const size_t target = ((to_host ? num_blocks_ : 0) + size_t{copy.target}) * block_tokens_;
    if (std::max(source, target) + block_tokens_ > cells_.size() || copy.num_tokens > block_tokens_)
      return refuse("a move from block {} to {}, which is outside of the pool", copy.source, copy.target);
    for (size_t i = 0; i < copy.num_tokens; ++i) cells_[target + i] = cells_[source + i];
    return {};
  };
  for (const BlockCopy& copy : in.block_stores)
    if (Status status = move(copy, false, true); !status) return status;
  for (const BlockCopy& copy : in.block_loads)
    if (Status status = move(copy, true, false); !status) return status;
  for (const BlockCopy& copy : in.block_copies)
    if (Status status = move(copy, false, false); !status) return status;
  return {};
}

uint64_t* PacedBackend::cell_at(const Slot& slot, uint32_t position) {
  const uint32_t entry = position / block_tokens_;
  if (entry >= slot.table.size() || slot.table[entry] >= num_blocks_) return nullptr;
  return &cells_[size_t{slot.table[entry]} * block_tokens_ + position % block_tokens_];
}

Status PacedBackend::run_forward(const ForwardInputs& in) {
  if (Status status = update_rows(in); !status) return status;
  positions_.assign(in.tokens.size(), {});
  for (const RowRecord& row : in.rows) {
    if (row.slot >= slots_.size() || size_t{row.token_first} + row.num_tokens > in.tokens.size())
      return refuse("row of slot {}, tokens from {}: not of this step", row.slot, row.token_first);
    const Slot& slot = slots_[row.slot];
    uint64_t before = row.adapter_id;
    if (row.start > 0) {
      const uint64_t* cell = cell_at(slot, row.start - 1);
      if (!cell) return refuse("slot {} has no block for position {}", row.slot, row.start - 1);
      before = *cell;
    }
    for (uint32_t i = 0; i < row.num_tokens; ++i) {
      const int32_t token = in.tokens[row.token_first + i];
      uint64_t* cell = cell_at(slot, row.start + i);
      if (!cell) return refuse("slot {} has no block for position {}", row.slot, row.start + i);
      before = *cell = cell_after(before, token == kLastSampled ? slot.last_token : token);
      positions_[row.token_first + i] = {row.slot, row.start + i};
    }
  }
  return {};
}

uint64_t PacedBackend::cell_after(uint64_t before, int32_t token) const {
  return mix(before, static_cast<uint64_t>(token));
}

std::vector<uint64_t> PacedBackend::cells_until(const Position& at) {
  std::vector<uint64_t> cells;
  for (uint32_t i = 0; i <= at.position; ++i) {
    const uint64_t* cell = cell_at(slots_[at.slot], i);
    cells.push_back(cell ? *cell : 0);
  }
  return cells;
}

void PacedBackend::read_limits(const SampleRecord& record, const SampleInputs& in) {
  denied_.assign(config_.vocab_size, false);
  num_denied_ = 0;
  const auto deny = [&](size_t token) {
    num_denied_ += denied_[token] ? 0 : 1;
    denied_[token] = true;
  };
  if (const TokenMaskPtr mask = mask_of(in, record, config_.vocab_size)) {
    for (uint32_t token = 0; token < config_.vocab_size; ++token)
      if (!mask->allows(static_cast<int32_t>(token))) deny(token);
  }
  wanted_ = -1;
  float best = 50;  // sure, beside logits of a few tens
  for (const BiasEntry& entry : std::span(in.bias_entries).subspan(record.bias_first, record.num_bias)) {
    if (std::isinf(entry.bias)) {
      deny(static_cast<size_t>(entry.token));
    } else if (entry.bias >= best && entry.token != wanted_) {
      if (wanted_ < 0 || entry.bias > best) wanted_ = entry.token;
      best = entry.bias;
    }
  }
}

bool PacedBackend::allows(int32_t token) const {
  return token >= 0 && static_cast<uint32_t>(token) < config_.vocab_size && !denied_[static_cast<size_t>(token)];
}

int32_t PacedBackend::draw(const Position& at, const RowSampling& row, uint32_t output_position) {
  if (num_denied_ == config_.vocab_size) return -1;
  if (allows(wanted_)) return wanted_;
  const uint64_t* cell = cell_at(slots_[at.slot], at.position);
  uint64_t key = mix(cell ? *cell : 0, 1);
  if (row.temperature > 0)
    key = mix(mix(mix(key, row.seed_lo), row.seed_hi), uint64_t{row.branch} << 32 | output_position);
  if (key % config_.end_one_in == 0 && allows(config_.end)) return config_.end;
  const auto num_text = static_cast<uint64_t>(config_.text_end - config_.text_first);
  for (uint64_t attempt = 0; attempt < 64; ++attempt)
    if (const auto id = config_.text_first + static_cast<int32_t>(mix(key, attempt) % num_text); allows(id)) return id;
  // By a mask that denies most of them: the draw is among what is left.
  uint64_t left = mix(key, 64) % (config_.vocab_size - num_denied_);
  for (int32_t id = 0;; ++id)
    if (allows(id) && left-- == 0) return id;
}

Status PacedBackend::run_sample(const SampleInputs& in, bool want_logprobs, StepOutput* output) {
  output->results.reserve(in.records.size());
  for (const SampleRecord& record : in.records) {
    if (record.token_idx >= positions_.size() || record.slot >= slots_.size())
      return refuse("sample record out of range");
    Slot& slot = slots_[record.slot];
    SampleResult result = {};
    if (record.flags & kSampleForced) {
      result.token = record.forced_token;
    } else {
      read_limits(record, in);
      result.token = draw(positions_[record.token_idx], slot.sampling, record.output_position);
      if (result.token < 0)
        result.flags = kResultEmptySupport;
      else if (!(record.flags & kSampleVerify))
        slot.last_token = result.token;
    }
    result.logprob = result.processed_logprob = kBestLogprob;
    result.support = 1;
    output->results.push_back(result);
    if (want_logprobs)
      output->logprobs.push_back(record.flags & kSampleLogprobs ? logprobs_around(result.token, config_.vocab_size)
                                                                : LogprobRow());
  }
  return {};
}

Status PacedBackend::write_tensor(const SealedList&, TensorId, std::span<const std::byte>) {
  return no_door();
}
Status PacedBackend::read_tensor(const SealedList&, TensorId, std::span<std::byte>) {
  return no_door();
}
Status PacedBackend::write_kv(uint32_t, uint32_t, uint32_t, std::span<const std::byte>) {
  return no_door();
}
Status PacedBackend::read_kv(uint32_t, uint32_t, uint32_t, std::span<std::byte>) {
  return no_door();
}

}  // namespace llmrt::test
