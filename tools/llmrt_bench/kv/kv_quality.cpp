#include "tools/llmrt_bench/kv/kv_quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "backends/backends.h"
#include "core/base/clock.h"
#include "tools/llmrt_bench/kv/kv_numerics.h"
#include "tools/llmrt_bench/kv/kv_run.h"

namespace llmrt::bench {
namespace {

constexpr double kProgressMs = 10'000;

// What all cells of a context are compared with.
struct Reference {
  std::vector<float> logits;  // [num_scored, vocab_size]
  AttendedPositions attended;
};

// By layer, over its queries and heads.
std::vector<double> overlap_by_layer(const AttendedPositions& reference, const AttendedPositions& other) {
  std::vector<double> shares;
  for (size_t layer = 0; layer < reference.size(); ++layer) {
    double sum = 0;
    for (size_t i = 0; i < reference[layer].size(); ++i) sum += overlap(reference[layer][i], other[layer][i]);
    shares.push_back(sum / static_cast<double>(reference[layer].size()));
  }
  return shares;
}

// A pool beyond the device's memory, or beyond what its kernels can address.
bool is_too_large(const Error& error) {
  return error.code == ErrorCode::kOutOfMemory || error.code == ErrorCode::kMissingFeature;
}

class Measurement {
 public:
  explicit Measurement(const KvQualityPlan& plan) : plan_(plan) {}

  Result<KvQuality> run() {
    for (const uint32_t context : plan_.contexts)
      quality_.contexts.push_back({context, std::min(plan_.scored_max, context), {}});
    references_.resize(plan_.contexts.size());
    for (size_t i = 0; i < plan_.weights.size(); ++i)
      if (Status status = run_weights(i); !status) return status.error();
    return std::move(quality_);
  }

 private:
  Status run_weights(size_t weights_idx) {
    const auto& [name, model] = plan_.weights[weights_idx];
    Result<std::unique_ptr<Backend>> backend = open_device(plan_.device);
    if (!backend) return backend.error();
    fmt::print(stderr, "loading {} weights ({})\n", name, model->encoding);
    auto run = KvRun::create(std::move(*backend), model, quality_.contexts.back().num_tokens);
    if (!run) return run.error();
    quality_.caps = (*run)->caps();
    for (KvContext& context : quality_.contexts) context.cells.emplace_back();
    for (const KvDType dtype : plan_.kv_dtypes) {
      if (Status status = set_cache(run->get(), dtype); !status) return status;
      for (size_t i = 0; i < quality_.contexts.size(); ++i) {
        Result<KvCell> cell = run_cell(run->get(), fmt::format("{} weights, KV {}", name, kv_dtype_name(dtype)), i);
        if (!cell) return cell.error();
        quality_.contexts[i].cells[weights_idx].push_back(std::move(*cell));
      }
    }
    return {};
  }

  // For the longest context. The reference, which comes first, gives up contexts that there is no memory for.
  Status set_cache(KvRun* run, KvDType dtype) {
    while (true) {
      const uint32_t num_tokens = quality_.contexts.back().num_tokens;
      Status status = run->set_cache(dtype, num_tokens);
      const bool is_reference = references_.front().logits.empty();
      if (status || !is_reference || quality_.contexts.size() == 1 || !is_too_large(status.error())) return status;
      quality_.left_out.push_back(fmt::format("{} tokens: {}", num_tokens, status.error().message));
      quality_.contexts.pop_back();
    }
  }

  Result<KvCell> run_cell(KvRun* run, const std::string& name, size_t context_idx) {
    const KvContext& context = quality_.contexts[context_idx];
    Reference& reference = references_[context_idx];
    const bool is_reference = reference.attended.empty();
    const std::span<const int32_t> tokens(plan_.tokens);
    const std::span<const int32_t> targets = tokens.subspan(context.num_tokens - context.num_scored + 1);
    const size_t vocab_size = plan_.weights.front().second->config.vocab_size;
    if (is_reference) reference.logits.reserve(context.num_scored * vocab_size);
    KvCell cell;
    const auto score = [&](uint32_t first, std::span<const float> logits) {
      if (is_reference) reference.logits.insert(reference.logits.end(), logits.begin(), logits.end());
      for (size_t row = 0; row < logits.size() / vocab_size; ++row) {
        const auto here = logits.subspan(row * vocab_size, vocab_size);
        const auto there = std::span(reference.logits).subspan((first + row) * vocab_size, vocab_size);
        cell.nll += log_sum_exp(here) - here[static_cast<size_t>(targets[first + row])];
        cell.kl += kl_divergence(there, here);
        cell.same_best += best_token(there) == best_token(here);
      }
    };
    const TimeNs started_ns = clock_.now_ns();
    TimeNs told_ns = started_ns;
    const auto progress = [&](uint32_t done) {
      if (ms_between(told_ns, clock_.now_ns()) < kProgressMs) return;
      told_ns = clock_.now_ns();
      fmt::print(stderr, "{}: {} of {} tokens\n", name, done, context.num_tokens);
    };
    if (Status status = run->run(tokens.first(context.num_tokens), context.num_scored, score, progress); !status)
      return status.error();
    Result<AttendedPositions> attended = run->attended(plan_.positions);
    if (!attended) return attended.error();
    if (is_reference) reference.attended = *attended;
    cell.overlap = overlap_by_layer(reference.attended, *attended);
    for (double* sum : {&cell.nll, &cell.kl, &cell.same_best}) *sum /= context.num_scored;
    cell.seconds = ms_between(started_ns, clock_.now_ns()) * 1e-3;
    fmt::print(stderr, "{}: {} tokens in {:.1f} s\n", name, context.num_tokens, cell.seconds);
    return cell;
  }

  const KvQualityPlan& plan_;
  SteadyClock clock_;
  KvQuality quality_;
  std::vector<Reference> references_;  // by context
};

}  // namespace

double KvCell::mean_overlap() const {
  return std::accumulate(overlap.begin(), overlap.end(), 0.0) / static_cast<double>(overlap.size());
}

size_t KvCell::lowest_layer() const {
  return static_cast<size_t>(std::min_element(overlap.begin(), overlap.end()) - overlap.begin());
}

Result<KvQuality> measure_kv_quality(const KvQualityPlan& plan) {
  return Measurement(plan).run();
}

}  // namespace llmrt::bench
