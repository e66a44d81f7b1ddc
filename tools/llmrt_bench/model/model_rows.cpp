#include "tools/llmrt_bench/model/model_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/ops/op_list.h"
#include "core/weights/weight_bytes.h"
#include "tools/llmrt_bench/record/price.h"
#include "tools/llmrt_bench/record/stats.h"

namespace llmrt::bench {
namespace {

struct Matrices {
  double bytes = 0, numbers = 0, head_numbers = 0;
};

// All that a step of so many rows reads, and what one of them multiplies with: everything but the input embedding. The
// head is apart, as prompts need one row of it. Of experts those count that are chosen, evenly.
Matrices matrices_of(const Model& model, double rows) {
  uint32_t used = 0;
  for (const LayerSpec& layer : model.config.layers) used = std::max(used, layer.experts.routed_per_row());
  Matrices sum;
  for (size_t i = 0; i < model.weights.groups.size(); ++i) {
    const WeightGroup& group = model.weights.groups[i];
    const bool has_experts = group.num_experts > 0 && !group.by_head;
    const double read = has_experts ? expected_distinct_experts(group.num_experts, used, rows) / group.num_experts : 1;
    const double multiplied = has_experts ? double{used} / group.num_experts : 1;
    sum.bytes += read * static_cast<double>(bytes_of(model.weights, group));
    const double numbers = multiplied * static_cast<double>(group.rows) * static_cast<double>(group.columns);
    (static_cast<WeightGroupId>(i) == model.head ? sum.head_numbers : sum.numbers) += numbers;
  }
  return sum;
}

// Keys of a layer that `count` tokens behind `depth` others look at, together.
double keys_seen(const LayerSpec& layer, double depth, double count) {
  const double window = layer.window > 0 ? layer.window : HUGE_VAL;
  const double before = std::clamp(window - depth, 0.0, count);  // tokens that see all keys
  return before * depth + before * (before + 1) / 2 + (count > before ? (count - before) * window : 0);
}

// Operations of a token on a layer's state. As in core/ops/cost.cpp.
double state_flops(const LayerSpec& layer) {
  const RecurrentSpec& spec = layer.recurrent;
  const double conv = 2.0 * spec.conv_width * spec.conv_columns;
  const double numbers = 1.0 * spec.value_heads * spec.value_dim * spec.key_dim;
  return conv + (layer.attention == AttentionKind::kGatedDelta      ? 7
                 : layer.attention == AttentionKind::kSelectiveScan ? 5
                                                                    : 0) *
                    numbers;
}

}  // namespace

std::string ModelTest::name() const {
  return is_prompt() ? fmt::format("pp{}", n_prompt) : fmt::format("tg{}@{} x{}", n_gen, n_depth, n_rows);
}

uint32_t ModelTest::tokens() const {
  return is_prompt() ? n_prompt : n_gen * n_rows;
}

double ModelTest::weight() const {
  constexpr double kTokensStep = 32;  // a step of few rows takes about as long as so many tokens of a prompt
  return is_prompt() ? n_prompt : 1.0 * n_depth * n_rows + n_gen * std::max<double>(n_rows, kTokensStep);
}

boost::json::object ModelTest::to_json() const {
  return {{"n_prompt", n_prompt}, {"n_gen", n_gen}, {"n_depth", n_depth}, {"n_rows", n_rows}};
}

Status run_once(Engine* engine, const Clock& clock, const ModelTest& test, uint64_t seed, ModelSamples* samples) {
  if (test.is_prompt()) {
    Result<BatchResult> run = run_batch(engine, clock, {.prompt_tokens = test.n_prompt, .output_tokens = 1}, seed);
    if (!run) return run.error();
    samples->tok_s.push_back(test.n_prompt / run->prefill_s);
    samples->ms.push_back(1e3 * run->prefill_s);
    return {};
  }
  const Batch batch{test.n_rows, test.n_depth, test.n_gen, test.drafts, test.draft_tokens};
  Result<BatchResult> run = run_batch(engine, clock, batch, seed);
  if (!run) return run.error();
  if (run->decode_steps == 0)
    return make_error(ErrorCode::kInvalidArgument,
                      "{} rows: expected more output tokens than the {} that the first row had before the last prompt "
                      "was done; ask for more with --output",
                      test.n_rows, test.n_gen);
  samples->tok_s.push_back(run->decode_tok_s);
  samples->ms.push_back(run->step_ms);
  samples->idle_share.push_back(run->idle_share);
  samples->prefill_s.push_back(run->prefill_s);
  samples->all_s.push_back(1.0 * test.n_rows * test.n_gen / run->end_to_end_tok_s);
  return {};
}

double ModelRow::tok_s() const {
  return median(samples.tok_s);
}

double ModelRow::ms() const {
  return median(samples.ms);
}

double ModelRow::limit_share() const {
  const double limit = test.is_prompt() ? ceilings.matrix_tflop_s : ceilings.read_gb_s;
  return limit > 0 ? (test.is_prompt() ? tflop_s() : gb_s()) / limit : 0;
}

std::optional<double> ModelRow::usd_mtok() const {
  return bench::usd_mtok(price_hour_usd, tok_s());
}

RecordRow ModelRow::to_record() const {
  RecordRow row{test.name(), caps.device_id, {}, test.to_json()};
  row.values = {median_value("tok_s", "tok/s", samples.tok_s),
                median_value("ms", "ms", samples.ms),
                {"bytes", "bytes", bytes},
                {"flops", "FLOP", flops}};
  if (!test.is_prompt()) {
    row.values.push_back(median_value("idle", "share", samples.idle_share));
    row.values.push_back(median_value("prefill", "s", samples.prefill_s));
    row.values.push_back(median_value("all", "s", samples.all_s));
  }
  if (limit_share() > 0) row.values.push_back({"of_limit", "share", limit_share()});
  if (price_hour_usd > 0) row.values.push_back({"price", "USD/Mtok", usd_mtok().value_or(NAN)});
  return row;
}

ModelRow make_row(const Model& model, const EngineConfig& config, const ModelTest& test, ModelSamples samples) {
  ModelRow row;
  row.test = test;
  row.samples = std::move(samples);
  const ModelConfig& c = model.config;
  const double tokens = test.is_prompt() ? test.n_prompt : test.n_rows;
  const Matrices matrices = matrices_of(model, tokens);
  row.bytes = matrices.bytes;
  row.flops = 2 * (matrices.numbers * tokens + matrices.head_numbers * (test.is_prompt() ? 1 : tokens));
  for (const LayerSpec& layer : c.layers) {
    const double key_bytes = 2.0 * layer.num_kv_heads * layer.head_dim * kv_element_bytes(config.kv_dtype);
    const double keys = test.is_prompt() ? keys_seen(layer, 0, tokens)
                                         : tokens * keys_seen(layer, test.n_depth + test.n_gen / 2.0 - 1, 1);
    row.bytes += key_bytes * (test.is_prompt() ? tokens : keys);
    row.flops += 4.0 * layer.num_heads * layer.head_dim * keys;  // q.k and p.v
    if (!is_recurrent(layer.attention)) continue;
    // A row's state in f32 is read and written in a step.
    row.bytes +=
        2 * sizeof(float) * static_cast<double>(layer.recurrent.state_columns()) * (test.is_prompt() ? 1 : tokens);
    row.flops += state_flops(layer) * tokens;
  }
  return row;
}

}  // namespace llmrt::bench
