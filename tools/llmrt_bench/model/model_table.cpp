#include "tools/llmrt_bench/model/model_table.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "tools/llmrt_bench/record/machine.h"
#include "tools/llmrt_bench/record/price.h"
#include "tools/llmrt_bench/record/stats.h"

namespace llmrt::bench {
namespace {

uint64_t num_parameters(const Model& model) {
  uint64_t sum = 0;
  for (const WeightTensor& tensor : model.weights.tensors) sum += tensor.rows * tensor.columns;
  return sum;
}

std::string csv_text(const boost::json::value& value) {
  if (!value.is_string()) return boost::json::serialize(value);
  std::string quoted = "\"";
  for (const char c : value.get_string()) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string csv_line(const boost::json::object& fields, bool is_head) {
  std::string line;
  for (const auto& [name, value] : fields)
    if (!value.is_array()) line += (line.empty() ? "" : ",") + (is_head ? std::string(name) : csv_text(value));
  return line;
}

}  // namespace

ModelTable::ModelTable(TableFormat format, const Model& model, const EngineConfig& config, bool has_price)
    : format_(format), model_(model), config_(config), has_price_(has_price) {
  if (format == TableFormat::kJson) fmt::print("[");
  if (format != TableFormat::kMarkdown) return;
  fmt::print("{}: {} {}, {:.2f} GB, {:.2f} B parameters, KV {}\n\n", model.path, model.config.architecture,
             model.encoding, static_cast<double>(model.weights.bytes()) * 1e-9,
             static_cast<double>(num_parameters(model)) * 1e-9, kv_dtype_name(config.kv_dtype));
  fmt::print("| {:<8} | {:<16} | {:>18} | {:>9} | {:>19} | {:>9} | {:>6} | {:>23} |{}\n", "device", "test",
             "t/s (mean ± sd)", "median", "min - max", "ms", "idle %", "rate (of limit)",
             has_price ? fmt::format(" {:>8} |", "USD/Mtok") : "");
  fmt::print(
      "|----------|------------------|-------------------:|----------:|--------------------:|----------:|-------:|"
      "------------------------:|{}\n",
      has_price ? "---------:|" : "");
}

ModelTable::~ModelTable() {
  if (format_ == TableFormat::kJson) fmt::print("\n]\n");
}

void ModelTable::print(const ModelRow& row) {
  if (format_ == TableFormat::kMarkdown) print_markdown(row);
  if (format_ == TableFormat::kJson) fmt::print("{}\n{}", num_rows_ ? "," : "", boost::json::serialize(fields(row)));
  if (format_ == TableFormat::kCsv) {
    if (num_rows_ == 0) fmt::print("{}\n", csv_line(fields(row), true));
    fmt::print("{}\n", csv_line(fields(row), false));
  }
  ++num_rows_;
  std::fflush(stdout);
}

void ModelTable::print_markdown(const ModelRow& row) const {
  const std::vector<double>& tok_s = row.samples.tok_s;
  const auto [min, max] = std::ranges::minmax_element(tok_s);
  const bool is_prompt = row.test.is_prompt();
  std::string rate = is_prompt ? fmt::format("{:.3g} TFLOP/s", row.tflop_s()) : fmt::format("{:.4g} GB/s", row.gb_s());
  if (row.limit_share() > 0) rate += fmt::format(" ({:.1f} %)", 100 * row.limit_share());
  fmt::print("| {:<8} | {:<16} | {:>18} | {:>9.2f} | {:>19} | {:>9.3f} | {:>6} | {:>23} |{}\n", row.caps.device_id,
             row.test.name(), fmt::format("{:.2f} ± {:.2f}", mean(tok_s), stddev(tok_s)), row.tok_s(),
             fmt::format("{:.2f} - {:.2f}", *min, *max), row.ms(),
             is_prompt ? "" : fmt::format("{:.1f}", 100 * median(row.samples.idle_share)), rate,
             has_price_ ? fmt::format(" {:>8} |", price_text(row.usd_mtok())) : "");
}

boost::json::object ModelTable::fields(const ModelRow& row) const {
  const ModelTest& test = row.test;
  const std::vector<double>& tok_s = row.samples.tok_s;
  std::vector<double> ns;
  for (const double rate : tok_s) ns.push_back(1e9 * test.tokens() / rate);
  const boost::json::object host = host_json();
  boost::json::object fields{{"build_commit", git_commit()},
                             {"cpu_info", host.at("cpu")},
                             {"gpu_info", row.caps.device_name},
                             {"backends", row.caps.device_id.substr(0, row.caps.device_id.find(':'))},
                             {"device", row.caps.device_id},
                             {"model_filename", model_.path},
                             {"model_type", fmt::format("{} {}", model_.config.architecture, model_.encoding)},
                             {"model_size", model_.weights.bytes()},
                             {"model_n_params", num_parameters(model_)},
                             {"n_batch", config_.step_tokens_max},
                             {"type_k", kv_dtype_name(config_.kv_dtype)},
                             {"type_v", kv_dtype_name(config_.kv_dtype)},
                             {"test", test.name()},
                             {"n_prompt", test.n_prompt},
                             {"n_gen", test.n_gen},
                             {"n_depth", test.n_depth},
                             {"test_time", fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)))},
                             {"avg_ns", mean(ns)},
                             {"stddev_ns", stddev(ns)},
                             {"avg_ts", mean(tok_s)},
                             {"stddev_ts", stddev(tok_s)},
                             {"median_ts", row.tok_s()},
                             {"median_ms", row.ms()},
                             {"gb_s", row.gb_s()},
                             {"tflop_s", row.tflop_s()},
                             {"limit_share", row.limit_share() > 0 ? boost::json::value(row.limit_share()) : nullptr}};
  const auto number_or_null = [&](bool is_there, double value) {
    return is_there ? boost::json::value(value) : boost::json::value(nullptr);
  };
  const bool is_batch = !test.is_prompt();
  const uint64_t n_kv = uint64_t{test.n_rows} * (test.n_depth + test.n_gen);
  const double prefill_s = median(row.samples.prefill_s), all_s = median(row.samples.all_s);
  fields["idle_share"] = number_or_null(is_batch, median(row.samples.idle_share));
  fields["pl"] = test.n_rows;
  fields["pp"] = is_batch ? test.n_depth : test.n_prompt;
  fields["tg"] = test.n_gen;
  fields["n_kv"] = is_batch ? n_kv : test.n_prompt;
  fields["t_pp"] = is_batch ? prefill_s : row.ms() * 1e-3;
  fields["speed_pp"] = is_batch ? 1.0 * test.n_rows * test.n_depth / prefill_s : row.tok_s();
  fields["speed_tg"] = number_or_null(is_batch, row.tok_s());
  fields["t"] = is_batch ? all_s : row.ms() * 1e-3;
  fields["speed"] = is_batch ? static_cast<double>(n_kv) / all_s : row.tok_s();
  fields["usd_mtok"] = number_or_null(has_price_ && row.usd_mtok(), row.usd_mtok().value_or(0));
  fields["samples_ns"] = boost::json::value_from(ns);
  fields["samples_ts"] = boost::json::value_from(tok_s);
  return fields;
}

}  // namespace llmrt::bench
