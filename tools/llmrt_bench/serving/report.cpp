#include "tools/llmrt_bench/serving/report.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>

namespace llmrt::bench {
namespace {

std::string verdict(const Target& target, double value) {
  return fmt::format("{} {:g}: {}", target.kind == Target::Kind::kAtLeast ? ">=" : "<=", target.bound,
                     target.is_met(value) ? "met" : "MISSED");
}

}  // namespace

Report::Report(std::string model, std::string json_path, const Clock* clock)
    : json_path_(std::move(json_path)), clock_(clock), begin_ns_(clock->now_ns()) {
  json_ = {{"command", "serving"},
           {"model", std::move(model)},
           {"figures", boost::json::array()},
           {"failures", boost::json::array()}};
}

void Report::begin(std::string device, std::string part) {
  device_ = std::move(device);
  part_ = std::move(part);
}

void Report::add(const Figure& figure) {
  std::string tail = figure.target ? "  [" + verdict(*figure.target, figure.value) + "]" : "";
  if (!figure.note.empty()) tail += "  " + figure.note;
  fmt::print("{:<9} {:<9} {:<42} {:>10.2f} {:<7}{}\n", device_, part_, figure.name, figure.value, figure.unit, tail);
  std::fflush(stdout);
  boost::json::object entry{{"device", device_},     {"part", part_},       {"name", figure.name},
                            {"value", figure.value}, {"unit", figure.unit}, {"note", figure.note}};
  if (figure.target) {
    entry["target"] = figure.target->bound;
    entry["is_met"] = figure.target->is_met(figure.value);
  }
  json_["figures"].as_array().push_back(std::move(entry));
  write();
}

void Report::fail(const Error& error) {
  has_failed_ = true;
  fmt::print("{:<9} {:<9} FAILED: {}: {}\n", device_, part_, error_code_name(error.code), error.message);
  std::fflush(stdout);
  json_["failures"].as_array().push_back({{"device", device_}, {"part", part_}, {"message", error.message}});
  write();
}

void Report::progress(const std::string& text) const {
  fmt::print(stderr, "[{:7.2f} s] {} {}: {}\n", ms_between(begin_ns_, clock_->now_ns()) * 1e-3, device_, part_, text);
}

void Report::write() {
  if (json_path_.empty()) return;
  std::ofstream file(json_path_);
  file << boost::json::serialize(json_);
  if (!file.flush()) status_ = make_error(ErrorCode::kInvalidArgument, "--json: cannot write \"{}\"", json_path_);
}

}  // namespace llmrt::bench
