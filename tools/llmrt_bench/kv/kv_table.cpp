#include "tools/llmrt_bench/kv/kv_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/llmrt_bench/kv/kv_run.h"

namespace llmrt::bench {
namespace {

struct Figure {
  const char* name;
  std::string (*text)(const KvCell& cell);
};

constexpr Figure kFigures[] = {
    {"NLL of the next token", [](const KvCell& cell) { return fmt::format("{:.5f}", cell.nll); }},
    {"KL from the reference", [](const KvCell& cell) { return cell.kl == 0 ? "0" : fmt::format("{:.3e}", cell.kl); }},
    {"same best token", [](const KvCell& cell) { return fmt::format("{:.2f} %", 100 * cell.same_best); }},
    {"same most-attended keys", [](const KvCell& cell) { return fmt::format("{:.2f} %", 100 * cell.mean_overlap()); }},
    {"  in the lowest layer",
     [](const KvCell& cell) {
       return fmt::format("{:.2f} % (layer {})", 100 * cell.overlap[cell.lowest_layer()], cell.lowest_layer());
     }},
};

}  // namespace

std::string print(const KvQualityPlan& plan, const KvContext& context) {
  size_t name_width = std::string_view("weights").size();
  for (const auto& [name, model] : plan.weights) name_width = std::max(name_width, name.size());
  constexpr int kFigureWidth = 23, kCellWidth = 20;
  const auto line = [&](std::string_view name, std::string_view figure, auto cell_text) {
    std::string out = fmt::format("| {:<{}} | {:<{}} |", name, name_width, figure, kFigureWidth);
    for (size_t kv = 0; kv < plan.kv_dtypes.size(); ++kv) out += fmt::format(" {:>{}} |", cell_text(kv), kCellWidth);
    return out + "\n";
  };
  std::string out =
      line("weights", "", [&](size_t kv) { return fmt::format("KV {}", kv_dtype_name(plan.kv_dtypes[kv])); });
  for (size_t weights = 0; weights < plan.weights.size(); ++weights)
    for (const Figure& figure : kFigures)
      out += line(&figure == kFigures ? plan.weights[weights].first : "", figure.name,
                  [&](size_t kv) { return figure.text(context.cells[weights][kv]); });
  return out;
}

void add_rows(const KvQualityPlan& plan, const KvQuality& quality, Record* record) {
  record->add_device(quality.caps);
  for (const KvContext& context : quality.contexts) {
    for (size_t weights = 0; weights < plan.weights.size(); ++weights) {
      for (size_t kv = 0; kv < plan.kv_dtypes.size(); ++kv) {
        const KvCell& cell = context.cells[weights][kv];
        const auto& [name, model] = plan.weights[weights];
        const char* dtype = kv_dtype_name(plan.kv_dtypes[kv]);
        record->add({fmt::format("{} tokens: {} weights, KV {}", context.num_tokens, name, dtype),
                     quality.caps.device_id,
                     {{"nll", "nats", cell.nll},
                      {"kl", "nats", cell.kl},
                      {"same_best", "share", cell.same_best},
                      {"overlap", "share", cell.mean_overlap()},
                      {"time", "s", cell.seconds}},
                     {{"tokens", context.num_tokens},
                      {"scored", context.num_scored},
                      {"weights", name},
                      {"encoding", model->encoding},
                      {"overlap_by_layer", boost::json::value_from(cell.overlap)},
                      {"kv_dtype", dtype}}});
      }
    }
  }
  for (const std::string& reason : quality.left_out) record->miss("context", quality.caps.device_id, reason);
}

}  // namespace llmrt::bench
