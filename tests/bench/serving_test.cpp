// The parts of the serving bench measure what they say. Method: engines on the backend of hashes, whose steps take 0.1
// ms and 0.01 ms a token (and little for keys), and a clock that moves by that much, so figures can be told beforehand.
#include <boost/json.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/engine/pool_shapes.h"
#include "tests/bench/timed_backend.h"
#include "tools/llmrt_bench/serving/batch_sizes.h"
#include "tools/llmrt_bench/serving/drive.h"
#include "tools/llmrt_bench/serving/loaded_device.h"
#include "tools/llmrt_bench/serving/parts.h"

using namespace llmrt;
using namespace llmrt::bench;
using namespace llmrt::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

struct Bed {
  explicit Bed(FakeBackendConfig config = {}) {
    auto backend = std::make_unique<TimedBackend>(&clock, config, &num_loads);
    auto loaded = LoadedDevice::load(std::move(backend), model, &clock);
    REQUIRE(loaded.ok());
    device = std::move(*loaded);
  }
  Status run(Status (*part)(const Bench&)) {
    return part({options, *model, device.caps(), clock, report,
                 [&](EngineConfig config) {
                   if (shares) config.class_shares = *shares;
                   return device.make_engine(config);
                 },
                 [&](TimeNs then) { clock.advance_ns(then - clock.now_ns()); }});
  }
  const boost::json::object& figure(std::string_view name) const {
    for (const auto& row : record.json().at("rows").as_array())
      if (row.at("details").at("name").as_string() == name) return row.as_object();
    FAIL("no figure \"" << name << "\" in " << boost::json::serialize(record.json()));
    std::abort();
  }
  double value(std::string_view name) const { return figure(name).at("values").at("value").at("value").as_double(); }
  std::string note(std::string_view name) const {
    return std::string(figure(name).at("details").at("note").as_string());
  }

  SimClock clock;
  int num_loads = 0;
  std::shared_ptr<const Model> model = make_fake_model();
  ServingOptions options;
  Record record = *Record::create("serving", {}, {}, "");
  Report report{&record, &clock};
  LoadedDevice device;
  std::optional<ClassShares> shares;  // instead of those that a part asks for
};

Bed& small_batching(Bed& bed) {
  bed.options.sequences = 8;
  bed.options.batching = {.num_requests = 40, .prompt_min = 8, .prompt_max = 64, .output_mean = 8, .output_max = 32};
  return bed;
}

Bed& small_classes(Bed& bed) {
  bed.options.classes_s = 0.4;
  bed.options.classes_rows = 16;
  bed.options.classes_prompt = 256;
  bed.options.classes_output = 64;
  return bed;
}

constexpr const char* kFixedShape = "static, fixed shape";
constexpr const char* kLiveRows = "static, rows that end cost nothing";

}  // namespace

TEST_CASE("batching counts what was asked for, whatever is computed on top, and loads the weights once") {
  Bed bed;
  small_batching(bed).options.budget_s = 1000;
  bed.options.prefix_prompt = 100;
  REQUIRE(bed.run(batching_part).ok());
  uint64_t tokens = 0;
  for (const WorkItem& item : make_workload(bed.options.batching, kFakeVocab)) tokens += item.output_tokens;
  for (const char* name : {"continuous", kFixedShape, kLiveRows})
    CHECK_THAT(bed.note(name), ContainsSubstring(fmt::format("40 of 40 requests, {} tokens in", tokens)));
  CHECK(bed.value("continuous") > bed.value(kLiveRows));
  CHECK(bed.value(kLiveRows) > bed.value(kFixedShape));
  CHECK_THAT(bed.value(fmt::format("continuous / {}", kFixedShape)),
             WithinRel(bed.value("continuous") / bed.value(kFixedShape), 1e-9));
  CHECK_THAT(bed.note(kFixedShape), ContainsSubstring("steps of 8.0 rows"));
  CHECK(bed.device.free_pool().ok());
  REQUIRE(bed.run(prefix_part).ok());  // another engine after all that
  CHECK(bed.num_loads == 1);
}

TEST_CASE("batching that passes its budget says so, and static batches are whole") {
  Bed bed;
  small_batching(bed).options.budget_s = 8e-3;
  REQUIRE(bed.run(batching_part).ok());
  CHECK_THAT(bed.note("continuous"), ContainsSubstring("CUT by the budget"));
  CHECK_THAT(bed.note(kFixedShape), ContainsSubstring("8 of 40 requests"));
  CHECK_THAT(bed.note(kLiveRows), ContainsSubstring("8 of 40 requests"));
}

TEST_CASE("rows that need their newest token are as fast as plain ones where the host takes no time") {
  Bed bed;
  bed.options.beats_rows = 8;
  bed.options.beats_output = 32;
  REQUIRE(bed.run(beats_part).ok());
  // 8 tokens of 0.01 ms beside the 0.1 ms of a step, and little for keys.
  CHECK_THAT(bed.value("plain rows: 8"), WithinRel(8 / 0.18e-3, 0.1));
  CHECK_THAT(bed.value("the same / plain, rows: 8"), WithinRel(1, 0.01));
  CHECK_THAT(bed.value("the same / plain, rows: 1"), WithinRel(1, 0.01));
  CHECK_THAT(bed.note("the same / plain, rows: 1"), ContainsSubstring("0 draws parked"));
}

// Masks are made in real time, the clock is simulated: speeds say nothing here.
TEST_CASE("rows with grammars end by them with JSON that fits, beside plain rows of the same lengths") {
  Bed bed;
  bed.options.grammar_rows = {4};
  bed.options.grammar_prompt = 8;
  bed.options.grammar_output = 1200;  // the vocabulary is of characters
  bed.options.grammar_answers = 2;
  bed.options.grammar_rounds = 1;
  bed.options.grammar_spaces = SchemaOptions::Spaces::kCompact;
  const Status status = bed.run(grammar_part);
  INFO((status.ok() ? "" : status.error().message));
  REQUIRE(status.ok());
  CHECK(bed.value("grammar 4: whole answers that fit") == 1);
  CHECK_THAT(bed.note("grammar 4: whole answers that fit"), ContainsSubstring(" of 8 answers ended by their grammar"));
  CHECK_THAT(bed.note("grammar 4: whole answers that fit"), !ContainsSubstring("0 of 8 answers"));
  CHECK(bed.value("plain rows: 4") > 0);
  CHECK(bed.value("rows with grammars: 4") > 0);
  CHECK_THAT(bed.note("grammar 4: compile, p50"), ContainsSubstring("8 schemas"));
  CHECK_THAT(bed.note("grammar 4: CPU of a mask"), !ContainsSubstring("0 made"));
}

TEST_CASE("a gap is as long as the step that holds the chunk") {
  Bed bed;
  bed.options.gap_streams = 4;
  bed.options.gap_prompt = 1024;
  bed.options.gap_settings = {"64", "x6"};
  REQUIRE(bed.run(gap_part).ok());
  // 1,024 tokens and four rows; the keys: 1,024 x 1,025 / 2 x 1e-5 ms.
  CHECK_THAT(bed.value("unchunked (steps of 1028): worst gap"), WithinRel(0.1 + 0.01 * 1028 + 5.25, 0.02));
  // A chunk and the four rows beside it fill a step of 64; the last chunk reads the most keys: 60 x 990 x 1e-5.
  CHECK_THAT(bed.value("chunks of 64: worst gap"), WithinRel(0.1 + 0.01 * 64 + 0.6, 0.03));
  // One of them was in flight when the prompt came.
  CHECK_THAT(bed.note("chunks of 64: worst gap"), ContainsSubstring("19 steps until then"));
  CHECK_THAT(bed.value("chunks of 64: gap / unchunked gap"), WithinRel(1.34 / 15.63, 0.05));
  CHECK(bed.value("chunks within x6 steps: gap / plain step") <= 6.6);
}

TEST_CASE("chunk sizes: what later chunks read again is counted, and small chunks shorten gaps") {
  Bed bed;
  BatchSizes sizes;
  sizes.chunks = {64, 256, 1u << 16};
  sizes.num_streams = 4;
  sizes.prompt_tokens = 480;
  std::vector<SizedDevice> devices;
  devices.push_back({"fake:0", std::move(bed.device)});
  REQUIRE(compare_chunks(sizes, bed.model.get(), devices, bed.clock, &bed.record).ok());
  const boost::json::array& rows = bed.record.json().at("rows").as_array();
  REQUIRE(rows.size() == 5);  // counted three times, measured twice
  const auto value = [&](size_t row, const char* name) {
    return rows[row].at("values").at(name).at("value").as_double();
  };
  // Four rows beside 60 tokens, so chunks begin at 0, 60, ... 420; or at 0 and 252.
  CHECK(value(0, "chunks") == 8);
  CHECK(value(0, "kv_read_again") == 60 * (1 + 2 + 3 + 4 + 5 + 6 + 7));
  CHECK(value(2, "kv_read_again") == 252);
  CHECK(value(4, "kv_read_again") == 0);
  CHECK_THAT(value(1, "worst_itl"), WithinRel(0.1 + 0.01 * 64 + 60 * 450 * 1e-5, 0.03));
  CHECK(value(1, "ttft") > value(3, "ttft"));
  CHECK(rows[1].at("values").at("ttft").at("samples").as_array().size() == 3);
  CHECK(bed.record.json().at("missing").as_array().at(0).at("test") == "chunks of 65536");
  sizes.chunks = {4};
  CHECK_THAT(compare_chunks(sizes, nullptr, {}, bed.clock, &bed.record).error().message,
             ContainsSubstring("expected more tokens than there are streams (4), found 4"));
}

TEST_CASE("block sizes: larger blocks are fewer and emptier") {
  Bed bed;
  BatchSizes sizes;
  std::vector<SizedDevice> devices;
  devices.push_back({"fake:0", std::move(bed.device)});
  const std::vector<DryRequest> requests(6, {40, 5, 0});
  REQUIRE(compare_blocks(sizes, requests, bed.model.get(), devices, bed.clock, &bed.record).ok());
  const boost::json::array& rows = bed.record.json().at("rows").as_array();
  REQUIRE(rows.size() == 6);
  const auto value = [&](size_t row, const char* name) {
    return rows[row].at("values").at(name).at("value").as_double();
  };
  CHECK(value(0, "blocks_max") == 4 * 3);  // four at a time, of up to 45 tokens
  CHECK(value(2, "blocks_max") == 4 * 2);
  CHECK(value(4, "blocks_max") == 4 * 1);
  CHECK(value(0, "kv_waste") < value(2, "kv_waste"));
  CHECK_THAT(value(1, "tok_s") * value(1, "time"), WithinRel(30.0, 1e-6));
}

TEST_CASE("a gap setting is a number of tokens, or of plain steps") {
  CHECK(parse_pacing("512")->chunk_tokens == 512);
  CHECK(parse_pacing("x2.5")->plain_steps == 2.5);
  for (const char* text : {"", "x", "0", "-3", "12k", "x0.5", "xnan", "512 ", "99999999999"})
    CHECK_FALSE(parse_pacing(text).ok());
}

TEST_CASE("a prefix that is shared is not computed again") {
  Bed bed;
  bed.options.prefix_prompt = 1000;
  REQUIRE(bed.run(prefix_part).ok());
  CHECK_THAT(bed.value("TTFT of 1000 tokens, cold"), WithinRel(0.1 + 10 + 5.0, 0.05));
  CHECK_THAT(bed.note("TTFT, 900 of them shared"), ContainsSubstring("896 cached"));
  CHECK_THAT(bed.value("TTFT, 900 of them shared"), WithinRel(0.1 + 1 + 0.95, 0.05));
}

TEST_CASE("8-bit pools hold what their bytes say, and a device that decodes them as fast is not slower") {
  Bed bed;
  bed.options.kv_mib = 1;
  bed.options.kv_rows = 3;
  bed.options.kv_output = 8;
  bed.options.kv_contexts = {32, 64};
  bed.options.kv_compared = {KvDType::kI8};
  REQUIRE(bed.run(kv_part).ok());
  const auto tokens = [&](KvDType dtype) {
    EngineConfig config;
    config.kv_dtype = dtype;
    return static_cast<double>(PoolShapes(bed.model->config, config).blocks_in(1u << 20) * config.block_tokens);
  };
  CHECK(bed.value("f16: tokens in 1 MiB") == tokens(KvDType::kF16));
  CHECK(bed.value("int8: tokens in 1 MiB") == tokens(KvDType::kI8));
  CHECK_THAT(bed.value("f16: decode, 3 rows at 32"), WithinRel(3e3 / 0.131, 0.02));
  CHECK_THAT(bed.value("int8 / f16: speed, 3 rows at 64"), WithinAbs(1, 1e-9));
}

TEST_CASE("the ablation adds features, and chunks shorten the worst gap") {
  Bed bed;
  bed.options.ablation_sequences = 16;
  bed.options.ablation_requests = 64;
  bed.options.ablation_context = 1024;
  REQUIRE(bed.run(ablation_part).ok());
  CHECK_THAT(bed.note("naive: one at a time"), ContainsSubstring("6 of 64 requests"));
  CHECK_THAT(bed.note("naive: one at a time"), ContainsSubstring("the first ones only"));
  CHECK_THAT(bed.note("+ paged KV: batch of 16"), ContainsSubstring("64 of 64 requests"));
  CHECK_THAT(bed.note("+ paged KV: batch of 16"), ContainsSubstring(" 0 prompt tokens cached"));
  CHECK_THAT(bed.note("+ prefix cache"), !ContainsSubstring(" 0 prompt tokens cached"));
  CHECK(bed.value("+ paged KV: batch of 16") > bed.value("naive: one at a time"));
  CHECK(bed.value("+ prefix cache: on / off") > 1);
  CHECK(bed.value("+ continuous batching: on / off") > 1);
  CHECK_THAT(bed.note("+ chunked prefill: on / off"), ContainsSubstring("worst gap 0."));
}

TEST_CASE("an ablation that passes its budget names where, and compares nothing that was cut") {
  Bed bed;
  bed.options.ablation_sequences = 16;
  bed.options.ablation_requests = 64;
  bed.options.ablation_context = 1024;
  bed.options.budget_s = 0.2;
  const Status status = bed.run(ablation_part);
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(status.error().message, ContainsSubstring("in \"+ paged KV: batch of 16\""));
  CHECK_THAT(bed.note("+ paged KV: batch of 16"), ContainsSubstring("CUT by the budget"));
  CHECK(boost::json::serialize(bed.record.json()).find("+ paged KV: batch of 16: on / off") == std::string::npos);
}

// Steps take about the same whatever they hold, so only the scheduler can make anybody wait.
TEST_CASE("at twice the load interactive requests wait as alone, and batch gets its share and what is left") {
  Bed bed({.token_ms = 0.0002, .key_ms = 0});
  REQUIRE(small_classes(bed).run(classes_part).ok());
  CHECK(bed.value("both backlogged: batch off its share") <= 5);
  CHECK_THAT(bed.note("both backlogged: batch off its share"),
             ContainsSubstring("due 33.3 % by decode, 62.5 % by prefill: slots are scarce"));
  CHECK_THAT(bed.value("overload: offered / capacity"), WithinRel(2, 0.1));
  CHECK(bed.value("overload: TTFT p95 / alone") <= 1.2);
  CHECK(bed.value("overload: interactive refused") == 0);
  CHECK(bed.value("overload: batch off what is due") <= 5);
  // The same requests in both.
  const auto requests = [&](const char* name) {
    const std::string note = bed.note(name);
    return note.substr(note.find(';'), note.find(" requests") - note.find(';'));
  };
  CHECK(requests("alone: interactive TTFT, p95") == requests("overload: interactive TTFT, p95"));
}

// Steps as of a large model, in small: a chunk takes half as long again as the step beside it.
TEST_CASE("where batch makes steps long an interactive request waits for little more than the one that runs") {
  Bed bed({.token_ms = 0.0012, .key_ms = 0});
  small_classes(bed).options.classes_s = 1;
  bed.options.classes_chunk = 128;
  bed.options.classes_output = 128;
  REQUIRE(bed.run(classes_part).ok());
  CHECK(bed.value("overload: TTFT p95 / alone") <= 1.2);
  CHECK(bed.value("overload: batch off what is due") <= 5);
}

TEST_CASE("a scheduler that gives a class less than its share is seen") {
  Bed bed({.token_ms = 0.0002, .key_ms = 0});
  bed.shares = ClassShares();
  bed.shares->decode[0] = bed.shares->prefill[0] = 0.01;  // interactive
  REQUIRE(small_classes(bed).run(classes_part).ok());
  CHECK(bed.value("both backlogged: batch off its share") > 5);
  CHECK(bed.value("overload: TTFT p95 / alone") > 1.2);
  CHECK(bed.value("overload: batch off what is due") > 5);
}

TEST_CASE("a device that is lost ends a part with its error") {
  Bed bed({.lost_at_submit = 30});
  small_batching(bed);
  const Status status = bed.run(batching_part);
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == ErrorCode::kDeviceLost);
}
