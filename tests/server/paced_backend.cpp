#include "tests/server/paced_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/fakes/fake_model.h"

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

PacedBackend::PacedBackend(const PacedConfig& config) : config_(config), banned_(config.vocab_size) {
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
  hidden_.assign(in.tokens.size(), 0);
  for (const RowRecord& row : in.rows) {
    if (row.slot >= slots_.size() || size_t{row.token_first} + row.num_tokens > in.tokens.size())
      return refuse("row of slot {}, tokens from {}: not of this step", row.slot, row.token_first);
    const Slot& slot = slots_[row.slot];
    uint64_t chain = row.adapter_id;
    if (row.start > 0) {
      const uint64_t* before = cell_at(slot, row.start - 1);
      if (!before) return refuse("slot {} has no block for position {}", row.slot, row.start - 1);
      chain = *before;
    }
    for (uint32_t i = 0; i < row.num_tokens; ++i) {
      const int32_t token = in.tokens[row.token_first + i];
      uint64_t* cell = cell_at(slot, row.start + i);
      if (!cell) return refuse("slot {} has no block for position {}", row.slot, row.start + i);
      chain = mix(chain, static_cast<uint64_t>(token == kLastSampled ? slot.last_token : token));
      *cell = hidden_[row.token_first + i] = chain;
    }
  }
  return {};
}

int32_t PacedBackend::draw(uint64_t hidden, const RowSampling& row, uint32_t output_position,
                           std::span<const BiasEntry> bias) {
  uint64_t key = mix(hidden, 1);
  if (row.temperature > 0)
    key = mix(mix(mix(key, row.seed_lo), row.seed_hi), uint64_t{row.branch} << 32 | output_position);
  const BiasEntry* wanted = nullptr;  // one that is sure to be drawn
  uint32_t num_banned = 0;
  for (const BiasEntry& entry : bias) {
    if (std::isinf(entry.bias)) {
      num_banned += banned_[static_cast<size_t>(entry.token)] ? 0 : 1;
      banned_[static_cast<size_t>(entry.token)] = true;
    } else if (entry.bias >= 50 && (!wanted || entry.bias > wanted->bias)) {
      wanted = &entry;
    }
  }
  int32_t token = -1;
  const auto allows = [&](int32_t id) { return id >= 0 && !banned_[static_cast<size_t>(id)]; };
  if (num_banned < config_.vocab_size) {
    const auto num_text = static_cast<uint64_t>(config_.text_end - config_.text_first);
    if (wanted && allows(wanted->token)) token = wanted->token;
    if (token < 0 && key % config_.end_one_in == 0 && allows(config_.end)) token = config_.end;
    for (uint64_t attempt = 0; attempt < 64 && token < 0; ++attempt)
      if (const auto id = config_.text_first + static_cast<int32_t>(mix(key, attempt) % num_text); allows(id))
        token = id;
    for (int32_t id = 0; token < 0; ++id)
      if (allows(id)) token = id;
  }
  for (const BiasEntry& entry : bias) banned_[static_cast<size_t>(entry.token)] = false;
  return token;
}

Status PacedBackend::run_sample(const SampleInputs& in, bool want_logprobs, StepOutput* output) {
  output->results.reserve(in.records.size());
  for (const SampleRecord& record : in.records) {
    if (record.token_idx >= hidden_.size() || record.slot >= slots_.size()) return refuse("sample record out of range");
    Slot& slot = slots_[record.slot];
    SampleResult result = {};
    if (record.flags & kSampleForced) {
      result.token = record.forced_token;
    } else {
      const auto bias = std::span(in.bias_entries).subspan(record.bias_first, record.num_bias);
      result.token = draw(hidden_[record.token_idx], slot.sampling, record.output_position, bias);
      if (result.token < 0)
        result.flags = kResultEmptySupport;
      else
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
