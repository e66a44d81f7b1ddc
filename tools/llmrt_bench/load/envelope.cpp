#include "tools/llmrt_bench/load/envelope.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>

#include "tools/llmrt_bench/record/record.h"

namespace llmrt::bench {
namespace {

namespace json = boost::json;

// Of a trial that did not run, nulls.
void add_trial(json::object* row, const std::string& prefix, const Trial* trial) {
  const auto add = [&](const char* name, auto value) {
    (*row)[prefix + name] = trial ? json::value(value(*trial)) : json::value(nullptr);
  };
  add("rate_per_s", [](const Trial& t) { return t.per_s; });
  add("output_tok_s", [](const Trial& t) { return t.summary.per_s(static_cast<double>(t.summary.output_tokens)); });
  add("good_share", [](const Trial& t) { return t.good_share(); });
  add("ttft_p50_ms", [](const Trial& t) { return number_or_null(t.summary.ttft_ms.p50); });
  add("ttft_p95_ms", [](const Trial& t) { return number_or_null(t.summary.ttft_ms.p95); });
  add("tpot_p50_ms", [](const Trial& t) { return number_or_null(t.summary.tpot_ms.p50); });
  add("tpot_p95_ms", [](const Trial& t) { return number_or_null(t.summary.tpot_ms.p95); });
  add("waiting_max", [](const Trial& t) { return t.waiting_max; });
  add("preemptions", [](const Trial& t) { return t.num_preemptions; });
  add("refused", [](const Trial& t) { return t.num_refused; });
}

std::string csv_field(const json::value& value) {
  if (value.is_null()) return "";
  if (value.is_double()) return fmt::format("{}", value.get_double());
  if (!value.is_string()) return json::serialize(value);
  std::string out = "\"";
  for (const char c : value.get_string()) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

}  // namespace

json::object envelope_row(const std::string& model, const std::string& device, KvDType kv_dtype, const Cell& cell,
                          const CellOptions& options, const CellResult& result) {
  const bool is_met = result.verdict == CellVerdict::kMet;
  const bool has_run = is_met || result.verdict == CellVerdict::kMissedAlone;
  const Trial& alone = result.alone;
  json::object row{{"model", model},
                   {"device", device},
                   {"kv_dtype", kv_dtype_name(kv_dtype)},
                   {"prompt_tokens", cell.prompt_tokens},
                   {"output_tokens", cell.output_tokens},
                   {"class", request_class_name(cell.request_class)},
                   {"sampling", cell.sampling},
                   {"adapter", cell.adapters.name()},
                   {"pattern", cell.pattern},
                   {"slo_ttft_ms", number_or_null(options.slo.ttft_ms.value_or(NAN))},
                   {"slo_tpot_ms", number_or_null(options.slo.tpot_ms.value_or(NAN))},
                   {"slo_share", options.slo_share},
                   {"verdict", cell_verdict_name(result.verdict)},
                   {"note", result.note},
                   {"trials", result.num_trials},
                   {"alone_ttft_ms", number_or_null(has_run ? alone.summary.ttft_ms.p50 : NAN)},
                   {"alone_tpot_ms", number_or_null(has_run ? alone.summary.tpot_ms.p50 : NAN)}};
  add_trial(&row, "highest_", is_met ? &result.highest : nullptr);
  row["missed_rate_per_s"] = result.missed_per_s > 0 ? json::value(result.missed_per_s) : json::value(nullptr);
  row["beyond_what"] = is_met ? json::value(result.beyond_what) : json::value(nullptr);
  add_trial(&row, "beyond_", is_met ? &result.beyond : nullptr);
  row["burst_requests"] = is_met ? json::value(result.burst_requests) : json::value(nullptr);
  row["recovery_s"] = is_met ? json::value(result.recovery_s) : json::value(nullptr);
  row["is_recovered"] = is_met ? json::value(result.is_recovered) : json::value(nullptr);
  return row;
}

std::string envelope_csv(const std::vector<json::object>& rows) {
  std::string text;
  const auto add_line = [&](const json::object& row, auto field) {
    std::string line;
    for (const auto& entry : row) {
      if (!line.empty()) line += ',';
      line += field(entry);
    }
    text += line + '\n';
  };
  if (!rows.empty()) add_line(rows.front(), [](const json::key_value_pair& entry) { return std::string(entry.key()); });
  for (const json::object& row : rows)
    add_line(row, [](const json::key_value_pair& entry) { return csv_field(entry.value()); });
  return text;
}

std::string envelope_lines(const std::vector<json::object>& rows) {
  std::string text;
  for (const json::object& row : rows) text += json::serialize(row) + '\n';
  return text;
}

Status write_envelope(const std::string& path, const std::vector<json::object>& rows) {
  std::ofstream file(path, std::ios::binary);
  file << (path.ends_with(".csv") ? envelope_csv(rows) : envelope_lines(rows));
  if (!file.flush()) return make_error(ErrorCode::kIo, "--out: cannot write {}", path);
  return {};
}

}  // namespace llmrt::bench
