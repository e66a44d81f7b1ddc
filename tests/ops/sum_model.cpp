#include "tests/ops/sum_model.h"

#include <cmath>

#include "core/backend/validating.h"
#include "tests/reference/backend.h"
#include "tests/reference/dequant.h"

namespace llmrt::optest {

SumModel::SumModel(std::mt19937_64& rng) : ForwardingBackend(make_validating(make_reference_backend())) {
  embedding_ = suite_.add_weight(Encoding::kF16, kVocab, kWidth, rng);
  const WeightId head = suite_.add_weight(Encoding::kF32, kVocab, kWidth, rng, 0.05);
  head_ = suite_.add_group({head}, false, rng);
  std::vector<WeightId> qkv(kWidth, suite_.add_f32(std::vector<float>(kWidth)));
  for (int which = 0; which < 2; ++which)
    for (uint32_t i = 0; i < kWidth; ++i) {
      std::vector<float> row(kWidth);
      row[i] = 1;
      qkv.push_back(suite_.add_f32(row));
    }
  qkv_ = suite_.add_group(qkv, false, rng);
  embeddings_ = values_of(embedding_);
  heads_ = values_of(head);
}

Status SumModel::create_state(const StateConfig& config) {
  StateConfig own = config;
  own.head_dim_max = own.hidden_columns = kWidth;
  own.arena_bytes = std::max(inner().arena_bytes(forward_list(config.step_tokens_max)),
                             inner().arena_bytes(sample_list(config.sample_rows_max)));
  return inner().create_state(own);
}

Result<Ticket> SumModel::submit(const StepSubmission& step) {
  StepSubmission own = step;
  if (step.forward) own.forward = &forward_list(step.forward->list.num_tokens);
  if (step.sample) own.sample = &sample_list(step.sample->list.num_sampled);
  return inner().submit(own);
}

double SumModel::logprob(const std::vector<int32_t>& text, int32_t token) const {
  double hidden[kWidth];
  for (uint32_t c = 0; c < kWidth; ++c) {
    double sum = 0, second = 0;
    for (const int32_t t : text) {
      sum += embeddings_[static_cast<size_t>(t) * kWidth + c];
      second += sum;
    }
    hidden[c] = sum / static_cast<double>(text.size()) + sum + second * kSecondFactor;
  }
  double total = 0, own = 0;
  for (uint32_t v = 0; v < kVocab; ++v) {
    double logit = 0;
    for (uint32_t c = 0; c < kWidth; ++c) logit += hidden[c] * heads_[v * kWidth + c];
    total += std::exp(logit);
    if (static_cast<int32_t>(v) == token) own = logit;
  }
  return own - std::log(total);
}

std::vector<double> SumModel::values_of(WeightId id) const {
  const WeightTensor& tensor = suite_.weights.tensors[static_cast<size_t>(id)];
  std::vector<float> values(kVocab * kWidth);
  for (uint32_t r = 0; r < kVocab; ++r)
    reference::dequantize_row(tensor.encoding, tensor.data + r * tensor.bytes_row(), kWidth,
                              values.data() + r * kWidth);
  return {values.begin(), values.end()};
}

const SealedList& SumModel::forward_list(uint32_t num_tokens) {
  const auto found = forward_lists_.find(num_tokens);
  if (found != forward_lists_.end()) return found->second;
  OpList list{"forward", num_tokens, 0, {}, {}};
  const auto add = [&](const char* name, uint32_t columns, DType dtype = DType::kF32) {
    return list.add_tensor({name, Rows::kTokens, columns, dtype, Storage::kArena});
  };
  const TensorId tokens = add("tokens", 1, DType::kI32), positions = add("positions", 1, DType::kI32),
                 row_slots = add("row_slots", 1, DType::kI32), kv_slots = add("kv_slots", 1, DType::kI32);
  const TensorId x = add("x", kWidth), qkv = add("qkv", 3 * kWidth), mean = add("mean", kWidth),
                 sum = add("sum", kWidth), second = add("second", kWidth), scaled = add("scaled", kWidth),
                 sums = add("sums", kWidth);
  const TensorId hidden = list.add_tensor({"hidden", Rows::kTokens, kWidth, DType::kF32, Storage::kHidden});
  list.ops = {UpdateRows{},
              PrepareRows{tokens, positions, row_slots, {kv_slots}},
              Embed{tokens, embedding_, x},
              Matmul{x, qkv_, qkv},
              KvWrite{qkv, kv_slots, 0, 0, 1, 1, kWidth},
              PagedAttention{qkv, mean, 0, 0, 1, 1, kWidth, 1, 0, 0},
              RunningSum{x, 1, 0, sum},
              RunningSum{sum, 1, 1, second},
              Scale{second, kSecondFactor, scaled},
              Add{sum, scaled, sums},
              Add{sums, mean, hidden}};
  return forward_lists_.emplace(num_tokens, std::move(list)).first->second;
}

const SealedList& SumModel::sample_list(uint32_t num_sampled) {
  const auto found = sample_lists_.find(num_sampled);
  if (found != sample_lists_.end()) return found->second;
  OpList list{"sample", 0, num_sampled, {}, {}};
  const auto add = [&](const char* name, uint32_t columns, DType dtype = DType::kF32) {
    return list.add_tensor({name, Rows::kSampled, columns, dtype, Storage::kArena});
  };
  const TensorId hidden = list.add_tensor({"hidden", Rows::kTokens, kWidth, DType::kF32, Storage::kHidden});
  const TensorId gathered = add("gathered", kWidth), logits = add("logits", kVocab),
                 processed = add("processed", kVocab), kept = add("kept", sizeof(FilterResult) / 4, DType::kI32);
  list.ops = {GatherRows{hidden, gathered},      Matmul{gathered, head_, logits},
              ApplyPenalties{logits, processed}, ApplyBias{processed},
              Filter{logits, processed, kept},   Sample{logits, processed, kept},
              Logprobs{logits, processed, kept}};
  return sample_lists_.emplace(num_sampled, std::move(list)).first->second;
}

}  // namespace llmrt::optest
