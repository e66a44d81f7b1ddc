// Each number of kSamplingParameters, wherever it is read: defaults, checks, bodies, rows, traces, beams, docs/api.md.
// What one more parameter needs to pass here is its line of the table and of the page, nothing else.
#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>

#include <fstream>
#include <set>
#include <sstream>

#include "core/request/logit_changes.h"
#include "core/sample/sampling_params.h"
#include "core/sample_trace/sample_trace.h"
#include "server/api_request.h"
#include "server/json_reader.h"
#include "tests/server/letter_model.h"

using namespace llmrt;

namespace {

// Numbers that a client may say, none of them neutral.
std::vector<double> values_of(const SamplingParameter& parameter) {
  std::vector<double> values;
  for (const double value : {parameter.low, parameter.high, parameter.is_whole() ? 3.0 : 0.375})
    if (value != parameter.neutral && value >= parameter.low && value <= parameter.high) values.push_back(value);
  return values;
}

SamplingParams params_with(const SamplingParameter& parameter, double said) {
  SamplingParams params;
  parameter.set(said, &params);
  return params;
}

Request request_with(const SamplingParameter& parameter, double said) {
  Request request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 8;
  request.sampling = params_with(parameter, said);
  return request;
}

server::ApiResult<server::ApiRequest> parsed(const SamplingParameter& parameter, const std::string& value) {
  auto body = server::read_json(fmt::format(R"({{"prompt": "a", "{}": {}}})", parameter.name, value));
  REQUIRE(body.ok());
  return server::parse_completion(body->as_object(), server::letter_model(), 7);
}

void check_equal(const SamplingParams& found, const SamplingParams& expected) {
  for (const SamplingParameter& parameter : kSamplingParameters) {
    CAPTURE(parameter.name);
    CHECK(parameter.of(found) == parameter.of(expected));
  }
}

// "0 to 100; 1".
std::string range_text(const SamplingParameter& parameter) {
  const bool is_open = parameter.high >= 0x7fffffff;
  const std::string range =
      is_open ? fmt::format("from {}", parameter.low) : fmt::format("{} to {}", parameter.low, parameter.high);
  return fmt::format("{}; {}", range, parameter.neutral);
}

}  // namespace

TEST_CASE("a request that says nothing, and a row, hold the neutral numbers") {
  for (const SamplingParameter& parameter : kSamplingParameters) {
    CAPTURE(parameter.name);
    CHECK(parameter.is_neutral(SamplingParams()));
    CHECK(parameter.of(RowSampling()).value_or(parameter.neutral) == parameter.neutral);
    CHECK(parameter.may_be(parameter.neutral));
  }
}

TEST_CASE("what a client may say becomes what a request may hold") {
  for (const SamplingParameter& parameter : kSamplingParameters) {
    for (const double value : values_of(parameter)) {
      CAPTURE(parameter.name, value);
      const Request request = request_with(parameter, value);
      CHECK(validate(request.sampling, 100).ok());
      const double held = parameter.of(request.sampling);
      if (value >= parameter.least) CHECK(held == parameter.in_type(value));
      if (value < parameter.least) CHECK(held == parameter.in_type(parameter.below));
      check_equal(params_with(parameter, held), request.sampling);  // and stays the same when it is said again
    }
    if (parameter.is_whole()) continue;
    std::visit(
        [&](auto member) {
          for (const float value : {std::nanf(""), static_cast<float>(parameter.high) + 1, -3.0f}) {
            SamplingParams params;
            params.*member = static_cast<std::remove_reference_t<decltype(params.*member)>>(value);
            const Status status = validate(params, 100);
            REQUIRE_FALSE(status.ok());
            CHECK(status.error().message ==
                  fmt::format("{}: expected {}, found {}", parameter.name, parameter.expected(), value));
          }
        },
        parameter.field);
  }
}

TEST_CASE("every number arrives from a body; outside its range, or no number, it is refused by name") {
  for (const SamplingParameter& parameter : kSamplingParameters) {
    CAPTURE(parameter.name);
    for (const double value : values_of(parameter)) {
      const auto body = parsed(parameter, fmt::format("{}", value));
      REQUIRE(std::holds_alternative<server::ApiRequest>(body));
      SamplingParams expected = params_with(parameter, value);
      check_equal(std::get<server::ApiRequest>(body).prompts[0].request.sampling, expected);
    }
    for (const std::string& value :
         {fmt::format("{}", parameter.low - 1), fmt::format("{}", parameter.high + 1), std::string("\"some\"")}) {
      const auto body = parsed(parameter, value);
      REQUIRE(std::holds_alternative<server::ApiError>(body));
      CHECK(std::get<server::ApiError>(body).param == parameter.name);
    }
  }
}

TEST_CASE("each number that kernels read has a word of its own in the row") {
  std::set<std::vector<double>> rows;
  for (const SamplingParameter& parameter : kSamplingParameters) {
    CAPTURE(parameter.name);
    RowSampling row;
    const SamplingParams params = params_with(parameter, values_of(parameter).back());
    copy_to_row(params, &row);
    std::vector<double> numbers;
    for (const SamplingParameter& other : kSamplingParameters) {
      numbers.push_back(other.of(row).value_or(0));
      if (other.of(row)) CHECK(*other.of(row) == other.of(params));
    }
    if (parameter.of(row)) CHECK(rows.insert(numbers).second);
  }
}

TEST_CASE("a trace gives every number back, and one that it has no word of is neutral") {
  const std::string header = header_line({"m", "d", "v", "f16"}) + "\n";
  for (const SamplingParameter& parameter : kSamplingParameters) {
    CAPTURE(parameter.name);
    const Request request = request_with(parameter, values_of(parameter).back());
    const std::string line = request_line(3, request);
    const Result<SampleTrace> trace = parse_sample_trace(header + line + "\n");
    REQUIRE(trace.ok());
    check_equal(trace->branches.at(0).request.sampling, request.sampling);

    boost::json::object older = boost::json::parse(line).as_object();
    REQUIRE(older.erase(parameter.name) == 1);
    const Result<SampleTrace> old = parse_sample_trace(header + boost::json::serialize(older) + "\n");
    REQUIRE(old.ok());
    check_equal(old->branches.at(0).request.sampling, SamplingParams());
  }
}

TEST_CASE("a number that is not neutral is told among what was applied, and refused for beams") {
  for (const SamplingParameter& parameter : kSamplingParameters) {
    CAPTURE(parameter.name);
    Request request = request_with(parameter, values_of(parameter).back());
    const std::vector<std::string> names = processor_names(request);
    REQUIRE(names.size() == 1);
    const bool is_later = parameter.stage == SamplingStage::kTemperature || parameter.stage == SamplingStage::kFilters;
    if (is_later) CHECK(names[0] == parameter.name);
    request.beam = BeamParams{};
    CHECK(validate(request, 100).error().code == ErrorCode::kUnsupported);
  }
}

TEST_CASE("docs/api.md has the table") {
  std::string expected;
  for (const SamplingParameter& parameter : kSamplingParameters)
    expected += fmt::format("| `{}` | {} | {} |\n", parameter.name, range_text(parameter), parameter.help);
  std::stringstream text;
  text << std::ifstream(LLMRT_SOURCE_DIR "/docs/api.md").rdbuf();
  INFO("expected these lines in docs/api.md:\n" << expected);
  CHECK(text.str().find(expected) != std::string::npos);
}
