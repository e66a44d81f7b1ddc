#include "core/sample_trace/replay.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "core/request/logit_changes.h"

namespace llmrt {
namespace {

constexpr size_t kAtOnceMax = 64;

// Collects what the engine tells of all branches.
struct Events final : EventSink {
  void on_events(std::span<const TokenEvent> batch) override { list.insert(list.end(), batch.begin(), batch.end()); }
  std::vector<TokenEvent> list;
};

class Replayer {
 public:
  Replayer(Engine& engine, const SampleTrace& trace, const ConstraintOf& constraint_of, const AdapterOf& adapter_of)
      : engine_(engine),
        trace_(trace),
        constraint_of_(constraint_of),
        adapter_of_(adapter_of),
        branches_(trace.branches.size()),
        constraints_(trace.branches.size()),
        adapters_(trace.branches.size()) {
    for (const TracedBranch& branch : trace.branches) num_tokens_ += branch.draws.size();
  }

  Result<std::vector<ReplayedBranch>> run(const std::function<void(uint64_t, uint64_t)>& progress) {
    const size_t at_once = std::min<size_t>(kAtOnceMax, engine_.config().sequences_max);
    for (size_t next = 0; next < branches_.size() || !waiting_.empty() || !running_.empty();) {
      for (const size_t i : std::exchange(waiting_, {})) submit(i);
      while (waiting_.empty() && next < branches_.size() && running_.size() < at_once) start(next++);
      if (Result<bool> worked = engine_.tick(); !worked) return worked.error();
      for (const TokenEvent& event : std::exchange(events_->list, {})) take(event);
      if (progress) progress(num_done_, num_tokens_);
    }
    // The ends of requests that were cancelled.
    for (Result<bool> worked = true; *worked;)
      if (worked = engine_.tick(); !worked) return worked.error();
    return std::move(branches_);
  }

 private:
  void start(size_t i) {
    const TracedBranch& traced = trace_.branches[i];
    if (branches_[i].num_drawn == traced.draws.size()) return;
    if (constraint_of_) constraints_[i] = constraint_of_(traced);
    if (traced.request.adapter_id != 0) {
      if (adapter_of_) adapters_[i] = adapter_of_(traced);
      if (!adapters_[i].image || to_hex(adapters_[i].digest) != traced.adapter_digest) {
        branches_[i].error =
            make_error(ErrorCode::kUnsupported, "expected the adapter with digest {}, found {}", traced.adapter_digest,
                       adapters_[i].image ? to_hex(adapters_[i].digest) : "none");
        return;
      }
    }
    if (const std::vector<std::string> own = processor_names(request_of(i)); own != traced.processors) {
      branches_[i].error = make_error(ErrorCode::kUnsupported, "expected the processors [{}], the trace has [{}]",
                                      fmt::join(own, ", "), fmt::join(traced.processors, ", "));
      return;
    }
    submit(i);
  }

  Request request_of(size_t i) const {
    Request request = trace_.branches[i].request;
    request.constraint = constraints_[i];
    request.adapter = adapters_[i].image;
    request.adapter_id = adapters_[i].id;
    request.adapter_digest = adapters_[i].digest;
    return request;
  }

  // Behind the recorded tokens of all positions that are drawn already.
  void submit(size_t i) {
    const TracedBranch& traced = trace_.branches[i];
    const uint32_t num_drawn = branches_[i].num_drawn;
    Request request = request_of(i);
    for (uint32_t k = 0; k < num_drawn; ++k) request.begun.push_back(traced.draws[k].token);
    request.sampling.tell_draws = true;
    // As many as were drawn; but bans up to min_tokens are as they were.
    request.max_tokens =
        std::max(request.min_tokens, static_cast<uint32_t>(traced.request.begun.size() + traced.draws.size()));
    request.sink = events_;
    const Result<RequestId> id = engine_.submit(std::move(request));
    if (id)
      running_.emplace(*id, i);
    else if (id.error().code == ErrorCode::kOverloaded && !running_.empty())
      waiting_.push_back(i);
    else
      branches_[i].error = id.error();
  }

  void take(const TokenEvent& event) {
    if (event.finish != FinishReason::kNone) engine_.drained(event.request_id);
    const auto place = running_.find(event.request_id);
    if (place == running_.end()) return;  // it has diverged and goes on under another id
    const size_t i = place->second;
    const TracedBranch& traced = trace_.branches[i];
    ReplayedBranch& branch = branches_[i];
    const bool is_equal = !event.draw || compare(event, traced, branch);
    const bool is_done = branch.num_drawn == traced.draws.size() || event.error;
    if (event.error) branch.error = event.error;
    if (is_equal && !is_done && event.finish == FinishReason::kNone) return;
    if (event.finish == FinishReason::kNone) engine_.cancel(event.request_id);
    running_.erase(place);
    if (is_done) return;
    if (is_equal && !event.draw)
      branch.error = make_error(ErrorCode::kInternal, "it ended by {} at position {}", finish_reason_name(event.finish),
                                traced.request.begun.size() + branch.num_drawn);
    else
      submit(i);  // the recorded token goes on, whatever this one was
  }

  bool compare(const TokenEvent& event, const TracedBranch& traced, ReplayedBranch& branch) {
    const TracedDraw& recorded = traced.draws[branch.num_drawn];
    const uint32_t position = static_cast<uint32_t>(traced.request.begun.size()) + branch.num_drawn++;
    ++num_done_;
    const Draw &then = recorded.draw, &now = *event.draw;
    branch.num_other_masks += then.mask_digest != now.mask_digest || then.mask_allowed != now.mask_allowed;
    if (recorded.token == event.token) {
      branch.logprob_difference_max =
          std::max(branch.logprob_difference_max, std::abs(recorded.draw.logprob - event.draw->logprob));
      return true;
    }
    ++branch.num_diverged;
    if (!branch.first)
      branch.first = Divergence{position, recorded.token, event.token, recorded.draw.margin, event.draw->margin};
    return false;
  }

  Engine& engine_;
  const SampleTrace& trace_;
  const ConstraintOf& constraint_of_;
  const AdapterOf& adapter_of_;
  std::vector<ReplayedBranch> branches_;
  // By branch, made when it starts: each divergence submits it again.
  std::vector<std::shared_ptr<const TokenConstraint>> constraints_;
  std::vector<ReadyAdapter> adapters_;
  std::unordered_map<RequestId, size_t> running_;  // to the branch
  std::vector<size_t> waiting_;                    // branches for which the queue had no room
  const std::shared_ptr<Events> events_ = std::make_shared<Events>();
  uint64_t num_done_ = 0, num_tokens_ = 0;
};

}  // namespace

Result<std::vector<ReplayedBranch>> replay(Engine& engine, const SampleTrace& trace,
                                           const std::function<void(uint64_t, uint64_t)>& progress,
                                           const ConstraintOf& constraint_of, const AdapterOf& adapter_of) {
  return Replayer(engine, trace, constraint_of, adapter_of).run(progress);
}

}  // namespace llmrt
