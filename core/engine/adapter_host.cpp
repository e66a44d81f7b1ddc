#include "core/engine/adapter_host.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/adapter/adapter.h"
#include "core/base/check.h"
#include "core/base/checked_math.h"

namespace llmrt {
namespace {

// In front of a step that runs beside others: 8 MB cross to the device in less than half a millisecond.
constexpr uint64_t kStepBytes = 8u << 20;

// The number of a content: the same in all engines of the process, and never given to another.
uint32_t number_of(const Digest& digest) {
  static std::mutex mutex;
  static std::map<Digest, uint32_t> numbers;
  std::lock_guard lock(mutex);
  return numbers.try_emplace(digest, static_cast<uint32_t>(numbers.size() + 1)).first->second;
}

}  // namespace

uint64_t adapter_pool_bytes(const AdapterConfig& config, const Model& model, DType dtype) {
  if (config.slots == 0) return 0;
  uint64_t bytes = config.bytes;
  const uint64_t rank = round_up(config.planned_rank, kAdapterRankStep);
  if (bytes == 0) {
    for (const WeightGroup& group : model.weights.groups)
      if (takes_adapters(group))
        bytes += round_up((group.segments.size() * group.columns + group.rows) * rank * dtype_bytes(dtype),
                          kAdapterPageBytes);
    bytes *= config.slots;
  }
  return adapter_pages_begin(config.slots, model.weights.groups.size()) + round_up(bytes, kAdapterPageBytes);
}

Result<ReadyAdapter> read_adapter(const std::string& path, const Model& model, const AdapterConfig& config,
                                  const Caps& caps) {
  if (config.slots == 0)
    return make_error(ErrorCode::kUnsupported, "adapter {}: expected an engine with slots for adapters, found none",
                      path);
  Result<std::shared_ptr<const Adapter>> adapter = load_adapter(path, model);
  if (!adapter) return adapter.error();
  if ((*adapter)->rank_max > config.rank_max)
    return make_error(ErrorCode::kUnsupported, "adapter {}: rank: expected at most {}, found {}", path, config.rank_max,
                      (*adapter)->rank_max);
  // A small file may stand for many experts, so that its size alone does not tell what it takes.
  const uint64_t bytes = image_bytes(**adapter, caps.activation_dtype);
  if (const uint64_t most = adapter_pool_bytes(config, model, caps.activation_dtype); bytes > most)
    return make_error(ErrorCode::kNeverFits, "adapter {}: expected at most {} bytes for the pool of adapters, found {}",
                      path, most, bytes);
  Result<AdapterImage> image = make_image(**adapter, caps.activation_dtype);
  if (!image) return image.error();
  ReadyAdapter ready{std::make_shared<const AdapterImage>(*std::move(image)), number_of((*adapter)->digest),
                     (*adapter)->rank_max, (*adapter)->digest};
  return ready;
}

void read_adapter_of(Request* request) {
  request->adapter_on_experts = request->adapter && request->adapter->changes_experts();
  if (!request->adapter || request->adapter->invocation_tokens.empty()) return;
  const std::vector<int32_t>& sought = request->adapter->invocation_tokens;
  const std::vector<int32_t>& prompt = request->prompt;
  const auto found = std::find_end(prompt.begin(), prompt.end(), sought.begin(), sought.end());
  if (found != prompt.end()) {
    request->adapter_start = static_cast<uint32_t>(found - prompt.begin());
    return;
  }
  request->adapter = nullptr;
  request->adapter_id = 0;
  request->adapter_scale = 1;
  request->adapter_on_experts = false;
}

// What it could hold it does not hold yet: a request that finds no room for its keys must not keep others' adapters
// out.
Result<AdapterState> AdapterHost::state_of(const Request& request, TimeNs now) {
  const auto [at, is_new] = asked_.try_emplace(request.id);
  Asked& asked = at->second;
  if (is_new) {
    Result<AdapterTicket> ticket = pool_.want(request.adapter, now);
    if (!ticket) {
      asked_.erase(at);
      return ticket.error();
    }
    asked.ticket = *ticket;
  }
  const Result<bool> may_hold = pool_.try_hold(asked.ticket, now);
  if (!may_hold) return may_hold.error();
  is_asked_ |= is_new && !*may_hold;
  if (!*may_hold) return pool_.is_loading(request.adapter->digest) ? AdapterState::kLoading : AdapterState::kNoRoom;
  pool_.pause(asked.ticket);
  return AdapterState::kReady;
}

uint32_t AdapterHost::hold(const Request& request, TimeNs now) {
  Asked& asked = asked_.at(request.id);
  const Result<bool> held = pool_.try_hold(asked.ticket, now);
  LLMRT_CHECK(held && *held && !asked.holds, "an adapter that is ready is held once by a request");
  asked.holds = true;
  ++num_holds_;
  return pool_.slot_of(asked.ticket);
}

void AdapterHost::release(RequestId request_id) {
  Asked& asked = asked_.at(request_id);
  LLMRT_CHECK(asked.holds, "what is released was held");
  pool_.pause(asked.ticket);
  asked.holds = false;
  --num_holds_;
}

void AdapterHost::forget(RequestId request_id) {
  const auto found = asked_.find(request_id);
  if (found == asked_.end()) return;
  num_holds_ -= found->second.holds;
  pool_.drop(found->second.ticket);
  asked_.erase(found);
}

bool AdapterHost::holds(RequestId request_id) const {
  const auto found = asked_.find(request_id);
  return found != asked_.end() && found->second.holds;
}

Result<bool> AdapterHost::write(bool is_idle, TimeNs now) {
  bool has_written = false;
  is_asked_ = false;
  for (const AdapterWrite& write : pool_.next_writes(is_idle ? ~0ull : kStepBytes, now)) {
    if (Status status = backend_->write_adapter_pool(write.pool_offset, write.bytes); !status) return status.error();
    has_written = true;
  }
  return has_written;
}

AdapterStats AdapterHost::stats() const {
  const AdapterPoolFigures figures = pool_.figures();
  return {.num_hits = figures.num_hits,
          .num_misses = figures.num_misses,
          .num_loads = figures.num_loads,
          .num_evictions = figures.num_evictions,
          .bytes_written = figures.bytes_written,
          .num_resident = figures.num_resident,
          .num_waiting = figures.num_waiting,
          .num_rows = num_holds_,
          .num_slots = num_slots_,
          .pool_bytes = uint64_t{figures.num_pages} * kAdapterPageBytes,
          .free_bytes = uint64_t{figures.num_free_pages} * kAdapterPageBytes};
}

Status AdapterHost::check() const {
  const std::string broken = pool_.audit();
  return broken.empty() ? Status{} : Status(make_error(ErrorCode::kInternal, "adapters: {}", broken));
}

}  // namespace llmrt
