#include "tests/ops/recurrent_script.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "core/backend/validating.h"
#include "core/base/checked_math.h"
#include "tests/reference/backend.h"
#include "tests/reference/number.h"

namespace llmrt::optest {
namespace {

constexpr uint32_t kLayers = 2, kFirst = 8;

using Numbers = std::vector<double>;

std::vector<std::byte> bytes_of_numbers(const Numbers& numbers, DType dtype) {
  std::vector<std::byte> bytes(numbers.size() * dtype_bytes(dtype));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float wide = static_cast<float>(numbers[i]);
    const uint16_t narrow = dtype == DType::kF16 ? reference::f16_bits(numbers[i]) : reference::bf16_bits(numbers[i]);
    if (dtype == DType::kF32)
      std::memcpy(bytes.data() + i * 4, &wide, 4);
    else
      std::memcpy(bytes.data() + i * 2, &narrow, 2);
  }
  return bytes;
}

// In the order of a step: stores, loads, copies. Host records lie behind those of the pool.
void move_records(const ForwardInputs& in, uint32_t num_records, KvBytes* kv) {
  for (auto& layer : *kv) {
    for (const BlockCopy& move : in.block_stores) layer[num_records + move.target] = layer[move.source];
    for (const BlockCopy& move : in.block_loads) layer[move.target] = layer[num_records + move.source];
    for (const BlockCopy& move : in.block_copies) layer[move.target] = layer[move.source];
  }
}

}  // namespace

RecurrentRule::Tokens first_of(const RecurrentRule::Tokens& tokens, uint32_t count) {
  return {tokens.begin(), tokens.begin() + count};
}

void Text::take_back(uint32_t count) {
  taken_back.assign(tokens.end() - static_cast<std::ptrdiff_t>(count), tokens.end());
  tokens.resize(tokens.size() - count);
}

uint32_t RecurrentRule::first_of(uint32_t input) const {
  uint32_t first = 0;
  for (uint32_t i = 0; i < input; ++i) first += inputs[i];
  return first;
}

void RecurrentRule::record(const Tokens& tokens, uint32_t first_token, RuleFault fault, const Put& put) const {
  const auto count = static_cast<uint32_t>(tokens.size()), base = count / kRingTokens * kRingTokens;
  if (conv_width > 0) {
    const uint32_t slots = conv_slots(conv_width);
    for (uint32_t p = std::max(first_token, count - std::min(count, slots)); p < count; ++p)
      put(uint64_t{p % slots} * out_columns, kept_input(tokens, p, fault));
    return;
  }
  if (!ring) return put(0, state(tokens, fault));
  if (base > 0) put(0, state(llmrt::optest::first_of(tokens, base), fault));
  if (base == count) return;
  const std::vector<RingEntry> all = entries(tokens, fault);
  for (uint32_t p = base; p < count; ++p) {
    const auto put_part = [&](uint64_t first, const std::vector<double>& numbers, uint32_t idx, uint32_t size) {
      const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(idx * size);
      put(ring->matrix_numbers() + first, {begin, begin + size});
    };
    for (uint32_t head = 0; head < ring->key_heads; ++head)
      put_part(ring->keys(head, p), all[p].keys, head, ring->key_dim);
    for (uint32_t head = 0; head < ring->heads; ++head) {
      put_part(ring->values(head, p), all[p].values, head, ring->value_dim);
      put_part(ring->decay(head, p), all[p].decays, head, 1);
    }
  }
}

RecurrentScript::RecurrentScript(const std::string& what, RecurrentRule rule, bool packed, std::mt19937_64& rng,
                                 uint32_t num_records)
    : rule_(std::move(rule)), packed_(packed), rng_(rng), part_{0, 1, kFirst, rule_.ring_tokens()} {
  test_case_.name = fmt::format("{} {}{}", rule_.name, what, packed ? " packed" : "");
  test_case_.variant = dtype_name(rule_.out_dtype);
  const KvGroup states{.num_layers = kLayers,
                       .block_tokens = 64,
                       .num_blocks = num_records,
                       .num_host_blocks = 2,
                       .state_columns = kFirst + round_up(static_cast<uint32_t>(rule_.state_numbers), 4u) + 4};
  test_case_.groups = {states};
  test_case_.kv = {random_kv(states, rng)};
  test_case_.state_tolerance = 1e-4;
  if (!rule_.ring && rule_.conv_width == 0) return;
  // What does not count is not read.
  const std::vector<std::byte> poison = bytes_of_numbers(Numbers(rule_.state_numbers, NAN), DType::kF32);
  for (std::vector<std::byte>& record : test_case_.kv[0][part_.layer])
    std::ranges::copy(poison, record.begin() + kFirst * 4);
}

Step& RecurrentScript::add_step(const std::vector<TextRow>& rows, uint32_t bucket) {
  Step& step = test_case_.steps.emplace_back();
  std::vector<Run>& runs = steps_.emplace_back();
  step.forward.ops = {UpdateRows{}};
  bool decodes = true;
  for (const TextRow& row : rows) {
    const uint32_t start = static_cast<uint32_t>(row.text->tokens.size());
    RowRecord& record = step.forward_inputs.rows[step.add_row(row.slot, start, row.num_tokens)];
    step.patch_table(row.slot, 0, {row.record});
    std::vector<StatePlace>& places = step.forward_inputs.state_places;
    record.places_first = static_cast<uint32_t>(places.size());
    if (row.from >= 0) places.push_back({0, static_cast<uint32_t>(row.from), start});
    for (const Save& save : row.saves) places.push_back({0, save.record, save.position});
    record.num_places = static_cast<uint32_t>(places.size()) - record.places_first;
    for (uint32_t i = 0; i < row.num_tokens; ++i) {
      std::vector<double>& token = row.text->tokens.emplace_back();
      for (uint32_t input = 0; input < rule_.inputs.size(); ++input) {
        const std::vector<double> numbers = rule_.draw(input, rng_);
        token.insert(token.end(), numbers.begin(), numbers.end());
      }
      for (double& number : token) number = static_cast<double>(static_cast<float>(number));
    }
    decodes &= row.num_tokens <= kRingRowTokens;
    runs.push_back({row, start, row.text->tokens, row.text->taken_back});
    row.text->taken_back.clear();
  }
  step.forward.decode_only = decodes;
  step.set_bucket(bucket);
  add_op(runs, &step);
  return step;
}

void RecurrentScript::add_op(const std::vector<Run>& runs, Step* step) {
  std::vector<std::pair<uint32_t, uint32_t>> tensors;  // columns [first, second) of all inputs
  if (packed_)
    tensors = {{0, rule_.first_of(static_cast<uint32_t>(rule_.inputs.size()))}};
  else
    for (uint32_t i = 0; i < rule_.inputs.size(); ++i) tensors.push_back({rule_.first_of(i), rule_.first_of(i + 1)});
  std::vector<Columns> inputs;
  for (const auto& [first, end] : tensors) {
    const uint32_t before = packed_ ? 3 : 0, columns = before + end - first;
    std::vector<double> values;
    for (const Run& run : runs) {
      for (size_t t = run.start; t < run.tokens.size(); ++t) {
        values.insert(values.end(), before, NAN);
        values.insert(values.end(), run.tokens[t].begin() + first, run.tokens[t].begin() + end);
      }
    }
    const TensorId id =
        step->input(Rows::kTokens, fmt::format("in{}", inputs.size()), columns, DType::kF32, std::move(values));
    if (!packed_) inputs.push_back({id, 0});
    for (uint32_t i = 0; packed_ && i < rule_.inputs.size(); ++i) inputs.push_back({id, before + rule_.first_of(i)});
  }
  const TensorId out =
      step->output(Rows::kTokens, "out", rule_.out_columns, rule_.out_dtype, Tolerance::kRecurrent, rule_.out_dtype);
  step->forward.ops.push_back(rule_.make_op(inputs, part_, out));
  outs_.push_back(out);
}

Outcome RecurrentScript::expected(RowFault row_fault, RuleFault rule_fault) const {
  Outcome outcome;
  outcome.kv = test_case_.kv;
  for (size_t s = 0; s < steps_.size(); ++s) {
    std::vector<double> out;
    move_records(test_case_.steps[s].forward_inputs, test_case_.groups[0].num_blocks, &outcome.kv[0]);
    for (size_t r = 0; r < steps_[s].size(); ++r) {
      const Run& run = steps_[s][r];
      const auto put = [&](uint32_t record, const RecurrentRule::Tokens& tokens, uint32_t first_token) {
        rule_.record(tokens, first_token, rule_fault, [&](uint64_t first, const Numbers& numbers) {
          const auto place = outcome.kv[0][part_.layer][record].begin() + static_cast<std::ptrdiff_t>(4 * first);
          std::ranges::copy(bytes_of_numbers(numbers, DType::kF32), place + kFirst * 4);
        });
      };
      // The text as the faulty row knows it.
      RecurrentRule::Tokens tokens = run.tokens;
      uint32_t start = run.start;
      if (row_fault == RowFault::kStateLost) {
        tokens.erase(tokens.begin(), tokens.begin() + start);
        start = 0;
      }
      if (row_fault == RowFault::kTailLost && start > 0) tokens.erase(tokens.begin() + --start);
      if (row_fault == RowFault::kRingLost) {
        const uint32_t base = start / kRingTokens * kRingTokens;
        tokens.erase(tokens.begin() + base, tokens.begin() + start);
        start = base;
      }
      if (row_fault == RowFault::kOtherRowsState && start > 0 && steps_[s].size() > 1) {
        const Run& other = steps_[s][(r + 1) % steps_[s].size()];
        tokens.erase(tokens.begin(), tokens.begin() + start);
        tokens.insert(tokens.begin(), other.tokens.begin(), other.tokens.begin() + other.start);
        start = other.start;
      }
      if (row_fault == RowFault::kNotTakenBack) {
        const auto count = std::min<std::ptrdiff_t>(start, std::ssize(run.taken_back));
        std::copy_n(run.taken_back.begin(), count, tokens.begin() + (start - count));
      }
      const std::vector<double> numbers = rule_.outputs(tokens, rule_fault);
      out.insert(out.end(), numbers.begin() + static_cast<std::ptrdiff_t>(size_t{start} * rule_.out_columns),
                 numbers.end());
      put(run.row.record, tokens, run.row.from >= 0 ? rule_.first_kept(start) : start);
      for (const Save& save : run.row.saves) {
        const uint32_t count = save.position - run.start + start, late = row_fault == RowFault::kPlaceOneTokenLate;
        const uint32_t end = std::min(count + late, static_cast<uint32_t>(tokens.size()));
        put(save.record, first_of(tokens, end), rule_.first_kept(end));
      }
    }
    const Step& step = test_case_.steps[s];
    out.resize(size_t{step.forward.num_tokens} * rule_.out_columns);
    outcome.tensors.emplace_back()[outs_[s]] = bytes_of_numbers(out, rule_.out_dtype);
  }
  outcome.outputs.resize(steps_.size());
  return outcome;
}

RecurrentScript mixed_script(const RecurrentRule& rule, bool packed, bool is_long, std::mt19937_64& rng) {
  RecurrentScript script(is_long ? "mixed long" : "mixed", rule, packed, rng);
  Text a, b, c, d, e, f;
  script.add_step({{&a, 3, 4, 5}, {&b, 0, 0, 1}, {&c, 2, 8, 67, -1, {{64, 5}}}}, is_long ? 128 : 80);
  e.tokens = first_of(c.tokens, 64);
  script.add_step({{&c, 2, 8, 1}, {&d, 7, 1, 2}, {&a, 3, 4, 3}}, 8);
  script.add_step({{&b, 0, 0, 1}, {&c, 2, 8, 1}, {&a, 3, 4, 1}}, 4);
  // From a checkpoint, which stays; the last place is at the row's end.
  if (is_long)
    script.add_step({{&b, 0, 0, 2}, {&e, 5, 2, 128, 5, {{128, 6}, {192, 3}}}}, 136);
  else
    script.add_step({{&b, 0, 0, 2}, {&e, 5, 2, 64, 5, {{128, 6}}}}, 66);
  // A branch of a parked text beside its source's neighbours; a new text in a record that another one left.
  f.tokens = c.tokens;
  Text g;
  Step& step = script.add_step({{&g, 9, 1, 1}, {&f, 1, 7, 1, 8}, {&e, 5, 2, 1}}, 3);
  step.add_update(RowUpdateKind::kClear, 7, 0, 0);
  script.add_step({{&f, 1, 7, 3}, {&c, 2, 8, 9}, {&g, 9, 1, 1}}, 16);
  return script;
}

RecurrentScript moves_script(const RecurrentRule& rule, std::mt19937_64& rng) {
  RecurrentScript script("moves", rule, false, rng);
  Text a, b;
  script.add_step({{&a, 0, 3, 5}}, 8);
  Text branch = a, back = a, late = a;
  Step& leaves = script.add_step({{&b, 1, 3, 4}, {&branch, 2, 6, 1}}, 6);
  leaves.memory.ops = {StoreBlocks{0}, LoadBlocks{0}, CopyBlocks{0}};
  leaves.forward_inputs.block_stores = {{3, 1, 64}};
  leaves.forward_inputs.block_copies = {{3, 6, 64}};
  Step& returns = script.add_step({{&late, 5, 8, 2}, {&back, 4, 5, 1}, {&b, 1, 3, 1}}, 4);
  returns.memory.ops = {StoreBlocks{0}, LoadBlocks{0}, CopyBlocks{0}};
  returns.forward_inputs.block_loads = {{1, 5, 64}};
  returns.forward_inputs.block_copies = {{5, 8, 64}};
  return script;
}

RecurrentScript ring_script(const RecurrentRule& rule, uint32_t num_tokens, std::mt19937_64& rng) {
  constexpr uint32_t kTexts = 7;
  RecurrentScript script(fmt::format("rows of {} tokens from anywhere", num_tokens), rule, false, rng, 2 * kTexts);
  for (uint32_t first = 1; first <= kRingTokens; first += kTexts) {
    std::vector<Text> texts(kTexts), branches;
    std::vector<TextRow> begin, others, more;
    const uint32_t before = first % 2 * kRingTokens;
    for (uint32_t i = 0; i < kTexts; ++i) begin.push_back({&texts[i], i, i, before + first + i});
    script.add_step(begin, kTexts * (before + first + kTexts));
    branches = texts;
    for (uint32_t i = 0; i < kTexts; ++i)
      others.push_back({&branches[i], i + kTexts, i + kTexts, num_tokens, static_cast<int32_t>(i)});
    script.add_step(others, kTexts * num_tokens);
    for (uint32_t i = 0; i < kTexts; ++i) {
      more.push_back({&texts[i], i, i, num_tokens});
      more.push_back({&branches[i], i + kTexts, i + kTexts, 1});
    }
    script.add_step(more, kTexts * (num_tokens + 1));
  }
  return script;
}

uint32_t most_back(uint32_t start, uint32_t count) {
  uint32_t most = std::min(count - 1, kStateBackTokens);
  // The matrices behind the first token that is taken back are those that stay.
  while (most > 0 && (start + count) / kRingTokens != (start + count - most) / kRingTokens) --most;
  return most;
}

RecurrentScript back_script(const RecurrentRule& rule, uint32_t num_tokens, std::mt19937_64& rng) {
  constexpr uint32_t kTexts = 8;
  RecurrentScript script(fmt::format("rows of {} tokens behind some that are taken back", num_tokens), rule, false, rng,
                         3 * kTexts);
  for (const uint32_t first : {1u, 9u, 17u, 25u, 57u}) {
    std::vector<Text> texts(kTexts), branches, saved(kTexts);
    std::vector<TextRow> rows;
    for (uint32_t i = 0; i < kTexts; ++i) rows.push_back({&texts[i], i, i, first + i});
    script.add_step(rows, kTexts * (first + kTexts));
    // 1 to 4 tokens a step, of which all but the first are taken back as far as they can be.
    for (uint32_t round = 0; round < 3; ++round) {
      rows.clear();
      for (uint32_t i = 0; i < kTexts; ++i) {
        TextRow& row = rows.emplace_back(TextRow{&texts[i], i, i, 1 + (i + round) % kRingRowTokens});
        if (texts[i].tokens.size() == kStatePlaceTokens - 1) row.saves = {{kStatePlaceTokens, i + 2 * kTexts}};
      }
      std::vector<uint32_t> starts;
      for (const Text& text : texts) starts.push_back(static_cast<uint32_t>(text.tokens.size()));
      script.add_step(rows, kTexts * kRingRowTokens);
      for (uint32_t i = 0; i < kTexts; ++i) {
        if (!rows[i].saves.empty()) saved[i].tokens = first_of(texts[i].tokens, kStatePlaceTokens);
        texts[i].take_back(most_back(starts[i], rows[i].num_tokens));
      }
    }
    branches = texts;
    rows.clear();
    for (uint32_t i = 0; i < kTexts; ++i)
      rows.push_back({&branches[i], i + kTexts, i + kTexts, num_tokens, static_cast<int32_t>(i)});
    script.add_step(rows, kTexts * num_tokens);
    rows.clear();
    for (uint32_t i = 0; i < kTexts; ++i) {
      rows.push_back({&texts[i], i, i, num_tokens});
      rows.push_back({&branches[i], i + kTexts, i + kTexts, 1});
    }
    script.add_step(rows, kTexts * (num_tokens + 1));
    rows.clear();
    for (uint32_t i = 0; i < kTexts; ++i)
      if (!saved[i].tokens.empty()) rows.push_back({&saved[i], i, i, num_tokens, static_cast<int32_t>(i + 2 * kTexts)});
    if (!rows.empty()) script.add_step(rows, kTexts * num_tokens);
  }
  return script;
}

RecurrentScript cut_script(const RecurrentRule& rule, uint32_t num_tokens, std::mt19937_64& rng) {
  RecurrentScript script(fmt::format("{} tokens cut", num_tokens), rule, false, rng);
  Text text;
  while (text.tokens.size() < num_tokens) {
    const uint32_t left = num_tokens - static_cast<uint32_t>(text.tokens.size());
    const uint32_t most = rng() % 3 == 0 ? 3 : 70;
    const uint32_t count = std::min<uint32_t>(left, 1 + static_cast<uint32_t>(rng() % most));
    script.add_step({{&text, 1, 3, count}}, count + static_cast<uint32_t>(rng() % 3));
  }
  return script;
}

void check_scripts(Suite suite, const std::vector<RecurrentScript>& scripts) {
  for (const RecurrentScript& script : scripts) suite.cases.push_back(script.test_case());
  const auto backend = make_validating(make_reference_backend());
  REQUIRE(backend->load_weights(suite.weights, {}).ok());
  REQUIRE(backend->create_state(state_config(suite, *backend)).ok());
  for (const RecurrentScript& script : scripts) {
    const auto outcome = execute(*backend, script.test_case());
    INFO(script.test_case().name << ": " << (outcome ? "" : outcome.error().message));
    REQUIRE(outcome.ok());
    if (script.test_case().variant != dtype_name(DType::kF32)) continue;  // poison does not come back bit by bit
    CHECK(compare(script.test_case(), script.expected(), *outcome, backend->caps()) == std::vector<std::string>());
  }
  run(suite);
}

}  // namespace llmrt::optest
