#include "tools/llmrt/explain_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <map>

#include "backends/backends.h"
#include "core/engine/engine.h"
#include "core/engine/expert_counts.h"
#include "core/engine/lower.h"
#include "core/engine/pool_sizing.h"
#include "core/engine/probe_plan.h"
#include "core/ops/op_list.h"

namespace llmrt {
namespace {

constexpr int kProfileRuns = 5;  // after one warm-up; medians

struct OpLine {
  std::string name, shape;
  OpCost cost;
  double ms = 0;
  int count = 1;
};

// What the op writes, with live rows.
std::string shape_text(const OpList& list, const Op& op, const CostSizes& sizes) {
  const OpAccess touched = access(op);
  if (touched.writes.empty()) return "";
  const TensorDesc& out = list.tensors[touched.writes.back()];
  return fmt::format("[{}, {}] {}", list.rows_of(touched.writes.back(), sizes.num_tokens, sizes.num_sampled),
                     out.columns, dtype_name(out.dtype));
}

std::vector<OpLine> lines_of(const OpList& list, const Model& model, const CostSizes& sizes,
                             std::span<const double> op_ms) {
  std::vector<OpLine> lines;
  for (size_t i = 0; i < list.ops.size(); ++i) {
    const Op& op = list.ops[i];
    std::string name = op_name(op);
    if (const auto* matmul = std::get_if<Matmul>(&op)) name += " " + model.weights.groups[matmul->group].name;
    lines.push_back({std::move(name), shape_text(list, op, sizes), cost(list, op, model.weights, sizes),
                     op_ms.empty() ? 0 : op_ms[i]});
  }
  return lines;
}

// Sums ops of one kind and shape: "matmul blk.7.qkv" and its likes in every layer become one line.
std::vector<OpLine> summed(const std::vector<OpLine>& lines) {
  std::vector<OpLine> sums;
  std::map<std::string, size_t> index;
  for (const OpLine& line : lines) {
    std::string name = line.name;
    if (const size_t dot = name.find_last_of('.'); name.starts_with("matmul") && dot != std::string::npos)
      name = "matmul " + name.substr(dot + 1);
    const auto [it, added] = index.emplace(name + line.shape, sums.size());
    if (added) {
      sums.push_back(line);
      sums.back().name = name;
      continue;
    }
    OpLine& sum = sums[it->second];
    sum.cost.flops += line.cost.flops;
    sum.cost.bytes += line.cost.bytes;
    sum.ms += line.ms;
    ++sum.count;
  }
  return sums;
}

// The time that the device's limits allow.
double floor_ms(const OpCost& cost, const ExplainOptions& options) {
  const double bytes_ms = options.read_gb_s > 0 ? cost.bytes / options.read_gb_s * 1e-6 : 0;
  const double flops_ms = options.tflop_s > 0 ? cost.flops / options.tflop_s * 1e-9 : 0;
  return std::max(bytes_ms, flops_ms);
}

void print_table(const std::vector<OpLine>& lines, const ExplainOptions& options) {
  const bool measured = !options.device.empty();
  fmt::print("  {:<28} {:>5}  {:<22} {:>12} {:>12}", "op", "count", "writes", "MFLOP", "MB");
  if (measured) fmt::print(" {:>10} {:>9} {:>9} {:>8}", "ms", "GB/s", "TFLOP/s", "of limit");
  fmt::print("\n");
  for (const OpLine& line : lines) {
    fmt::print("  {:<28} {:>5}  {:<22} {:>12.2f} {:>12.3f}", line.name, line.count, line.shape, line.cost.flops * 1e-6,
               line.cost.bytes * 1e-6);
    if (measured) {
      const double floor = floor_ms(line.cost, options);
      fmt::print(" {:>10.4f} {:>9.1f} {:>9.3f} {:>8}", line.ms, line.ms > 0 ? line.cost.bytes / line.ms * 1e-6 : 0,
                 line.ms > 0 ? line.cost.flops / line.ms * 1e-9 : 0,
                 floor > 0 && line.ms > 0 ? fmt::format("{:.1f} %", 100 * floor / line.ms) : "-");
    }
    fmt::print("\n");
  }
}

boost::json::array to_json(const std::vector<OpLine>& lines) {
  boost::json::array array;
  for (const OpLine& line : lines)
    array.push_back({{"op", line.name},
                     {"count", line.count},
                     {"writes", line.shape},
                     {"flops", line.cost.flops},
                     {"bytes", line.cost.bytes},
                     {"ms", line.ms}});
  return array;
}

Result<std::vector<double>> profile(Backend* backend, const LoweredStep& step) {
  std::vector<std::vector<double>> runs;
  for (int i = 0; i <= kProfileRuns; ++i) {
    Result<std::vector<double>> run = backend->profile(step.submission());
    if (!run) return run.error();
    if (i) runs.push_back(std::move(*run));
  }
  std::vector<double> medians(runs[0].size());
  for (size_t op = 0; op < medians.size(); ++op) {
    std::vector<double> values;
    for (const auto& run : runs) values.push_back(run[op]);
    std::nth_element(values.begin(), values.begin() + kProfileRuns / 2, values.end());
    medians[op] = values[kProfileRuns / 2];
  }
  return medians;
}

// What the backend runs for the step's lists.
Result<std::vector<std::string>> programs_of(const LoweredStep& step, Backend* backend) {
  std::vector<std::string> texts;
  for (const SealedList* list : {step.forward, step.sample}) {
    Result<std::string> text = backend->explain(*list);
    if (!text) return text.error();
    texts.push_back(*std::move(text));
  }
  return texts;
}

}  // namespace

namespace {

// Batch-invariant steps expand nothing.
ExpandedShape expanded_of(const Lowering& lowering, const EngineConfig& config) {
  return config.batch_invariant ? ExpandedShape{} : lowering.expanded_shape();
}

}  // namespace

Status explain_ops(std::shared_ptr<const Model> model, const ExplainOptions& options) {
  const uint32_t tokens_max = *std::max_element(options.tokens.begin(), options.tokens.end());
  EngineConfig config = options.engine;
  const auto shape_of = [&](uint32_t num_tokens) {
    return ProbeShape{options.num_sequences, num_tokens,           options.context,         1,
                      config.block_tokens,   options.num_decoding, options.decoding_context};
  };
  const ProbeShape largest = shape_of(tokens_max);
  config.step_tokens_max = std::max(config.step_tokens_max, largest.step_tokens());
  config.sequences_max = std::max(config.sequences_max, largest.num_rows());
  config.context_max = std::max({config.context_max, options.context + tokens_max, options.decoding_context + 1});
  SteadyClock clock;
  std::unique_ptr<Engine> engine;
  Caps caps;  // of no device: everything f32
  if (!options.device.empty()) {
    Result<std::unique_ptr<Backend>> backend = open_device(options.device);
    if (!backend) return backend.error();
    config.kv_tokens = uint64_t{probe_blocks(largest) + largest.num_rows()} * config.block_tokens;
    Result<std::unique_ptr<Engine>> created = Engine::create(config, model, nullptr, std::move(*backend), &clock, {});
    if (!created) return created.error();
    engine = std::move(*created);
    config = engine->config();
    caps = engine->backend().caps();
  }
  boost::json::array reports;
  for (uint32_t num_tokens : options.tokens) {
    const ProbeShape shape = shape_of(num_tokens);
    if (shape.step_tokens() > config.step_tokens_max || shape.num_rows() > config.sample_rows_max)
      return make_error(ErrorCode::kInvalidArgument,
                        "{} tokens of {} sequences: expected at most {} tokens and {} sequences", shape.step_tokens(),
                        shape.num_rows(), config.step_tokens_max, config.sample_rows_max);
    Lowering lowering(model, caps, config.step_tokens_max, config.sample_rows_max);
    LoweredStep step;
    IterationPlan plan = probe_plan(shape, model->config.vocab_size);
    for (PlanRow& row : plan.rows) row.batch_invariant = config.batch_invariant;
    lowering.set_expanded_pool(engine ? engine->memory_plan().expanded
                                      : expanded_pool_of(config, caps, model->config, kExpandedBytesMax));
    lowering.lower(plan, &step);
    std::vector<double> op_ms;
    if (engine) {
      const std::vector<KvPoolSize>& pools = engine->memory_plan().pools;
      for (uint32_t i = 0; i < shape.num_rows(); ++i)
        if (Status status = apply_row_updates(probe_setup_plan(shape, i, pools), &engine->backend()); !status)
          return status;
      Result<std::vector<double>> measured = profile(&engine->backend(), step);
      if (!measured) return measured.error();
      op_ms = std::move(*measured);
    }
    std::vector<std::string> programs;
    if (engine && options.program) {
      Result<std::vector<std::string>> texts = programs_of(step, &engine->backend());
      if (!texts) return texts.error();
      programs = *std::move(texts);
    }
    CostSizes sizes = probe_sizes(shape, model->config, config.kv_dtype, expanded_of(lowering, config)),
              sample_sizes = sizes;
    std::string experts;
    if (engine) {
      Result<ExpertCounts> counts = count_experts(step, shape.step_tokens(), &engine->backend());
      if (!counts) return counts.error();
      sizes.distinct_experts = counts->forward;
      sample_sizes.distinct_experts = counts->sample;
      experts = describe_experts(step.forward->list, counts->forward, shape.step_tokens());
    }
    const std::span<const double> all(op_ms);
    const size_t num_forward = step.forward->list.ops.size();
    std::vector<OpLine> lines = lines_of(*step.forward, *model, sizes, all.empty() ? all : all.first(num_forward));
    const std::vector<OpLine> sample =
        lines_of(*step.sample, *model, sample_sizes, all.empty() ? all : all.subspan(num_forward));
    lines.insert(lines.end(), sample.begin(), sample.end());
    OpLine total;
    total.name = "total";
    for (const OpLine& line : lines) {
      total.cost.flops += line.cost.flops;
      total.cost.bytes += line.cost.bytes;
      total.ms += line.ms;
    }
    total.count = static_cast<int>(lines.size());
    std::vector<OpLine> shown = options.every_op ? lines : summed(lines);
    shown.push_back(total);
    if (options.json) {
      reports.push_back({{"tokens", num_tokens},
                         {"sequences", shape.num_sequences},
                         {"context", shape.start},
                         {"decoding", shape.num_decoding},
                         {"decoding_context", shape.decoding_start},
                         {"experts", experts},
                         {"ops", to_json(shown)},
                         {"programs", boost::json::value_from(programs)}});
      continue;
    }
    fmt::print(
        "{} sequences x {} tokens after {}{} ({}{})\n", shape.num_sequences, num_tokens, shape.start,
        shape.num_decoding ? fmt::format(", {} that decode after {}", shape.num_decoding, shape.decoding_start) : "",
        options.device.empty() ? "not measured" : caps.device_name, config.batch_invariant ? ", batch-invariant" : "");
    if (!experts.empty()) fmt::print("{}\n", experts);
    print_table(shown, options);
    for (const std::string& program : programs) fmt::print("\n{}", program);
    fmt::print("\n");
  }
  if (options.json) fmt::print("{}\n", boost::json::serialize(reports));
  return {};
}

}  // namespace llmrt
