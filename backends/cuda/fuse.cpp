#include "backends/cuda/fuse.h"

#include <fmt/format.h>

#include <string_view>

#include "backends/cuda/choose.h"
#include "core/ops/op_flow.h"

namespace llmrt::cuda {
namespace {

constexpr uint64_t kArenaAlignment = 256;

// ---- the patterns --------------------------------------------------------------------------------------------------

// A consumer takes what a producer made. An op belongs to at most one pattern as the producer and to one as the
// consumer, so patterns join to longer steps.
struct Pattern {
  const char* name;
  const char* producer;                  // op_name
  TensorId (*link)(const Op& consumer);  // what the consumer takes; kNoTensor: not this kind of op
  bool is_handed_over;                   // the linked tensor is not written then: nothing else may read it
  uint32_t rows_max;                     // of the list
  bool (*has_kernel)(const Op& producer, const Op& consumer, const OpList& list, const CompileInputs& inputs);
};

template <class Consumer, TensorId Consumer::*kField>
TensorId link_of(const Op& consumer) {
  const Consumer* op = std::get_if<Consumer>(&consumer);
  return op ? op->*kField : kNoTensor;
}
template <class Producer, class Consumer,
          bool (*kHas)(const Producer&, const Consumer&, const OpList&, const CompileInputs&)>
bool has_kernel(const Op& producer, const Op& consumer, const OpList& list, const CompileInputs& inputs) {
  return kHas(std::get<Producer>(producer), std::get<Consumer>(consumer), list, inputs);
}
bool always(const Op&, const Op&, const OpList&, const CompileInputs&) {
  return true;
}

enum PatternId : size_t { kGatedMatmul, kAddedMatmul, kRopeAndWrite, kNormAndRope, kNormedMatmul, kNumPatterns };

// In an order in which a pattern comes behind those that it asks for (needs).
constexpr Pattern kPatterns[kNumPatterns] = {
    {"gated_matmul", "matmul", link_of<GatedActivation, &GatedActivation::x>, true, UINT32_MAX,
     has_kernel<Matmul, GatedActivation, has_gated_kernel>},
    {"added_matmul", "matmul", link_of<RmsNorm, &RmsNorm::delta>, true, UINT32_MAX,
     has_kernel<Matmul, RmsNorm, has_added_kernel>},
    {"rope_and_write", "rope", link_of<KvWrite, &KvWrite::qkv>, false, UINT32_MAX, always},
    {"norm_and_rope", "qk_norm", link_of<Rope, &Rope::qkv>, false, UINT32_MAX, always},
    {"normed_matmul", "rms_norm", link_of<Matmul, &Matmul::x>, true, 1, has_kernel<RmsNorm, Matmul, has_normed_kernel>},
};

// ---- matching ------------------------------------------------------------------------------------------------------

struct Link {
  int op = -1;  // at the other end; -1: none
  size_t pattern = kNumPatterns;
};

class Matcher {
 public:
  // `inputs` null: as if there were a kernel for everything.
  Matcher(const OpList& list, const CompileInputs* inputs) : list_(list), inputs_(inputs), flow_(list) {
    consumers_.resize(list.ops.size());
    producers_.resize(list.ops.size());
    for (size_t pattern = 0; pattern < kNumPatterns; ++pattern)
      for (int op = 0; op < static_cast<int>(list.ops.size()); ++op) match(pattern, op);
  }

  const Link& consumer_of(int op) const { return consumers_[static_cast<size_t>(op)]; }
  const Link& producer_of(int op) const { return producers_[static_cast<size_t>(op)]; }
  bool is_producer(int op, size_t pattern) const { return consumer_of(op).pattern == pattern; }
  bool is_consumer(int op, size_t pattern) const { return producer_of(op).pattern == pattern; }
  // The op at whose place the step of `op` runs.
  int place_of(int op) const {
    while (consumer_of(op).op >= 0 && !is_producer(op, kNormedMatmul)) op = consumer_of(op).op;
    return op;
  }
  std::vector<Unfused>& unfused() { return unfused_; }

 private:
  void match(size_t pattern_id, int consumer) {
    const Pattern& pattern = kPatterns[pattern_id];
    const TensorId link = pattern.link(list_.ops[static_cast<size_t>(consumer)]);
    if (link == kNoTensor) return;
    const auto is_producer_op = [&](int op) {
      return std::string_view(op_name(list_.ops[static_cast<size_t>(op)])) == pattern.producer;
    };
    const int producer = flow_.writer_before(link, consumer);
    if (producer < 0) return;
    if (!is_producer_op(producer)) {
      const int behind = flow_.find_behind(producer, is_producer_op);
      if (behind >= 0) add_unfused(pattern, behind, consumer, true, fmt::format("{} stands between", name(producer)));
      return;
    }
    if (std::string why = obstacle(pattern, link, producer, consumer); !why.empty())
      return add_unfused(pattern, producer, consumer, true, std::move(why));
    if (std::string why = missing(pattern_id, producer, consumer); !why.empty())
      return add_unfused(pattern, producer, consumer, false, std::move(why));
    consumers_[static_cast<size_t>(producer)] = {consumer, pattern_id};
    producers_[static_cast<size_t>(consumer)] = {producer, pattern_id};
  }

  // What in the list keeps the two from running as one, at the place where the consumer runs; empty: nothing.
  std::string obstacle(const Pattern& pattern, TensorId link, int producer, int consumer) const {
    if (const int other = consumer_of(producer).op; other >= 0) return fmt::format("{} is its consumer", name(other));
    if (pattern.is_handed_over) {
      const TensorDesc& desc = list_.tensors[static_cast<size_t>(link)];
      if (desc.storage != Storage::kArena) return fmt::format("{} is kept", desc.name);
      if (const int other = flow_.other_reader(link, producer, consumer); other >= 0)
        return fmt::format("{} reads {} too", name(other), desc.name);
    }
    const int end = place_of(consumer);
    for (int op = producer + 1; op < end; ++op) {
      if (op == consumer || place_of(op) == end) continue;
      if (const TensorId tensor = flow_.in_the_way(producer, op); tensor != kNoTensor)
        return fmt::format("{} between changes or reads {}", name(op), list_.tensors[static_cast<size_t>(tensor)].name);
    }
    return {};
  }

  // Why no kernel does it here; empty: one does.
  std::string missing(size_t pattern_id, int producer, int consumer) const {
    const Pattern& pattern = kPatterns[pattern_id];
    const Op& first = list_.ops[static_cast<size_t>(producer)];
    const Op& second = list_.ops[static_cast<size_t>(consumer)];
    if (pattern_id == kNormAndRope && !is_producer(consumer, kRopeAndWrite)) return "rope is not fused with kv_write";
    if (pattern_id == kNormedMatmul) {
      const bool has_sum = std::get<RmsNorm>(first).delta == kNoTensor || is_consumer(producer, kAddedMatmul);
      if (!has_sum) return "no matmul makes the norm's sum";
      if (inputs_ && is_producer(consumer, kGatedMatmul) && !inputs_->tuning.gated_makes_norm)
        return "a gated matmul makes no norm";
    }
    const uint32_t rows = list_.rows_of(pattern.link(second));
    if (rows > pattern.rows_max || (inputs_ && !pattern.has_kernel(first, second, list_, *inputs_)))
      return fmt::format("no kernel for {} rows", rows);
    return {};
  }

  void add_unfused(const Pattern& pattern, int producer, int consumer, bool is_lost, std::string reason) {
    unfused_.push_back(
        {pattern.name, static_cast<uint32_t>(producer), static_cast<uint32_t>(consumer), is_lost, std::move(reason)});
  }
  std::string name(int op) const { return fmt::format("{} (op {})", op_name(list_.ops[static_cast<size_t>(op)]), op); }

  const OpList& list_;
  const CompileInputs* inputs_;
  OpFlow flow_;
  std::vector<Link> consumers_, producers_;  // by op
  std::vector<Unfused> unfused_;
};

// ---- steps ---------------------------------------------------------------------------------------------------------

class StepBuilder {
 public:
  StepBuilder(const OpList& list, const Matcher& matcher) : list_(list), matcher_(matcher) {}

  // The step that runs at the place of `op`, if any does.
  std::optional<Step> step_at(int op) const {
    if (matcher_.place_of(op) != op) return std::nullopt;  // it runs with a later one
    const auto is_made_later = [&] { return matcher_.is_producer(op, kNormedMatmul); };
    Step step;
    if (matcher_.is_consumer(op, kAddedMatmul)) {
      const int matmul = producer(op);
      step.what = AddedMatmul{made(matmul), at<Matmul>(matmul), at<RmsNorm>(op), is_made_later()};
      step.ops = ops_of_matmul(matmul);
    } else if (is_made_later()) {
      return std::nullopt;  // a norm that a matmul makes
    } else if (matcher_.is_consumer(op, kGatedMatmul)) {
      const int matmul = producer(op);
      step.what = GatedMatmul{made(matmul), at<Matmul>(matmul), at<GatedActivation>(op)};
      step.ops = ops_of_matmul(matmul);
    } else if (matcher_.is_consumer(op, kNormedMatmul)) {
      step.what = NormedMatmul{*made(op), at<Matmul>(op)};
      step.ops = ops_of_matmul(op);
      return step;
    } else if (matcher_.is_consumer(op, kRopeAndWrite)) {
      const int rope = producer(op), norm = matcher_.is_consumer(rope, kNormAndRope) ? producer(rope) : -1;
      QkvHeads heads{std::nullopt, at<Rope>(rope), at<KvWrite>(op)};
      if (norm >= 0) {
        heads.norm = at<QkNorm>(norm);
        step.ops.push_back(static_cast<uint32_t>(norm));
      }
      step.what = heads;
      step.ops.push_back(static_cast<uint32_t>(rope));
    } else {
      step.what = PlainOp{list_.ops[static_cast<size_t>(op)]};
    }
    step.ops.push_back(static_cast<uint32_t>(op));
    return step;
  }

 private:
  int producer(int op) const { return matcher_.producer_of(op).op; }
  template <class T>
  const T& at(int op) const {
    return std::get<T>(list_.ops[static_cast<size_t>(op)]);
  }
  std::optional<RmsNorm> made(int matmul) const {
    if (!matcher_.is_consumer(matmul, kNormedMatmul)) return std::nullopt;
    return at<RmsNorm>(producer(matmul));
  }
  // The matmul, and the norm that it makes where that is not of the step that makes the norm's sum.
  std::vector<uint32_t> ops_of_matmul(int matmul) const {
    std::vector<uint32_t> ops;
    if (made(matmul) && !matcher_.is_consumer(producer(matmul), kAddedMatmul))
      ops.push_back(static_cast<uint32_t>(producer(matmul)));
    ops.push_back(static_cast<uint32_t>(matmul));
    return ops;
  }

  const OpList& list_;
  const Matcher& matcher_;
};

}  // namespace

FusedList fuse(const OpList& list, const CompileInputs& inputs) {
  Matcher matcher(list, &inputs);
  const StepBuilder builder(list, matcher);
  FusedList fused;
  for (int op = 0; op < static_cast<int>(list.ops.size()); ++op)
    if (std::optional<Step> step = builder.step_at(op)) fused.steps.push_back(*std::move(step));
  fused.unfused = std::move(matcher.unfused());
  return fused;
}

ArenaPlan plan_arena(const OpList& list) {
  const Matcher matcher(list, nullptr);
  std::vector<int> lives(list.ops.size());
  for (int op = 0; op < static_cast<int>(lives.size()); ++op) {
    const Link& consumer = matcher.consumer_of(op);
    if (consumer.op < 0) {
      lives[static_cast<size_t>(op)] = op;
      continue;
    }
    // The norm behind an added matmul is a launch of its own.
    const int last = matcher.place_of(consumer.op);
    lives[static_cast<size_t>(op)] = consumer.pattern == kAddedMatmul ? last - 1 : last;
  }
  return llmrt::plan_arena(list, kArenaAlignment, lives);
}

uint64_t arena_bytes(const OpList& list) {
  return plan_arena(list).bytes;
}

const char* step_name(const Step& step) {
  struct Namer {
    const char* operator()(const PlainOp& plain) const { return op_name(plain.op); }
    const char* operator()(const NormedMatmul&) const { return "normed_matmul"; }
    const char* operator()(const GatedMatmul&) const { return "gated_matmul"; }
    const char* operator()(const AddedMatmul&) const { return "added_matmul"; }
    const char* operator()(const QkvHeads&) const { return "qkv_heads"; }
  };
  return std::visit(Namer{}, step.what);
}

}  // namespace llmrt::cuda
