#include "tests/fakes/fake_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "tests/fakes/naive_beams.h"
#include "tests/fakes/naive_stop.h"

namespace llmrt::test {
namespace {

bool is_poisoned(uint64_t hidden, uint32_t poison) {
  return poison != 0 && mix(hidden, 13) % poison == 0;
}

SampleResult poisoned_result() {
  SampleResult result = {};
  result.token = -1;
  result.flags = kResultNotFinite;
  return result;
}

class FakeTokenizer final : public Tokenizer {
 public:
  FakeTokenizer() { vocabulary_.tokens.assign(kFakeVocab, ""); }
  std::vector<TokenId> encode(std::string_view, const EncodeOptions&) const override { return {}; }
  std::vector<TokenId> encode_pieces(std::span<const TextPiece>, bool) const override { return {}; }
  std::string_view token_bytes(TokenId id, bool) const override {
    constexpr std::string_view kBytes[] = {"", "a", "b", "ab"};
    return is_end_of_generation(id) ? "" : kBytes[id % 4];
  }
  std::string decode(std::span<const TokenId>, bool) const override { return {}; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  bool is_end_of_generation(TokenId id) const override { return NaiveMatcher::contains(kFakeEnds, id); }
  std::span<const TokenId> end_of_generation_ids() const override { return kFakeEnds; }

 private:
  Vocabulary vocabulary_;
};

RowSampling row_of(const Request& request) {
  const SamplingParams& params = request.sampling;
  const bool changes_logits = !params.logit_bias.empty() || request.min_tokens > 0 || !params.bad_words.empty() ||
                              params.no_repeat_ngram_size > 0 || !request.processors.empty();
  RowSampling row;
  row.flags = (params.has_penalties() ? kRowPenalties : 0u) | (changes_logits ? kRowBias : 0u);
  row.temperature = params.temperature;
  row.top_k = params.top_k;
  row.top_p = params.top_p;
  row.min_p = params.min_p;
  row.repetition_penalty = params.repetition_penalty;
  row.presence_penalty = params.presence_penalty;
  row.frequency_penalty = params.frequency_penalty;
  row.seed_lo = static_cast<uint32_t>(params.seed);
  row.seed_hi = static_cast<uint32_t>(params.seed >> 32);
  row.branch = params.branch;
  return row;
}

bool ends_with(std::span<const int32_t> tokens, std::span<const int32_t> end) {
  return end.size() <= tokens.size() && std::ranges::equal(tokens.last(end.size()), end);
}

// Whether the last n tokens stand there twice.
bool repeats(std::span<const int32_t> tokens, size_t n) {
  if (tokens.size() < n) return false;
  for (size_t end = n; end < tokens.size(); ++end)
    if (tokens[end - 1] == tokens.back() && ends_with(tokens.first(end), tokens.last(n))) return true;
  return false;
}

// Each token tried in its turn: may it follow?
std::vector<BiasEntry> bias_of(const Request& request, const std::vector<int32_t>& tokens) {
  const SamplingParams& sampling = request.sampling;
  std::map<int32_t, float> sums;
  for (const auto& [token, value] : sampling.logit_bias) sums[token] += value;
  std::vector<TokenBias> processed;
  for (const auto& processor : request.processors)
    processor->process(tokens, static_cast<uint32_t>(request.prompt.size()), &processed);
  for (const auto& [token, value] : processed) sums[token] += value;
  const bool may_end = tokens.size() - request.prompt.size() >= request.min_tokens;
  std::vector<int32_t> with = tokens;
  with.push_back(0);
  for (int32_t token = 0; token < static_cast<int32_t>(kFakeVocab); ++token) {
    with.back() = token;
    bool banned = !may_end && (NaiveMatcher::contains(request.stop.token_ids, token) ||
                               (!request.stop.ignore_eos && NaiveMatcher::contains(kFakeEnds, token)));
    banned |= sampling.no_repeat_ngram_size > 0 && repeats(with, sampling.no_repeat_ngram_size);
    for (const std::vector<int32_t>& word : sampling.bad_words) banned |= ends_with(with, word);
    if (banned) sums[token] = kBan;
  }
  std::vector<BiasEntry> bias;
  for (const auto& [token, value] : sums) bias.push_back({token, value});
  return bias;
}

}  // namespace

uint64_t fake_layer0(int32_t token, uint32_t position, uint32_t adapter_id) {
  return mix(mix(static_cast<uint64_t>(static_cast<int64_t>(token)), position), adapter_id);
}
uint64_t fake_layer1(uint64_t layer0, uint64_t sum0) {
  return mix(layer0, sum0);
}
uint64_t fake_hidden(uint64_t sum0, uint64_t sum1, uint32_t position) {
  return mix(mix(sum0, sum1), position);
}
uint64_t fake_state(uint64_t before, uint64_t layer0) {
  return before * 31 + read_cell(layer0);
}
uint64_t mix_groups(uint64_t of_former, uint64_t hidden, uint32_t group) {
  return group == 0 ? hidden : mix(of_former, hidden);
}

uint32_t adapter_at(const Request& request, uint32_t position) {
  return position >= request.adapter_start.value_or(0) ? request.adapter_id : 0;
}

FakeReader::FakeReader(std::span<const FakeGroup> groups, const Request& request) : request_(&request) {
  for (const FakeGroup& group : groups) sums_.push_back({.group = group, .cells = {}});
}

uint64_t FakeReader::read(int32_t token) {
  const uint64_t layer0 = fake_layer0(token, position_, adapter_at(*request_, position_));
  uint64_t hidden = 0;
  for (uint32_t g = 0; g < sums_.size(); ++g) hidden = mix_groups(hidden, read(sums_[g], layer0), g);
  ++position_;
  return hidden;
}

uint64_t FakeReader::read(Sums& sums, uint64_t layer0) {
  if (sums.group.is_state) {
    sums.state = fake_state(sums.state, layer0);
    return fake_hidden(sums.state, 0, position_);
  }
  const uint32_t window = sums.group.window;
  const bool is_full = window > 0 && position_ >= window;
  if (is_full) sums.sum0 -= read_cell(sums.cells[position_ - window].layer0);
  if (is_full) sums.sum1 -= read_cell(sums.cells[position_ - window].layer1);
  sums.sum0 += read_cell(layer0);
  sums.cells.push_back({layer0, fake_layer1(layer0, sums.sum0)});
  sums.sum1 += read_cell(sums.cells.back().layer1);
  return fake_hidden(sums.sum0, sums.sum1, position_);
}

SampleResult fake_draw(uint64_t hidden, const RowSampling& row, const FakeCounts& counts, uint32_t output_position,
                       std::span<const BiasEntry> bias, uint32_t poison, const TokenMask* mask) {
  if (is_poisoned(hidden, poison)) return poisoned_result();
  uint64_t key = hidden;
  for (const uint32_t word : {row.flags, std::bit_cast<uint32_t>(row.temperature), row.top_k,
                              std::bit_cast<uint32_t>(row.top_p), std::bit_cast<uint32_t>(row.min_p)}) {
    key = mix(key, word);
  }
  if (row.temperature != 0) {
    for (const uint32_t word : {row.seed_lo, row.seed_hi, row.branch, output_position}) key = mix(key, word);
  }
  if (row.flags & kRowPenalties) {
    for (const float value : {row.repetition_penalty, row.presence_penalty, row.frequency_penalty}) {
      key = mix(key, std::bit_cast<uint32_t>(value));
    }
    key = mix(mix(key, counts.prompt), counts.output);
  }
  std::vector<bool> banned(kFakeVocab, false);
  if (row.flags & kRowBias) {
    for (const BiasEntry& entry : bias) {
      if (std::isinf(entry.bias)) {
        banned[static_cast<size_t>(entry.token)] = true;
      } else {
        key = mix(mix(key, static_cast<uint64_t>(entry.token)), std::bit_cast<uint32_t>(entry.bias));
      }
    }
  }
  for (size_t token = 0; mask != nullptr && token < kFakeVocab; ++token)
    if (!mask->allows(static_cast<int32_t>(token))) banned[token] = true;
  SampleResult result = {};
  if (std::ranges::count(banned, true) == kFakeVocab) {
    result.token = -1;
    result.flags = kResultEmptySupport;
    return result;
  }
  for (uint64_t attempt = 0;; ++attempt) {
    result.token = static_cast<int32_t>(mix(key, attempt) % kFakeVocab);
    if (!banned[static_cast<size_t>(result.token)]) break;
  }
  result.logprob = fake_logprob(hidden, result.token);
  result.processed_logprob = -static_cast<float>(mix(key, 14) % 1024) / 64.0f;
  result.support = 1;
  return result;
}

float fake_logprob(uint64_t hidden, int32_t token) {
  return -static_cast<float>(mix(hidden, static_cast<uint64_t>(token)) % 1024) / 64.0f;
}

SampleResult fake_score(uint64_t hidden, int32_t token, uint32_t poison) {
  if (is_poisoned(hidden, poison)) return poisoned_result();
  SampleResult result = {};
  result.token = token;
  result.logprob = fake_logprob(hidden, token);
  return result;
}

namespace {

// However late.
NextTokens mask_of(ConstraintMatcher* constraint) {
  NextTokens next = constraint->next();
  while (next.state == NextTokens::State::kLate) next = constraint->next();
  return next;
}

}  // namespace

FakeAnswer answer_alone(const Request& request, const Tokenizer& tokenizer, uint32_t poison,
                        std::span<const FakeGroup> groups) {
  FakeAnswer answer;
  const RowSampling row = row_of(request);
  const auto filter = request.policy ? request.policy->begin() : nullptr;
  NaiveMatcher matcher{request.stop, request.min_tokens, request.max_tokens, kFakeEnds};
  const auto constraint = request.constraint ? request.constraint->start() : nullptr;
  FakeCounts counts;
  for (const int32_t token : request.prompt) counts.add_prompt(token);
  if (request.max_tokens == 0 && (!request.sampling.prompt_logprobs || request.prompt.size() == 1)) {
    answer.finish = FinishReason::kLength;
    return answer;
  }
  std::vector<int32_t> tokens = request.prompt;
  FakeReader reader(groups, request);
  for (uint32_t position = 0;; ++position) {
    const uint64_t hidden = reader.read(tokens[position]);
    if (position + 1 < request.prompt.size()) {
      if (!request.sampling.prompt_logprobs) continue;
      const SampleResult result = fake_score(hidden, tokens[position + 1], poison);
      if (result.flags != 0) {
        answer.finish = FinishReason::kError;
        return answer;
      }
      answer.prompt_logprobs.push_back(result.logprob);
      if (request.max_tokens > 0 || position + 2 < request.prompt.size()) continue;
      answer.finish = FinishReason::kLength;
      return answer;
    }
    const uint32_t output_position = static_cast<uint32_t>(answer.tokens.size());
    const NextTokens next = constraint ? mask_of(constraint.get()) : NextTokens();
    const SampleResult result =
        fake_draw(hidden, row, counts, output_position, bias_of(request, tokens), poison, next.mask.get());
    if (result.flags != 0 || next.error) {
      answer.finish = FinishReason::kError;
      return answer;
    }
    counts.add_output(result.token);
    tokens.push_back(result.token);
    answer.tokens.push_back(result.token);
    if (request.sampling.logprobs >= 0)
      answer.logprobs.push_back(request.sampling.processed_logprobs ? result.processed_logprob : result.logprob);
    const std::string_view bytes = tokenizer.token_bytes(result.token);
    StopVerdict verdict = matcher.advance(result.token, bytes);
    const PolicyVerdict policy = filter ? filter->advance(result.token, bytes) : PolicyVerdict{};
    if (policy.stops)
      verdict = {.cut_bytes = std::max(policy.cut_bytes, verdict.cut_bytes), .finish = FinishReason::kPolicy};
    answer.text += bytes;
    if (constraint) constraint->advance(result.token);
    const bool is_open = verdict.finish == FinishReason::kNone || verdict.finish == FinishReason::kLength;
    if (constraint && is_open && constraint->ended()) verdict.finish = FinishReason::kGrammarEnd;
    if (verdict.finish == FinishReason::kNone) continue;
    answer.text.resize(answer.text.size() - verdict.cut_bytes);
    answer.finish = verdict.finish;
    return answer;
  }
}

std::vector<FakeAnswer> beams_alone(const Request& request, const Tokenizer& tokenizer, uint32_t poison,
                                    std::span<const FakeGroup> groups) {
  FakeReader prompt(groups, request);
  uint64_t prompt_hidden = 0;
  for (const int32_t token : request.prompt) prompt_hidden = prompt.read(token);
  const auto next = [&](const std::vector<int32_t>& output) {
    FakeReader reader = prompt;
    uint64_t hidden = prompt_hidden;
    for (const int32_t token : output) hidden = reader.read(token);
    std::vector<float> logprobs;
    if (is_poisoned(hidden, poison)) return logprobs;
    for (int32_t token = 0; token < static_cast<int32_t>(kFakeVocab); ++token)
      logprobs.push_back(fake_logprob(hidden, token));
    return logprobs;
  };
  const auto found = naive_beam_search(request, request.stop.ignore_eos ? std::vector<int32_t>() : kFakeEnds, next);
  std::vector<FakeAnswer> answers(request.n);
  for (size_t i = 0; i < answers.size(); ++i) {
    answers[i].finish = found ? (*found)[i].finish : FinishReason::kError;
    if (found) answers[i].tokens = (*found)[i].tokens;
    for (const int32_t token : answers[i].tokens) answers[i].text += tokenizer.token_bytes(token);
  }
  return answers;
}

std::shared_ptr<const Model> make_fake_model(bool is_hybrid) {
  auto model = std::make_shared<Model>();
  model->path = "fake";
  model->encoding = "f32";
  ModelConfig& config = model->config;
  config.architecture = "fake";
  config.width = 8;
  config.vocab_size = kFakeVocab;
  config.context_max = kFakeContextMax;
  LayerSpec layer;
  layer.num_heads = layer.num_kv_heads = 1;
  layer.head_dim = layer.rope.dim = layer.ffn_width = 8;
  config.layers = {layer};
  if (is_hybrid) {
    layer.attention = AttentionKind::kShortConv;
    layer.recurrent = {.conv_width = 2, .conv_columns = 8};
    config.layers.push_back(layer);
    assign_cache_groups(config.layers);
  }
  config.rope_freqs = {{}};
  model->rope_freqs = {-1};
  model->layers.resize(config.layers.size());
  if (is_hybrid) {
    model->weights.groups.push_back({.name = "shortconv", .rows = 3 * 8, .columns = 8});  // B, C and X
    model->layers[1].recurrent.in = 0;
  }
  return model;
}

std::shared_ptr<const Tokenizer> make_fake_tokenizer() {
  return std::make_shared<FakeTokenizer>();
}

}  // namespace llmrt::test
