// The numbers of core/sample/sampling_params.h as options of a command line.
#pragma once

#include <boost/json.hpp>

#include <array>
#include <optional>

#include "core/sample/sampling_params.h"
#include "tools/number_range.h"

namespace llmrt {

class SamplingValues {
 public:
  using Values = std::array<std::optional<double>, std::size(kSamplingParameters)>;

  // A default of the program's own.
  SamplingValues& set(std::string_view name, double value) {
    for (size_t i = 0; i < values_.size(); ++i)
      if (kSamplingParameters[i].name == name) values_[i] = value;
    return *this;
  }

  // One option for each number. This must outlive the parsing.
  void add_options(CLI::App& command, const std::string& group) {
    for (size_t i = 0; i < values_.size(); ++i) {
      const SamplingParameter& parameter = kSamplingParameters[i];
      const auto take = [value = &values_[i]](double said) { *value = said; };
      command.add_option_function<double>(std::string(parameter.flags), take, std::string(parameter.help))
          ->check(range_of(parameter))
          ->default_str(fmt::format("{:g}", values_[i].value_or(parameter.neutral)))
          ->type_name(std::string(parameter.letter))
          ->group(group);
    }
  }

  // The numbers that were said, as fields of a request's body.
  void write(boost::json::object* body) const {
    for (size_t i = 0; i < values_.size(); ++i) {
      if (!values_[i]) continue;
      boost::json::value& field = (*body)[kSamplingParameters[i].name];
      if (kSamplingParameters[i].is_whole())
        field = static_cast<int64_t>(*values_[i]);
      else
        field = *values_[i];
    }
  }

  SamplingParams params() const {
    SamplingParams params;
    for (size_t i = 0; i < values_.size(); ++i)
      if (values_[i]) kSamplingParameters[i].set(*values_[i], &params);
    return params;
  }

 private:
  static CLI::Validator range_of(const SamplingParameter& parameter) {
    const std::string range = fmt::format("in [{}, {}]", parameter.low, parameter.high);
    if (parameter.is_whole())
      return number_validator(static_cast<int64_t>(parameter.low), static_cast<int64_t>(parameter.high),
                              "a whole number " + range, "");
    return number_validator(parameter.low, parameter.high, "a number " + range, "");
  }

  Values values_;
};

}  // namespace llmrt
