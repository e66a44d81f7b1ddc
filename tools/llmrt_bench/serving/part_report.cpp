#include "tools/llmrt_bench/serving/part_report.h"

#include <fmt/format.h>

#include <cstdio>

#include "tools/llmrt_bench/record/price.h"

namespace llmrt::bench {
namespace {

std::string text_of(const Target& target) {
  return fmt::format("{} {:g}", target.kind == Target::Kind::kAtLeast ? ">=" : "<=", target.bound);
}

}  // namespace

Report::Report(Record* record, const Clock* clock, double price_hour_usd)
    : record_(record), price_hour_usd_(price_hour_usd), clock_(clock), begin_ns_(clock->now_ns()) {}

void Report::begin(std::string device, std::string part) {
  device_ = std::move(device);
  part_ = std::move(part);
}

void Report::add(const Figure& figure) {
  std::string tail;
  if (figure.target)
    tail = fmt::format("  [{}: {}]", text_of(*figure.target), figure.target->is_met(figure.value) ? "met" : "MISSED");
  if (!figure.note.empty()) tail += "  " + figure.note;
  fmt::print("{:<9} {:<9} {:<42} {:>10.2f} {:<7}{}\n", device_, part_, figure.name, figure.value, figure.unit, tail);
  std::fflush(stdout);
  boost::json::object details{{"part", part_}, {"name", figure.name}, {"note", figure.note}};
  if (figure.target) {
    details["target"] = text_of(*figure.target);
    details["is_met"] = figure.target->is_met(figure.value);
  }
  record_->add({part_ + ": " + figure.name, device_, {{"value", figure.unit, figure.value}}, std::move(details)});
  if (figure.unit != "tok/s" || !(price_hour_usd_ > 0)) return;
  if (const auto price = usd_mtok(price_hour_usd_, figure.value)) add({figure.name + ": price", *price, "USD/Mtok"});
}

void Report::fail(const Error& error) {
  has_failed_ = true;
  fmt::print("{:<9} {:<9} FAILED: {}: {}\n", device_, part_, error_code_name(error.code), error.message);
  std::fflush(stdout);
  record_->miss(part_, device_, error.message);
}

void Report::progress(const std::string& text) const {
  fmt::print(stderr, "[{:7.2f} s] {} {}: {}\n", ms_between(begin_ns_, clock_->now_ns()) * 1e-3, device_, part_, text);
}

}  // namespace llmrt::bench
