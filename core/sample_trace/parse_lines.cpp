#include <boost/json.hpp>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "core/sample_trace/sample_trace.h"

namespace llmrt {
namespace {

namespace json = boost::json;

// The fields of one line. The first wrong one is kept.
class Line {
 public:
  explicit Line(const json::object& object) : object_(object) {}

  template <class T>
  T integer(const char* name) {
    const json::value* value = find(name);
    json::error_code error;
    const T number = value && value->is_number() ? value->to_number<T>(error) : T();
    if (!value || !value->is_number() || error) fail(name, "an integer in range");
    return number;
  }
  // null stands for `otherwise`.
  float number(const char* name, float otherwise) {
    const json::value* value = find(name);
    if (value && value->is_null()) return otherwise;
    if (!value || !value->is_number()) return fail(name, "a number"), 0.0f;
    return static_cast<float>(value->to_number<double>());
  }
  bool is_absent(const char* name) { return find(name) == nullptr; }
  bool boolean(const char* name) {
    const json::value* value = find(name);
    if (!value || !value->is_bool()) return fail(name, "true or false"), false;
    return value->get_bool();
  }
  std::string text(const char* name) {
    const json::value* value = find(name);
    if (!value || !value->is_string()) return fail(name, "a string"), "";
    return std::string(value->get_string());
  }
  // Empty where it is absent.
  std::string any_json(const char* name) {
    const json::value* value = find(name);
    return value ? json::serialize(*value) : "";
  }
  const json::array& array(const char* name) {
    static const json::array kNone;
    const json::value* value = find(name);
    if (!value || !value->is_array()) return fail(name, "an array"), kNone;
    return value->get_array();
  }
  std::vector<int32_t> ids(const char* name) { return ids(name, array(name)); }
  std::vector<int32_t> ids(const char* name, const json::array& values) {
    std::vector<int32_t> found;
    for (const json::value& value : values) {
      json::error_code error;
      found.push_back(value.is_number() ? value.to_number<int32_t>(error) : -1);
      if (!value.is_number() || error) fail(name, "token ids");
    }
    return found;
  }
  void fail(const char* name, const char* expected) {
    if (wrong_.empty()) wrong_ = fmt::format("{}: expected {}", name, expected);
  }
  const std::string& wrong() const { return wrong_; }

 private:
  const json::value* find(const char* name) { return object_.if_contains(name); }

  const json::object& object_;
  std::string wrong_;
};

TracedBranch read_request(Line& line) {
  TracedBranch branch;
  Request& request = branch.request;
  SamplingParams& s = request.sampling;
  request.adapter_id = line.integer<uint32_t>("adapter");
  if (request.adapter_id != 0) {
    branch.adapter_digest = line.text("adapter_digest");
    request.adapter_scale = line.number("adapter_scale", 1);
  }
  for (const json::value& name : line.array("processors")) {
    if (!name.is_string()) line.fail("processors", "names");
    branch.processors.emplace_back(name.is_string() ? std::string(name.get_string()) : "");
  }
  for (const SamplingParameter& parameter : kSamplingParameters) {
    const char* name = parameter.name.data();  // of a literal
    if (line.is_absent(name)) continue;        // the trace is older than the parameter
    parameter.set(parameter.is_whole() ? static_cast<double>(line.integer<uint32_t>(name)) : line.number(name, 0), &s);
  }
  for (const json::value& entry : line.array("logit_bias")) {
    const json::array* pair = entry.if_array();
    if (!pair || pair->size() != 2 || !(*pair)[0].is_int64() || !(*pair)[1].is_number()) {
      line.fail("logit_bias", "pairs of token and bias");
      break;
    }
    json::error_code error;
    const int32_t token = (*pair)[0].to_number<int32_t>(error);
    if (error) line.fail("logit_bias", "pairs of token and bias");
    s.logit_bias.emplace_back(token, static_cast<float>((*pair)[1].to_number<double>()));
  }
  for (const json::value& word : line.array("bad_words")) {
    if (!word.is_array()) line.fail("bad_words", "lists of token ids");
    if (word.is_array()) s.bad_words.push_back(line.ids("bad_words", word.get_array()));
  }
  request.min_tokens = line.integer<uint32_t>("min_tokens");
  request.max_tokens = line.integer<uint32_t>("max_tokens");
  request.stop.token_ids = line.ids("stop_token_ids");
  request.stop.ignore_eos = line.boolean("ignore_eos");
  s.seed = line.integer<uint64_t>("seed");
  s.branch = line.integer<uint32_t>("branch");
  request.prompt = line.ids("prompt");
  request.begun = line.ids("begun");
  request.constraint_source = line.any_json("grammar");
  return branch;
}

TracedDraw read_token(Line& line, const TracedBranch& branch) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const size_t position = branch.request.begun.size() + branch.draws.size();
  if (line.integer<size_t>("position") != position) line.fail("position", "the one after the last");
  const int32_t token = line.integer<int32_t>("token");
  Draw draw{line.number("logprob", -kInfinity), line.number("processed_logprob", -kInfinity),
            line.integer<uint32_t>("support"), line.number("margin", kInfinity)};
  if (!line.is_absent("mask")) {
    draw.mask_digest = line.integer<uint64_t>("mask");
    draw.mask_allowed = line.integer<uint32_t>("allowed");
  }
  if (!line.is_absent("drafts")) {
    draw.num_drafts = line.integer<uint32_t>("drafts");
    draw.run_idx = line.integer<uint32_t>("run");
    if (draw.run_idx > draw.num_drafts) line.fail("run", "at most as many as \"drafts\"");
    const uint32_t before = branch.draws.empty() ? 0 : branch.draws.back().draw.run_idx + 1;
    if (draw.run_idx > 0 && draw.run_idx != before) line.fail("run", "0, or the one after the last");
  }
  return {token, draw};
}

class Parser {
 public:
  // What is wrong with the line; empty when nothing is.
  std::string add(const json::object& object) {
    Line line(object);
    const std::string type = line.text("type");
    if (!has_header_ && type != "header") return "expected a header, as of a sample trace";
    if (type == "header") {
      read_header(line);
    } else if (type == "request") {
      if (!places_.emplace(line.integer<RequestId>("request"), trace.branches.size()).second)
        line.fail("request", "an id that is new");
      trace.branches.push_back(read_request(line));
    } else if (type == "token" || type == "end") {
      const auto place = places_.find(line.integer<RequestId>("request"));
      if (place == places_.end()) return "request: expected one that the trace has";
      TracedBranch& branch = trace.branches[place->second];
      if (!branch.finish.empty()) return "request: expected nothing behind its end";
      if (type == "token")
        branch.draws.push_back(read_token(line, branch));
      else
        branch.finish = line.text("finish");
    } else {
      line.fail("type", "header, request, token or end");
    }
    return line.wrong();
  }
  bool has_header() const { return has_header_; }

  SampleTrace trace;

 private:
  void read_header(Line& line) {
    if (has_header_) line.fail("type", "one header");
    has_header_ = true;
    if (line.text("format") != "llmrt sample trace") line.fail("format", "\"llmrt sample trace\"");
    if (line.integer<int>("version") != kSampleTraceVersion) line.fail("version", "1");
    trace.origin = {line.text("model"), line.text("model_digest"), line.text("device"), line.text("kv_dtype")};
  }

  bool has_header_ = false;
  std::unordered_map<RequestId, size_t> places_;
};

}  // namespace

uint64_t TracedBranch::num_proposed() const {
  uint64_t proposed = 0;
  for (const TracedDraw& traced : draws) proposed += traced.draw.run_idx == 0 ? traced.draw.num_drafts : 0;
  return proposed;
}

uint64_t TracedBranch::num_accepted() const {
  return static_cast<uint64_t>(
      std::ranges::count_if(draws, [](const TracedDraw& traced) { return traced.draw.run_idx > 0; }));
}

Result<SampleTrace> parse_sample_trace(std::string_view text) {
  Parser parser;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // cut short
    json::error_code error;
    const json::value value = json::parse(json::string_view(text.data(), end), error);
    text.remove_prefix(end + 1);
    const std::string wrong = error || !value.is_object() ? "expected a JSON object" : parser.add(value.get_object());
    if (!wrong.empty()) return make_error(ErrorCode::kInvalidArgument, "sample trace: line {}: {}", number, wrong);
  }
  if (!parser.has_header())
    return make_error(ErrorCode::kInvalidArgument, "sample trace: expected a header, found none");
  return std::move(parser.trace);
}

}  // namespace llmrt
