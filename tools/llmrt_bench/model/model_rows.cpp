#include "tools/llmrt_bench/model/model_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/llmrt_bench/record/price.h"
#include "tools/llmrt_bench/record/stats.h"

namespace llmrt::bench {
namespace {

struct Matrices {
  double bytes = 0, numbers = 0, head_numbers = 0;
};

// All that a step multiplies with: everything but the input embedding. The head is apart, as prompts need one row of
// it.
Matrices matrices_of(const Model& model) {
  Matrices sum;
  for (size_t i = 0; i < model.weights.groups.size(); ++i) {
    const WeightGroup& group = model.weights.groups[i];
    for (const RowSegment& s : group.segments)
      sum.bytes += static_cast<double>(s.num_rows) * static_cast<double>(model.weights.tensors[s.tensor].bytes_row());
    const double numbers = static_cast<double>(group.rows) * static_cast<double>(group.columns);
    (static_cast<WeightGroupId>(i) == model.head ? sum.head_numbers : sum.numbers) += numbers;
  }
  return sum;
}

double kv_token_bytes(const ModelConfig& c, KvDType dtype) {
  double numbers = 0;
  for (const LayerSpec& layer : c.layers) numbers += 2.0 * layer.num_kv_heads * layer.head_dim;
  return numbers * kv_element_bytes(dtype);
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
    Result<BatchResult> run = run_batch(engine, clock, 1, test.n_prompt, 1, seed);
    if (!run) return run.error();
    samples->tok_s.push_back(test.n_prompt / run->prefill_s);
    samples->ms.push_back(1e3 * run->prefill_s);
    return {};
  }
  Result<BatchResult> run = run_batch(engine, clock, test.n_rows, test.n_depth, test.n_gen, seed);
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
  const Matrices matrices = matrices_of(model);
  double attention_key = 0;  // q.k and p.v of one key
  for (const LayerSpec& layer : c.layers) attention_key += 4.0 * layer.num_heads * layer.head_dim;
  if (test.is_prompt()) {
    const double tokens = test.n_prompt;
    row.bytes = matrices.bytes + kv_token_bytes(c, config.kv_dtype) * tokens;
    row.flops = 2 * (matrices.numbers * tokens + matrices.head_numbers) + attention_key * tokens * (tokens + 1) / 2;
  } else {
    const double keys = test.n_rows * (test.n_depth + test.n_gen / 2.0);
    row.bytes = matrices.bytes + kv_token_bytes(c, config.kv_dtype) * keys;
    row.flops = 2.0 * test.n_rows * (matrices.numbers + matrices.head_numbers) + attention_key * keys;
  }
  return row;
}

}  // namespace llmrt::bench
