// The layer of a model that drafts, alone: of tokens and hidden states the log-probabilities of the tokens two behind
// each (draft_heads_test.py compares them). Input: "TOKENS" of 32 bits, then their hidden states in f32, from standard
// input; the output is [tokens, vocabulary] in f32. The first step has most of the tokens, then come runs of four, as
// where drafts are verified.
//
//   draft_head_logits DEVICE MODEL NUM_TOKENS < input > output
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "backends/backends.h"
#include "core/engine/lower.h"
#include "core/engine/pool_shapes.h"
#include "core/engine/warm_up.h"
#include "core/model/decoder.h"
#include "core/model/model.h"
#include "core/ops/step_inputs.h"

namespace {

using namespace llmrt;

constexpr uint32_t kRunTokens = 4, kBlockTokens = 16;

template <class T>
T value_of(Result<T> result) {
  if (!result) {
    fmt::print(stderr, "{}\n", result.error().message);
    std::exit(1);
  }
  return *std::move(result);
}
void expect_ok(const Status& status) {
  if (status) return;
  fmt::print(stderr, "{}\n", status.error().message);
  std::exit(1);
}

// The list with its logits kept.
SealedList keeping_logits(OpList list, TensorId* logits) {
  const auto found = std::ranges::find(list.tensors, "logits", &TensorDesc::name);
  found->storage = Storage::kPinned;
  *logits = static_cast<TensorId>(found - list.tensors.begin());
  return SealedList(std::move(list));
}

IterationPlan plan_of(std::span<const int32_t> tokens, uint32_t start, uint32_t num_blocks) {
  IterationPlan plan;
  if (start == 0) {
    RowSampling sampling;
    sampling.temperature = 0;
    plan.row_payload.resize(sizeof sampling / sizeof(uint32_t));
    std::memcpy(plan.row_payload.data(), &sampling, sizeof sampling);
    plan.row_updates.push_back({RowUpdateKind::kSet, 0, 0, 0, 0, static_cast<uint32_t>(plan.row_payload.size())});
    plan.row_updates.push_back(
        {RowUpdateKind::kPatchTable, 0, 0, 0, static_cast<uint32_t>(plan.row_payload.size()), num_blocks});
    for (uint32_t block = 0; block < num_blocks; ++block) plan.row_payload.push_back(block);
  }
  plan.tokens.assign(tokens.begin(), tokens.end());
  const auto count = static_cast<uint32_t>(tokens.size());
  plan.rows.push_back({.request_id = 1,
                       .slot = 0,
                       .start = start,
                       .num_tokens = count,
                       .token_first = 0,
                       .sample_first = 0,
                       .num_samples = count,
                       .adapter_slot = 0,
                       .batch_invariant = false});
  for (uint32_t i = 0; i < count; ++i) plan.samples.push_back({.token_offset = i, .output_position = start + i});
  return plan;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto model = value_of(load_model(argv[2]));
  const auto head = value_of(load_draft_model(kOwnDraftHead, *model));
  const auto backend = value_of(open_device(argv[1]));
  const auto num_tokens = static_cast<uint32_t>(std::atoi(argv[3]));
  const size_t width = head->config.width, vocab = head->config.vocab_size;
  std::vector<int32_t> tokens(num_tokens);
  std::vector<float> hidden(num_tokens * width);
  if (std::fread(tokens.data(), sizeof(int32_t), tokens.size(), stdin) != tokens.size() ||
      std::fread(hidden.data(), sizeof(float), hidden.size(), stdin) != hidden.size())
    return 2;

  EngineConfig config;
  config.context_max = head->config.context_max;
  config.sequences_max = 4;
  config.step_tokens_max = config.sample_rows_max = 256;
  config.penalty_rows_max = 1;
  config.kv_tokens = head->config.context_max;
  config.f16_copies_share = 0;
  WarmModel warm = value_of(warm_up_beside(config, head, backend.get(), {}));
  const uint32_t num_blocks = num_tokens / kBlockTokens + 1;
  expect_ok(backend->create_kv_pools(PoolShapes(head->config, warm.config).groups(num_blocks, 0)));

  std::vector<float> out;
  for (uint32_t start = 0; start < num_tokens;) {
    const uint32_t count = start == 0 ? num_tokens - 2 * kRunTokens : std::min(kRunTokens, num_tokens - start);
    const IterationPlan plan = plan_of(std::span(tokens).subspan(start, count), start, num_blocks);
    LoweredStep step;
    warm.lowering->lower(plan, &step);
    TensorId logits;
    const SealedList sample = keeping_logits(step.sample->list, &logits);
    const TensorId input = draft_hidden(step.forward->list);
    std::vector<float> rows(hidden.begin() + static_cast<ptrdiff_t>(start * width),
                            hidden.begin() + static_cast<ptrdiff_t>((start + count) * width));
    rows.resize(step.forward->list.bytes_of(input) / sizeof(float));
    expect_ok(backend->write_tensor(*step.forward, input, std::as_bytes(std::span(rows))));
    StepSubmission submission = step.submission();
    submission.sample = &sample;
    value_of(backend->wait(value_of(backend->submit(submission))));
    std::vector<float> made(sample.list.bytes_of(logits) / sizeof(float));
    expect_ok(backend->read_tensor(sample, logits, std::as_writable_bytes(std::span(made))));
    out.insert(out.end(), made.begin(), made.begin() + static_cast<ptrdiff_t>(count * vocab));
    start += count;
  }
  std::fwrite(out.data(), sizeof(float), out.size(), stdout);
  return 0;
}
