// The records of requests: what the engine tells of each branch, the line it becomes, and what a file of them is taken
// for. Method: the backend of hashes under a clock by hand, one step of 10 ms a tick; the published schema is read and
// applied.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <sys/stat.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "core/engine/engine.h"
#include "core/trace/trace_file.h"
#include "core/trace/trace_summary.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/sim_clock.h"

using namespace llmrt;
using namespace llmrt::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;
namespace json = boost::json;

namespace {

constexpr double kStepMs = 10;

struct Records final : TraceSink {
  void put(RequestTrace trace) override { all.push_back(std::move(trace)); }
  std::vector<RequestTrace> all;
};

struct Sink final : EventSink {
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events)
      if (event.finish != FinishReason::kNone) ended.push_back(event.request_id);
  }
  std::vector<RequestId> ended;
};

struct Running {
  explicit Running(uint32_t num_blocks = 64) {
    EngineConfig config;
    config.context_max = 512;
    config.kv_tokens = num_blocks * 16;
    config.chunk_tokens = 16;
    config.step_tokens_max = 16;
    config.reserve_output_tokens = 0;
    config.watermark = 0;
    config.audit_steps = 1;
    config.overlap = false;
    auto created = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                                  std::make_unique<FakeBackend>(FakeBackendConfig{}), &clock, {});
    REQUIRE(created.ok());
    engine = std::move(*created);
    engine->set_trace(records);
  }
  RequestId submit(size_t num_prompt, uint32_t max_tokens, const std::function<void(Request&)>& change = {}) {
    Request request;
    request.prompt.assign(num_prompt, static_cast<int32_t>(++num_submitted % kFakeVocab));
    request.max_tokens = max_tokens;
    request.stop.ignore_eos = true;
    request.sink = sink;
    if (change) change(request);
    const Result<RequestId> id = engine->submit(std::move(request));
    REQUIRE(id.ok());
    return *id;
  }
  void tick() {
    REQUIRE(engine->tick().ok());
    clock.advance_ns(static_cast<TimeNs>(kStepMs) * kMs);
  }
  // Until all have ended; they are drained one tick after that.
  void run() {
    for (bool worked = true; worked;) {
      const auto tick = engine->tick();
      REQUIRE(tick.ok());
      worked = *tick || !sink->ended.empty();
      for (const RequestId id : sink->ended) engine->drained(id);
      sink->ended.clear();
      clock.advance_ns(static_cast<TimeNs>(kStepMs) * kMs);
    }
  }
  const RequestTrace& record_of(RequestId id) const {
    const auto it = std::ranges::find(records->all, id, &RequestTrace::id);
    REQUIRE(it != records->all.end());
    return *it;
  }

  SimClock clock;
  std::shared_ptr<Sink> sink = std::make_shared<Sink>();
  std::shared_ptr<Records> records = std::make_shared<Records>();
  std::unique_ptr<Engine> engine;
  size_t num_submitted = 0;
};

// ---- the schema ----------------------------------------------------------------------------------------------------

json::object read_schema() {
  std::ifstream file(std::string(LLMRT_SOURCE_DIR) + "/docs/request_trace.schema.json");
  std::stringstream text;
  text << file.rdbuf();
  return json::parse(text.str()).as_object();
}

bool has_type(const json::value& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  if (type == "integer") return value.is_number() && std::floor(value.to_number<double>()) == value.to_number<double>();
  FAIL("the schema knows a type that this test does not: " << type);
  return false;
}

// What is wrong with the value by its schema; empty = nothing. Of JSON Schema, what ours uses; anything else fails.
std::string violation(const json::value& value, const json::object& schema) {
  for (const auto& [keyword, rule] : schema) {
    if (keyword == "description") continue;
    bool holds = false;
    if (keyword == "type") {
      if (rule.is_string()) holds = has_type(value, std::string_view(rule.get_string()));
      if (rule.is_array())
        for (const json::value& type : rule.get_array()) holds |= has_type(value, std::string_view(type.get_string()));
    } else if (keyword == "enum") {
      for (const json::value& allowed : rule.as_array()) holds |= value == allowed;
    } else if (keyword == "minimum") {
      holds = !value.is_number() || value.to_number<double>() >= rule.to_number<double>();
    } else if (keyword == "maximum") {
      holds = !value.is_number() || value.to_number<double>() <= rule.to_number<double>();
    } else {
      FAIL("the schema has a keyword that this test does not know: " << std::string_view(keyword));
    }
    if (!holds) return std::string(keyword);
  }
  return "";
}

std::string schema_violation(const std::string& line) {
  static const json::object schema = read_schema();
  const json::value parsed = json::parse(line);
  if (!parsed.is_object()) return "no object";
  const json::object& record = parsed.get_object();
  for (const json::value& name : schema.at("required").as_array())
    if (!record.contains(name.as_string())) return "required: " + json::serialize(name);
  const json::object& properties = schema.at("properties").as_object();
  REQUIRE_FALSE(schema.at("additionalProperties").as_bool());
  for (const auto& [name, value] : record) {
    const json::value* property = properties.if_contains(name);
    if (property == nullptr) return "additional: " + std::string(name);
    if (const std::string wrong = violation(value, property->as_object()); !wrong.empty())
      return std::string(name) + ": " + wrong;
  }
  return "";
}

std::string line_of(const RequestTrace& trace) {
  return format_trace_line({.origin = {"a model", "w1"}, .written_unix_ms = 1'790'000'000'000, .trace = trace});
}

}  // namespace

TEST_CASE("a record tells the stages of a request without a gap") {
  Running run;
  const RequestId id = run.submit(40, 5, [](Request& request) {
    request.names.answer = "cmpl-1";
    request.adapter_id = 0;
    request.request_class = RequestClass::kAgent;
  });
  run.clock.advance_ns(25 * kMs);  // it arrived, and nobody looks
  for (int i = 0; i < 7; ++i) run.tick();
  REQUIRE(run.sink->ended == std::vector<RequestId>{id});
  CHECK(run.records->all.empty());  // not sent yet
  const TimeNs ended = run.clock.now_ns() - static_cast<TimeNs>(kStepMs) * kMs;
  run.engine->drained(id, {.first_ns = ended - 30 * kMs, .last_ns = ended + 50 * kMs});
  run.tick();

  const RequestTrace& record = run.record_of(id);
  CHECK(record.names.answer == "cmpl-1");
  CHECK(record.request_class == RequestClass::kAgent);
  CHECK(record.prompt_tokens == 40);
  CHECK(record.cached_tokens == 0);
  CHECK(record.output_tokens == 5);
  CHECK(record.reserved_kv_tokens == 40);
  CHECK(record.kv_blocks_peak == 3);
  CHECK(record.num_preemptions == 0);
  CHECK(record.finish == FinishReason::kLength);
  // Chunks of 16, 16 and 8 tokens; the third draws the first token, four more steps the others.
  CHECK_THAT(*record.queue_ms, WithinAbs(25, 1e-6));
  CHECK_THAT(*record.prefill_ms, WithinAbs(20, 1e-6));
  CHECK_THAT(*record.decode_ms, WithinAbs(40, 1e-6));
  CHECK_THAT(*record.stream_ms, WithinAbs(50, 1e-6));
  CHECK_THAT(*record.ttft_ms, WithinAbs(45, 1e-6));
  CHECK_THAT(*record.tpot_ms, WithinAbs(10, 1e-6));
  CHECK_THAT(*record.client_tpot_ms, WithinAbs(20, 1e-6));  // 80 ms over four gaps
  CHECK_THAT(*record.itl_p50_ms, WithinRel(10, 1.0 / 32));
  CHECK_THAT(*record.itl_p99_ms, WithinAbs(10, 1e-6));  // the largest is exact
}

TEST_CASE("the histograms of stages and lengths add up what the records tell") {
  Running run;
  run.submit(40, 5, [](Request& request) { request.n = 2; });
  run.submit(17, 1);
  const RequestId cancelled = run.submit(10, 4);
  run.engine->cancel(cancelled);  // neither admitted nor answered
  run.submit(1, 3);
  run.submit(20, 6, [](Request& request) {
    request.n = 2;
    request.beam = BeamParams{};
  });
  run.clock.advance_ns(25 * kMs);
  run.run();
  REQUIRE(run.records->all.size() == 2 + 1 + 1 + 1 + 2);
  double queue_ms = 0, prefill_ms = 0, decode_ms = 0, prompt_tokens = 0, answer_tokens = 0;
  for (const RequestTrace& record : run.records->all) {
    if (record.id == cancelled) continue;
    queue_ms += *record.queue_ms;
    prefill_ms += *record.prefill_ms;
    decode_ms += *record.decode_ms;
    answer_tokens += record.output_tokens;
    if (record.branch == 0) prompt_tokens += record.prompt_tokens;
  }
  const EngineStats stats = run.engine->stats();
  for (const Histogram* histogram : {&stats.queue_s, &stats.prefill_s, &stats.decode_s, &stats.answer_tokens_hist})
    CHECK(histogram->count() == 6);
  CHECK(stats.prompt_tokens_hist.count() == 4);
  CHECK_THAT(stats.queue_s.sum(), WithinRel(queue_ms * 1e-3, 1e-9));
  CHECK_THAT(stats.prefill_s.sum(), WithinRel(prefill_ms * 1e-3, 1e-9));
  CHECK_THAT(stats.decode_s.sum(), WithinRel(decode_ms * 1e-3, 1e-9));
  CHECK(stats.prompt_tokens_hist.sum() == prompt_tokens);
  CHECK(stats.answer_tokens_hist.sum() == answer_tokens);
  CHECK(stats.prompt_tokens_hist.count_up_to(1) == 1);
  CHECK(stats.prompt_tokens_hist.count_up_to(16) + 2 == stats.prompt_tokens_hist.count_up_to(32));  // 17 and 20
}

TEST_CASE("with one token there is no time per token, and what was not reached has none") {
  Running run;
  const RequestId one = run.submit(10, 1);
  run.run();
  CHECK_FALSE(run.record_of(one).tpot_ms.has_value());
  CHECK_FALSE(run.record_of(one).client_tpot_ms.has_value());
  CHECK_FALSE(run.record_of(one).itl_p50_ms.has_value());
  CHECK_FALSE(run.record_of(one).stream_ms.has_value());
  CHECK(run.record_of(one).ttft_ms.has_value());

  const RequestId waiting = run.submit(10, 4);
  run.engine->cancel(waiting);
  run.clock.advance_ns(7 * kMs);
  run.tick();
  const RequestTrace& cancelled = run.record_of(waiting);
  CHECK(cancelled.finish == FinishReason::kCancelled);
  CHECK_THAT(*cancelled.queue_ms, WithinAbs(7, 1e-6));
  CHECK_FALSE(cancelled.prefill_ms.has_value());
  CHECK_FALSE(cancelled.ttft_ms.has_value());
  CHECK(cancelled.kv_blocks_peak == 0);

  const RequestId prefilling = run.submit(100, 4);
  for (int i = 0; i < 3; ++i) run.tick();
  run.engine->cancel(prefilling, {}, FinishReason::kDisconnected);
  run.tick();
  CHECK(run.record_of(prefilling).finish == FinishReason::kDisconnected);
  CHECK(run.record_of(prefilling).prefill_ms.has_value());
  CHECK_FALSE(run.record_of(prefilling).decode_ms.has_value());
}

TEST_CASE("every branch has one record, however it ends") {
  Running run(12);
  const RequestId branches = run.submit(20, 6, [](Request& request) { request.n = 3; });
  const RequestId beams = run.submit(20, 6, [](Request& request) {
    request.n = 2;
    request.beam = BeamParams{};
  });
  const RequestId large = run.submit(60, 80), other = run.submit(60, 80);  // 9 blocks each: one yields
  const RequestId late = run.submit(16, 100, [&](Request& request) { request.deadline_ns = run.clock.now_ns() + kMs; });
  run.run();
  CHECK(run.records->all.size() == 3 + 2 + 1 + 1 + 1);
  for (RequestId id = branches; id < branches + 3; ++id) {
    CHECK(run.record_of(id).branch == id - branches);
    CHECK(run.record_of(id).output_tokens == 6);
  }
  for (RequestId id = beams; id < beams + 2; ++id) {
    CHECK(run.record_of(id).output_tokens == 6);
    CHECK(run.record_of(id).tpot_ms.has_value());
  }
  CHECK(run.record_of(large).num_preemptions + run.record_of(other).num_preemptions > 0);
  CHECK(run.record_of(late).finish == FinishReason::kTimeout);
  for (const RequestTrace& record : run.records->all) CHECK(schema_violation(line_of(record)) == "");
  // A stop of the engine leaves nobody out.
  run.submit(10, 4);
  run.submit(10, 1);
  for (int i = 0; i < 2; ++i) run.tick();
  run.engine->stop();
  REQUIRE(run.engine->run().ok());
  CHECK(run.records->all.size() == 8 + 2);
}

TEST_CASE("a line is what the published schema says, field for field, and is read back as it was") {
  const json::object schema = read_schema();
  const json::object& properties = schema.at("properties").as_object();
  REQUIRE(properties.size() == kTraceFields.size());
  REQUIRE(schema.at("required").as_array().size() == kTraceFields.size());
  for (const TraceField& field : kTraceFields) CHECK(properties.contains(field.name));
  for (size_t i = 0; i < kNumRequestClasses; ++i)
    CHECK(properties.at("class").at("enum").at(i) == request_class_name(static_cast<RequestClass>(i)));
  for (int i = 1; i < kNumFinishReasons; ++i)
    CHECK(properties.at("finish_reason").at("enum").at(static_cast<size_t>(i - 1)) ==
          finish_reason_name(static_cast<FinishReason>(i)));

  RequestTrace trace;
  trace.id = 17;
  trace.names.answer = "chat \"quoted\" \\ \n \x01 \xff bytes";
  trace.names.http = "mine-1";
  trace.branch = 3;
  trace.adapter_id = 2;
  trace.request_class = RequestClass::kBackground;
  trace.prompt_tokens = 100;
  trace.cached_tokens = 64;
  trace.output_tokens = 4294967295u;
  trace.queue_ms = 1.5;
  trace.ttft_ms = 0.25;
  trace.finish = FinishReason::kStopString;
  const std::string line = line_of(trace);
  CHECK(line.find('\n') == std::string::npos);
  CHECK(schema_violation(line) == "");
  const Result<TraceRow> row = read_trace_line(line);
  REQUIRE(row.ok());
  CHECK(format_trace_line(*row) == line);
  CHECK(row->origin.worker_id == "w1");
  CHECK(row->trace.adapter_id == 2);
  CHECK(row->trace.names.http == "mine-1");
  CHECK(line.find(R"("http_request_id":"mine-1","trace_id":null,)") != std::string::npos);
  CHECK(row->trace.finish == FinishReason::kStopString);
  CHECK_FALSE(row->trace.prefill_ms.has_value());
  trace.names.answer.clear();
  CHECK(read_trace_line(line_of(trace))->trace.names.answer == "17");
}

TEST_CASE("what is no record is refused with the field, what was expected and what was found") {
  RequestTrace trace;
  trace.queue_ms = 1;
  trace.finish = FinishReason::kEos;
  const json::object good = json::parse(line_of(trace)).as_object();
  const auto error_of = [](const std::string& line) {
    const Result<TraceRow> row = read_trace_line(line);
    return row.ok() ? std::string("read") : row.error().message;
  };
  REQUIRE(error_of(json::serialize(good)) == "read");
  for (const TraceField& field : kTraceFields) {
    json::object without = good;
    without.erase(field.name);
    CHECK_THAT(error_of(json::serialize(without)), ContainsSubstring(std::string(field.name) + ": expected "));
    // Whatever stands there, reader and schema agree.
    for (const json::value& value : {json::value(-1), json::value(1.5), json::value("x"), json::value(nullptr),
                                     json::value(json::array{}), json::value(true), json::value(4294967296.0),
                                     json::value(2e12), json::value(7), json::value("eos"), json::value("agent")}) {
      json::object changed = good;
      changed[field.name] = value;
      const std::string text = json::serialize(changed);
      INFO(text);
      const bool is_read = error_of(text) == "read";
      CHECK(is_read == (schema_violation(text) == ""));
    }
  }
  CHECK(error_of(R"({"queue_ms": "x")").starts_with("not JSON: expected one object"));
  CHECK(error_of("").starts_with("not JSON"));
  CHECK(error_of("[]") == "not a record: expected a JSON object, found []");
  json::object more = good;
  more["extra"] = 1;
  CHECK(error_of(json::serialize(more)) == R"("extra": expected no such field)");
  json::object negative = good;
  negative["queue_ms"] = -2;
  CHECK(error_of(json::serialize(negative)) == "queue_ms: expected a number from 0 to 1e12, found -2");
  std::string huge = json::serialize(good);
  huge.replace(huge.find("\"queue_ms\":1"), 12, "\"queue_ms\":1e999");
  CHECK(error_of(huge) != "read");
  CHECK(error_of(std::string(100, '[')) != "read");
  CHECK(error_of(std::string(kTraceLineBytesMax + 1, ' ')).starts_with("too long: expected at most 65536 bytes"));
}

TEST_CASE("of a line with any bytes changed, either all is right or it is refused") {
  RequestTrace trace;
  trace.names.answer = "cmpl-\xC3\xA4";
  trace.queue_ms = 1.25;
  trace.ttft_ms = 3;
  trace.finish = FinishReason::kEos;
  const std::string good = line_of(trace);
  const std::string pieces[] = {"null", "-1", "1e308", "\"", "{", "}", ",", "\\u0000", "\xff", "[[[[[[", "0.5", ":"};
  std::mt19937_64 random(11);
  TraceSummary summary;
  int num_read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string line = good;
    for (uint64_t n = 1 + random() % 2; n > 0; --n) {
      const size_t at = random() % line.size();
      if (random() % 2 == 0)
        line[at] = static_cast<char>(random());
      else
        line.replace(at, random() % 4, pieces[random() % std::size(pieces)]);
    }
    const Result<TraceRow> row = read_trace_line(line);
    if (!row) continue;
    ++num_read;
    summary.add(*row);
    const std::string again = format_trace_line(*row);
    const Result<TraceRow> reread = read_trace_line(again);
    INFO(line);
    REQUIRE(reread.ok());
    REQUIRE(format_trace_line(*reread) == again);
    REQUIRE(schema_violation(again) == "");
  }
  CHECK(num_read > 100);
  CHECK(summary.num_requests() == static_cast<uint64_t>(num_read));
  CHECK(summary.diagnose().ok());
}

// ---- summaries -----------------------------------------------------------------------------------------------------

namespace {

// A request of a healthy service: 400 prompt tokens, half of them cached, 100 tokens at 20 ms.
TraceRow plain_row(int i) {
  TraceRow row;
  row.origin = {"m", i % 2 == 0 ? "w0" : "w1"};
  RequestTrace& trace = row.trace;
  trace.prompt_tokens = 400;
  trace.cached_tokens = 200;
  trace.output_tokens = 100;
  trace.reserved_kv_tokens = 500;
  trace.kv_blocks_peak = 32;
  trace.finish = FinishReason::kEos;
  trace.queue_ms = 5;
  trace.prefill_ms = 40;
  trace.decode_ms = 99 * 20;
  trace.stream_ms = 2;
  trace.ttft_ms = 45;
  trace.tpot_ms = 20;
  trace.itl_p50_ms = trace.itl_p95_ms = 20;
  trace.itl_p99_ms = 22 + i % 3;
  return row;
}

struct Symptom {
  TraceStage stage;
  TraceCause cause;
  const char* evidence;
  void (*change)(int i, TraceRow& row);
};

const Symptom kSymptoms[] = {
    {TraceStage::kQueue, TraceCause::kOverload, "p50 of the wait",
     [](int i, TraceRow& row) { row.trace.queue_ms = 60.0 * i; }},
    {TraceStage::kQueue, TraceCause::kOverReservation, "4400 KV tokens reserved a request, 500 used",
     [](int i, TraceRow& row) {
       row.trace.queue_ms = 60.0 * i;
       row.trace.reserved_kv_tokens = 4400;
     }},
    {TraceStage::kQueue, TraceCause::kWorkerSkew, "requests of worker \"w1\" wait",
     [](int i, TraceRow& row) { row.trace.queue_ms = row.origin.worker_id == "w1" ? 120.0 * i : 10; }},
    {TraceStage::kPrefill, TraceCause::kUncachedPrompts, "8000 prompt tokens a request, 2 % of them cached",
     [](int, TraceRow& row) {
       row.trace.prompt_tokens = 8000;
       row.trace.cached_tokens = 160;
       row.trace.reserved_kv_tokens = 8100;
       row.trace.prefill_ms = 6000;
     }},
    {TraceStage::kPrefill, TraceCause::kStarvedPrefill, "400 prompt tokens a request, 50 % of them cached",
     [](int, TraceRow& row) { row.trace.prefill_ms = 4000; }},
    {TraceStage::kDecode, TraceCause::kPreemptions, "requests yielded",
     [](int i, TraceRow& row) {
       if (i % 4 != 0) return;
       row.trace.num_preemptions = 3;
       row.trace.decode_ms = 9000;
       row.trace.itl_p99_ms = 3000;
     }},
    {TraceStage::kDecode, TraceCause::kPrefillInterference, "gaps between them p50 20.",
     [](int, TraceRow& row) { row.trace.itl_p99_ms = 400; }},
    {TraceStage::kDecode, TraceCause::kDecodeSpeed, "100 tokens a request", [](int, TraceRow&) {}},
    {TraceStage::kStream, TraceCause::kSlowClients, "from the last token to the last byte sent",
     [](int, TraceRow& row) { row.trace.stream_ms = 5000; }},
    {TraceStage::kStream, TraceCause::kSlowClients, "p95 ",
     [](int i, TraceRow& row) {  // whole answers of two choices, which end one after the other
       row.trace.names.answer = fmt::format("cmpl-{:024x}", i / 2);
       row.trace.stream_ms = i % 2 == 0 ? 9000 : 5000;
     }},
    {TraceStage::kStream, TraceCause::kWholeAnswers, "100 % of the time from the last token",
     [](int i, TraceRow& row) {  // of two prompts with two choices each, the last of which is long
       row.trace.names.answer = fmt::format("chatcmpl-{:024x}-{}", i / 4, i / 2 % 2);
       row.trace.stream_ms = i % 4 == 3 ? 2 : 9000;
     }},
};

struct TempFile {
  explicit TempFile(const std::string& name)
      : path(std::filesystem::temp_directory_path() / fmt::format("llmrt_{}_{}", ::getpid(), name)) {}
  ~TempFile() { std::filesystem::remove(path); }
  std::filesystem::path path;
};

Result<TraceSummary> summarize_text(const std::string& text) {
  const TempFile file("summary");
  std::ofstream(file.path, std::ios::binary) << text;
  std::FILE* opened = std::fopen(file.path.c_str(), "rb");
  REQUIRE(opened != nullptr);
  Result<TraceSummary> summary = summarize_trace(opened);
  std::fclose(opened);
  return summary;
}

}  // namespace

TEST_CASE("a synthetic trace of each symptom is named rightly: stage, cause and figures") {
  for (const Symptom& symptom : kSymptoms) {
    INFO(trace_cause_name(symptom.cause));
    std::string text;
    for (int i = 0; i < 200; ++i) {
      TraceRow row = plain_row(i);
      symptom.change(i, row);
      const std::string line = format_trace_line(row);
      REQUIRE(schema_violation(line) == "");
      text += line + "\n";
    }
    const Result<TraceSummary> summary = summarize_text(text);
    REQUIRE(summary.ok());
    CHECK(summary->num_requests() == 200);
    const auto diagnosis = summary->diagnose();
    REQUIRE(diagnosis.ok());
    CHECK(std::string(trace_stage_name(diagnosis->dominant)) == trace_stage_name(symptom.stage));
    CHECK(std::string(trace_cause_name(diagnosis->cause)) == trace_cause_name(symptom.cause));
    CHECK_THAT(diagnosis->evidence, ContainsSubstring(symptom.evidence));
    double shares = 0;
    for (const TraceStage stage : {TraceStage::kQueue, TraceStage::kPrefill, TraceStage::kDecode, TraceStage::kStream})
      shares += summary->share(stage);
    CHECK_THAT(shares, WithinAbs(1, 1e-9));
  }
}

TEST_CASE("a file's bad line is told by its number, and an empty file has nothing to say") {
  const std::string good = format_trace_line(plain_row(1));
  const auto error_of = [](const std::string& text) {
    const auto summary = summarize_text(text);
    return summary.ok() ? std::string("read") : summary.error().message;
  };
  CHECK(error_of(good + "\n" + good) == "read");  // the last line may lack its end
  CHECK(error_of(good + "\n" + good + "\n{\"a\":1}\n") ==
        "line 3: written_unix_ms: expected a whole number of at least 0, found no such field");
  CHECK(error_of(good + "\n\n" + good + "\n").starts_with("line 2: not JSON"));
  CHECK(error_of(good + "\n" + std::string(1 << 20, 'x')).starts_with("line 2: too long"));
  CHECK(error_of(std::string("\0\0\n", 3)).starts_with("line 1: not JSON"));
  const auto empty = summarize_text("");
  REQUIRE(empty.ok());
  CHECK(empty->diagnose().error().message == "nothing to diagnose: expected requests that took time, found 0");
}

TEST_CASE("the file has a line for each record, whoever puts them and however fast") {
  const TempFile file("trace");
  std::ostringstream log;
  constexpr int kThreads = 4, kEach = 1000;
  {
    auto opened = TraceFile::open(file.path.string(), {"m\"x", "w"}, stream_log(log, LogLevel::kInfo));
    REQUIRE(opened.ok());
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          RequestTrace trace = plain_row(i).trace;
          trace.id = static_cast<RequestId>(t * kEach + i);
          (*opened)->put(std::move(trace));
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
  std::ifstream lines(file.path);
  std::vector<bool> seen(kThreads * kEach);
  for (std::string line; std::getline(lines, line);) {
    const auto row = read_trace_line(line);
    REQUIRE(row.ok());
    CHECK(row->origin.model == "m\"x");
    seen[std::stoul(row->trace.names.answer)] = true;
  }
  CHECK(std::ranges::count(seen, true) == kThreads * kEach);
  CHECK(log.str().empty());
  const auto nowhere = TraceFile::open("/nowhere/at/all", {}, silent_log());
  REQUIRE_FALSE(nowhere.ok());
  CHECK(nowhere.error().message ==
        "request trace: /nowhere/at/all: expected a file that can be written, found: No such file or directory");
}

TEST_CASE("a file with records is made for its owner alone; one that others may read stays, with a warning") {
  const TempFile made("mode");
  const std::filesystem::path& path = made.path;
  using std::filesystem::perms;
  const mode_t umask_before = ::umask(0);
  for (const bool is_wide : {false, true}) {
    if (is_wide) std::filesystem::permissions(path, perms(0644));
    std::ostringstream lines;
    {
      const auto file = TraceFile::open(path.string(), {"a model", "w1"}, stream_log(lines, LogLevel::kInfo));
      REQUIRE(file.ok());
      (*file)->put({});
    }
    CHECK(std::filesystem::status(path).permissions() == perms(is_wide ? 0644 : 0600));
    CHECK((lines.str().find("others than its owner may read it") != std::string::npos) == is_wide);
  }
  ::umask(umask_before);
}

TEST_CASE("a disk that is full ends the records, and the log says so") {
  if (!std::filesystem::exists("/dev/full")) SKIP("expected /dev/full");
  std::ostringstream log;
  {
    auto opened = TraceFile::open("/dev/full", {"m", "w"}, stream_log(log, LogLevel::kInfo));
    REQUIRE(opened.ok());
    for (int i = 0; i < 3; ++i) (*opened)->put(plain_row(i).trace);
  }
  CHECK_THAT(log.str(), ContainsSubstring("request trace: /dev/full: cannot write, nothing more is recorded"));
}
