#include "tools/llmrt_bench/report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/llmrt_bench/report/html.h"
#include "tools/llmrt_bench/report/record_plots.h"
#include "tools/llmrt_bench/report/scale.h"

namespace llmrt::bench {
namespace {

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--page:#fff;--ink:#1b1d21;--soft:#5a6069;--grid:#e4e7eb;--edge:#9aa1ab;
--s0:#0b62c4;--s1:#c2410c;--s2:#0f7b53;--s3:#8b2fc9;--s4:#b4236a;--s5:#7a6200;--s6:#00757f;--s7:#555b64}
@media (prefers-color-scheme:dark){:root{--page:#16181c;--ink:#e8eaed;--soft:#a4abb5;--grid:#2c3138;--edge:#6b7480;
--s0:#6cb2ff;--s1:#ff9a5c;--s2:#4fd6a0;--s3:#c99bff;--s4:#ff86bd;--s5:#dcc14f;--s6:#53d3de;--s7:#b9c0ca}}
body{margin:0 auto;padding:24px;max-width:1400px;background:var(--page);color:var(--ink);
font:15px/1.45 system-ui,sans-serif}
h1{font-size:24px;margin:0 0 4px}h2{font-size:19px;margin:32px 0 8px}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,560px),1fr));gap:28px}
figure{margin:0;min-width:0}figcaption{font-weight:600}
.note,.soft{color:var(--soft);font-size:13px;margin:0}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;margin:4px 0}
.entry{display:inline-flex;align-items:center;gap:6px}
.plot{width:100%;height:auto;display:block}
.plot text{font-size:12px;fill:var(--soft)}
.plot text.title{fill:var(--ink)}
.plot text.label{fill:var(--ink);paint-order:stroke;stroke:var(--page);stroke-width:3px}
.grid{stroke:var(--grid)}.axis{stroke:var(--edge)}
.line{fill:none;stroke-width:2}.dashed{stroke-dasharray:6 4}.guide{stroke-width:1.5}
.mark{stroke:var(--page);stroke-width:1}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13px;margin:8px 0 20px}
th,td{padding:3px 10px;border-bottom:1px solid var(--grid);text-align:right;white-space:nowrap;
font-variant-numeric:tabular-nums}
th{color:var(--soft);font-weight:600;vertical-align:bottom}th small,td small{font-weight:400;color:var(--soft)}
.text{text-align:left}
.wrong{color:var(--s1)}
)";

std::string style_of_series() {
  std::string css;
  for (int i = 0; i < 8; ++i) css += fmt::format(".l{0}{{stroke:var(--s{0})}}.m{0},.b{0}{{fill:var(--s{0})}}\n", i);
  return css;
}

std::string cell(const std::string& html, bool is_text) {
  return fmt::format("<td{}>{}</td>", is_text ? " class=\"text\"" : "", html);
}

std::string value_cell(const Value* value) {
  if (value == nullptr || !std::isfinite(value->value)) return cell("–", false);
  std::string html = number_text(value->value);
  if (value->samples.size() > 1) html += fmt::format(" <small>± {:.1f} %</small>", 100 * spread_of(*value));
  return cell(html, false);
}

std::string detail_cell(const boost::json::value* detail) {
  if (detail == nullptr || detail->is_null()) return cell("–", true);
  if (detail->is_string()) return cell(escaped(detail->get_string()), true);
  if (detail->is_bool()) return cell(detail->get_bool() ? "yes" : "no", true);
  return cell(number_text(detail->to_number<double>()), false);
}

// Rows that have the same columns share a table.
struct Columns {
  std::vector<std::pair<std::string, std::string>> values;  // name, unit
  std::vector<std::string> details;
  bool operator==(const Columns&) const = default;
};

Columns columns_of(const RecordRow& row) {
  Columns columns;
  for (const Value& value : row.values) columns.values.emplace_back(value.name, value.unit);
  for (const auto& [name, detail] : row.details)
    if (!detail.is_object() && !detail.is_array()) columns.details.emplace_back(name);
  return columns;
}

std::string rows_table(const Columns& columns, const std::vector<const RecordRow*>& rows) {
  std::string html = "<div class=\"scroll\"><table><tr><th class=\"text\">test</th><th class=\"text\">device</th>";
  for (const auto& [name, unit] : columns.values)
    html += fmt::format("<th>{}<br><small>{}</small></th>", escaped(name), escaped(unit));
  for (const std::string& name : columns.details) html += fmt::format("<th class=\"text\">{}</th>", escaped(name));
  html += "</tr>\n";
  for (const RecordRow* row : rows) {
    html += "<tr>" + cell(escaped(row->test), true) + cell(escaped(row->device), true);
    for (const auto& [name, unit] : columns.values) html += value_cell(find_value(*row, name));
    for (const std::string& name : columns.details) html += detail_cell(row->details.if_contains(name));
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string record_section(const SavedRecord& record) {
  std::string html =
      fmt::format("<h2>{}: {}</h2>\n<p class=\"soft\">{}, llmrt {} {}<br>{}; {}</p>\n", escaped(record.command),
                  escaped(record.path), escaped(record.begun_at), escaped(record.version), escaped(record.commit),
                  escaped(record.cpu), escaped(record.os));
  for (const Caps& device : record.devices)
    html += fmt::format("<p class=\"soft\">{}: {}, {}, {}, {:.1f} GB</p>\n", escaped(device.device_id),
                        escaped(device.device_name), escaped(device.tier), escaped(device.driver),
                        static_cast<double>(device.memory_bytes) * 1e-9);
  html += fmt::format("<p class=\"soft\">work: {}</p>\n<p class=\"soft\">settings: {}</p>\n",
                      escaped(boost::json::serialize(record.work)), escaped(boost::json::serialize(record.settings)));
  if (!record.is_complete) html += "<p class=\"wrong\">This run was cut short: the rows below are what it had.</p>\n";
  std::vector<std::pair<Columns, std::vector<const RecordRow*>>> tables;
  for (const RecordRow& row : record.rows) {
    const Columns columns = columns_of(row);
    auto it = std::ranges::find(tables, columns, [](const auto& table) { return table.first; });
    if (it == tables.end()) it = tables.insert(tables.end(), {columns, {}});
    it->second.push_back(&row);
  }
  for (const auto& [columns, rows] : tables) html += rows_table(columns, rows);
  for (const MissingRow& missing : record.missing)
    html += fmt::format("<p class=\"wrong\">missing: {} {}: {}</p>\n", escaped(missing.device), escaped(missing.test),
                        escaped(missing.reason));
  return html;
}

}  // namespace

std::string report_page(const std::vector<SavedRecord>& records) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<title>llmrt-bench</title>\n<style>{}{}</style></head>\n<body>\n<h1>llmrt-bench</h1>\n"
      "<p class=\"soft\">Values are medians. ±: where they lie with 95 % confidence, or half of all that few samples "
      "span.</p>\n",
      kStyle, style_of_series());
  const std::vector<std::string> plots = plots_of(records);
  if (!plots.empty()) html += "<h2>Plots</h2>\n<div class=\"plots\">\n";
  for (const std::string& plot : plots) html += plot;
  if (!plots.empty()) html += "</div>\n";
  for (const SavedRecord& record : records) html += record_section(record);
  return html + "</body></html>\n";
}

}  // namespace llmrt::bench
