// The text of /metrics: its form in both formats, what it says of everything, and which format a scraper gets.
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <ctime>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "server/http.h"
#include "server/metrics_text.h"
#include "server/metrics_vllm.h"

namespace llmrt::server {
namespace {

struct Figures {
  EngineStats stats;
  ServerFigures server;
  ServedModel model;
  ProcessFigures process;
  std::optional<GrammarFigures> grammars;

  std::string text(MetricsFormat format) const {
    return metrics_text({stats, server, model, process, grammars}, format);
  }
};

Figures some_figures() {
  Figures figures;
  figures.model.id = "letters";
  figures.model.block_tokens = 16;
  figures.model.origin = {"1.2.3", "cuda", "cuda:0", "Some \"GPU\"", "f16"};
  figures.stats.blocks_total = 100;
  figures.stats.kv_groups = {{0, 60, 55, 20}, {512, 40, 5, 38}};
  figures.stats.states = {40, 12, 9, 33, 24, 21};
  figures.stats.host_blocks_total = 7;
  figures.stats.plan_ms = 1500;
  figures.stats.littles_law = {.in_system = 10, .arrivals_per_s = 2, .time_in_system_s = 4};
  figures.stats.queue_s.add(0.02);
  figures.stats.prefill_s.add(0.3);
  figures.stats.decode_s.add(70);
  figures.stats.prompt_tokens_hist.add(1000);
  figures.stats.answer_tokens_hist.add(3);
  figures.server.responses = {{200, 5}, {404, 1}};
  count_refusal(figures.server.refusals, "unknown_field");
  figures.server.ignored_fields[static_cast<size_t>(CountedPath::kCompletions)] = 3;
  figures.server.oddities[static_cast<size_t>(Oddity::kBrokenCall)] = 4;
  figures.grammars = GrammarFigures{.num_compiled = 6, .num_cached = 8, .num_refused = 3, .num_masks_made = 70};
  figures.grammars->mask_cpu_us = 2'500'000;
  figures.grammars->compile_ms_sum = 250;
  figures.grammars->cache_bytes = 4096;
  figures.grammars->refused = {{ErrorCode::kGrammarTimeout, 2}, {ErrorCode::kIo, 1}};
  figures.server.connections_open = 9;
  figures.server.connections_limit = 4096;
  figures.server.memory_refusals = {2, 0, 5};
  figures.server.host_out_of_memory = 1;
  figures.stats.num_pool_exhausted = 6;
  figures.server.client_memory_bytes = 1 << 20;
  figures.server.client_memory_limit_bytes = 1 << 30;
  figures.server.files = FileFigures{.inputs = 7, .outputs = 2, .bytes = 5000, .bytes_limit = 1 << 30};
  figures.server.files->batches[static_cast<size_t>(BatchState::kInProgress)] = 3;
  figures.server.files->lines_open = 40;
  figures.server.files->lines_completed = 60;
  figures.server.files->lines_failed = 1;
  figures.process = {.cpu_seconds = 1.5,
                     .start_time_seconds = 1.79e9,
                     .resident_bytes = 4096,
                     .virtual_bytes = 8192,
                     .open_fds = 12,
                     .max_fds = 1024};
  return figures;
}

bool has_line(const std::string& text, const std::string& line) {
  return text.starts_with(line + "\n") || text.find("\n" + line + "\n") != std::string::npos;
}

// Reads a text as a strict parser does: families follow each other, each with its head, once, before its samples, whose
// names are the family's with a suffix of its type. Returns type by family.
std::map<std::string, std::string> check_form(const std::string& text, MetricsFormat format) {
  const bool is_open = format == MetricsFormat::kOpenMetrics;
  const std::map<std::string, std::set<std::string>> suffixes = {
      {"gauge", {""}},
      {"counter", {is_open ? "_total" : ""}},
      {"histogram", {"_bucket", "_sum", "_count"}},
      {"info", {"_info"}},
  };
  std::map<std::string, std::string> types;
  std::set<std::string> helps, units, series;
  std::string family, line;
  std::istringstream lines(text);
  bool ended = false;
  REQUIRE(text.ends_with("\n"));
  while (std::getline(lines, line)) {
    INFO(line);
    REQUIRE(!ended);
    REQUIRE(!line.empty());
    if (line == "# EOF") {
      ended = true;
      continue;
    }
    if (line.starts_with("# ")) {
      std::istringstream words(line);
      std::string hash, keyword, name, word;
      words >> hash >> keyword >> name >> word;
      REQUIRE(!word.empty());
      if (keyword == "HELP") {
        REQUIRE(helps.insert(name).second);
        REQUIRE(line.find('\\') == std::string::npos);
        family = name;
      } else if (keyword == "TYPE") {
        REQUIRE(name == family);
        REQUIRE(suffixes.contains(word));
        REQUIRE((is_open || word != "info"));
        REQUIRE(types.emplace(name, word).second);
        // promtool: what is no counter does not end like one.
        REQUIRE(name.ends_with("_total") == (word == "counter" && !is_open));
      } else {
        REQUIRE(keyword == "UNIT");
        REQUIRE(is_open);
        REQUIRE(name == family);
        REQUIRE(name.ends_with("_" + word));
        REQUIRE(units.insert(name).second);
      }
      continue;
    }
    const size_t name_end = line.find_first_of("{ ");
    const std::string name = line.substr(0, name_end);
    REQUIRE(types.contains(family));
    REQUIRE(name.starts_with(family));
    REQUIRE(suffixes.at(types.at(family)).contains(name.substr(family.size())));
    const size_t value_begin = line.rfind(' ') + 1;
    REQUIRE(series.insert(line.substr(0, value_begin)).second);
    const std::string value = line.substr(value_begin);
    if (value != "NaN" && value != "+Inf" && value != "-Inf")
      REQUIRE(value.find_first_not_of("0123456789.e+-") == std::string::npos);
  }
  CHECK(ended == is_open);
  CHECK(helps.size() == types.size());
  for (const auto& [name, type] : types)
    for (const char* unit : {"_seconds", "_bytes", "_ratio"})
      if (is_open && name.ends_with(unit)) CHECK(units.contains(name));
  return types;
}

TEST_CASE("metrics have the form of both formats, with the same families in each") {
  for (const Figures& figures : {some_figures(), Figures()}) {
    const auto text = check_form(figures.text(MetricsFormat::kText), MetricsFormat::kText);
    const auto open = check_form(figures.text(MetricsFormat::kOpenMetrics), MetricsFormat::kOpenMetrics);
    CHECK(text.size() == open.size());
    for (const auto& [name, type] : open) {
      INFO(name);
      if (type == "counter")
        CHECK(text.at(name + "_total") == "counter");
      else if (type == "info")
        CHECK(text.at(name + "_info") == "gauge");
      else
        CHECK(text.at(name) == type);
    }
  }
}

TEST_CASE("both formats tell the same samples") {
  const Figures figures = some_figures();
  const auto samples = [&](MetricsFormat format) {
    std::istringstream lines(figures.text(format));
    std::string line, kept;
    while (std::getline(lines, line))
      if (!line.starts_with("#")) kept += line + "\n";
    return kept;
  };
  CHECK(samples(MetricsFormat::kText) == samples(MetricsFormat::kOpenMetrics));
}

TEST_CASE("metrics tell what runs, stages, lengths, refusals and the process") {
  const std::string text = some_figures().text(MetricsFormat::kText);
  for (const char* line : {
           "llmrt_info{version=\"1.2.3\",model=\"letters\",backend=\"cuda\",device=\"cuda:0\","
           "device_name=\"Some \\\"GPU\\\"\",kv_dtype=\"f16\"} 1",
           "# TYPE llmrt_kv_blocks gauge",
           "llmrt_kv_blocks 100",
           "llmrt_kv_group_blocks{group=\"0\",window=\"0\"} 60",
           "llmrt_kv_group_blocks_free{group=\"1\",window=\"512\"} 5",
           "llmrt_kv_group_blocks_used_most{group=\"1\",window=\"512\"} 38",
           "llmrt_kv_host_blocks 7",
           "llmrt_state_records 40",
           "llmrt_state_records_used 12",
           "llmrt_state_checkpoints 9",
           "# TYPE llmrt_state_checkpoints_kept_total counter",
           "llmrt_state_checkpoints_kept_total 33",
           "llmrt_state_checkpoints_evicted_total 24",
           "llmrt_state_checkpoint_hits_total 21",
           "llmrt_kv_block_tokens 16",
           "llmrt_request_queue_time_seconds_bucket{le=\"0.01\"} 0",
           "llmrt_request_queue_time_seconds_bucket{le=\"0.025\"} 1",
           "llmrt_request_queue_time_seconds_sum 0.02",
           "llmrt_request_prefill_time_seconds_bucket{le=\"1.0\"} 1",
           "llmrt_request_decode_time_seconds_bucket{le=\"60.0\"} 0",
           "llmrt_request_decode_time_seconds_bucket{le=\"+Inf\"} 1",
           "llmrt_request_prompt_tokens_bucket{le=\"512.0\"} 0",
           "llmrt_request_prompt_tokens_bucket{le=\"1.048576e+06\"} 1",
           "llmrt_request_generation_tokens_count 1",
           "llmrt_http_responses_total{status=\"404\"} 1",
           "llmrt_requests_refused_total{code=\"unknown_field\"} 1",
           "llmrt_request_fields_ignored_total{endpoint=\"/v1/completions\"} 3",
           "llmrt_request_fields_ignored_total{endpoint=\"/v1/chat/completions\"} 0",
           "llmrt_answer_oddities_total{kind=\"broken_call\"} 4",
           "llmrt_answer_oddities_total{kind=\"missing_open\"} 0",
           "llmrt_grammar_compiles_total 6",
           "llmrt_grammar_compile_failures_total{reason=\"grammar_timeout\"} 2",
           "llmrt_grammar_compile_failures_total{reason=\"unsupported_schema\"} 0",
           "llmrt_grammar_compile_failures_total{reason=\"other\"} 1",
           "llmrt_grammar_compile_seconds_total 0.25",
           "llmrt_grammar_cache_hits_total 8",
           "llmrt_grammar_cache_bytes 4096",
           "llmrt_grammar_masks_made_total 70",
           "llmrt_grammar_mask_cpu_seconds_total 2.5",
           "llmrt_connections_open 9",
           "llmrt_connections_limit 4096",
           "llmrt_client_memory_refusals_total{part=\"body\"} 2",
           "llmrt_client_memory_refusals_total{part=\"answer\"} 5",
           "llmrt_host_out_of_memory_total 1",
           "llmrt_files{purpose=\"batch\"} 7",
           "llmrt_files{purpose=\"batch_output\"} 2",
           "llmrt_files_bytes 5000",
           "llmrt_files_limit_bytes 1073741824",
           "llmrt_batches{state=\"in_progress\"} 3",
           "llmrt_batches{state=\"failed\"} 0",
           "llmrt_batch_lines_open 40",
           "llmrt_batch_lines_total{outcome=\"completed\"} 60",
           "llmrt_batch_lines_total{outcome=\"failed\"} 1",
           "llmrt_kv_pool_exhausted_total 6",
           "llmrt_client_memory_bytes 1048576",
           "llmrt_client_memory_limit_bytes 1073741824",
           "llmrt_plan_seconds_total 1.5",
           "process_cpu_seconds_total 1.5",
           "process_start_time_seconds 1790000000",
           "process_resident_memory_bytes 4096",
           "process_virtual_memory_bytes 8192",
           "process_open_fds 12",
           "process_max_fds 1024",
       }) {
    INFO(line);
    CHECK(has_line(text, line));
  }
  const std::string open = some_figures().text(MetricsFormat::kOpenMetrics);
  for (const char* line : {"# TYPE llmrt info", "# TYPE llmrt_plan_seconds counter",
                           "# UNIT llmrt_plan_seconds seconds", "llmrt_plan_seconds_total 1.5",
                           "# UNIT process_resident_memory_bytes bytes", "# TYPE process_cpu_seconds counter"}) {
    INFO(line);
    CHECK(has_line(open, line));
  }
}

TEST_CASE("adapters are counted by their names, as many as a metrics store can bear") {
  Figures figures;
  figures.model.id = "letters";
  const auto shelf = std::make_shared<AdapterShelf>();
  figures.model.adapters = shelf;
  const auto add = [&](const std::string& name, const std::string& model = "letters") {
    REQUIRE(shelf->add({.name = name, .model = model, .path = {}, .ready = {}}).ok());
    return shelf->find(name)->use;
  };
  const auto use = add("sql");
  add("far", "another");
  use->counts->num_requests = 3;
  use->counts->prompt_tokens = 40;
  use->counts->generated_tokens = 7;
  // It goes and comes back: what it had stays.
  REQUIRE(shelf->remove("sql"));
  CHECK(add("sql")->counts == use->counts);
  std::string text = figures.text(MetricsFormat::kText);
  check_form(text, MetricsFormat::kText);
  CHECK(has_line(text, "llmrt_adapter_requests_total{adapter=\"sql\"} 3"));
  CHECK(has_line(text, "llmrt_adapter_prompt_tokens_total{adapter=\"sql\"} 40"));
  CHECK(has_line(text, "llmrt_adapter_generated_tokens_total{adapter=\"sql\"} 7"));
  CHECK(text.find("\"far\"") == std::string::npos);
  // One that is called like the rest is among the rest.
  const auto same_name = add(kOtherAdapters);
  for (size_t i = 0; i < AdapterShelf::kCountedNamesMax + 20; ++i) ++add(fmt::format("n{}", i))->counts->num_requests;
  CHECK(shelf->counts("letters").size() == AdapterShelf::kCountedNamesMax);  // less "far", and the rest
  CHECK(same_name->counts->num_requests == 22);
  text = figures.text(MetricsFormat::kText);
  check_form(text, MetricsFormat::kText);
  CHECK(has_line(text, "llmrt_adapter_requests_total{adapter=\"other\"} 22"));
}

TEST_CASE("vLLM's name for adapters tells which run and which wait, with the time") {
  Figures figures;
  figures.model.id = "letters";
  const auto shelf = std::make_shared<AdapterShelf>();
  figures.model.adapters = shelf;
  figures.stats.adapters.num_slots = 4;
  const auto line = [&] {
    MetricsWriter out(MetricsFormat::kText);
    write_vllm_metrics(out, {"letters", "0"}, figures.stats, figures.model, 1790000000);
    const std::string text = out.take();
    check_form(text, MetricsFormat::kText);
    const size_t begin = text.find("\nvllm:lora_requests_info{");
    REQUIRE(begin != std::string::npos);
    return text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
  };
  for (const char* name : {"a", "b", "c", "d"})
    REQUIRE(
        shelf->add({.name = name, .model = name == std::string("d") ? "another" : "letters", .path = {}, .ready = {}})
            .ok());
  CHECK(line() ==
        "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"} 1790000000");
  shelf->find("a")->use->num_in_system = shelf->find("a")->use->num_running = 2;
  shelf->find("b")->use->num_in_system = 2;
  shelf->find("b")->use->num_running = 1;
  shelf->find("c")->use->num_in_system = 1;
  shelf->find("d")->use->num_in_system = 1;
  CHECK(
      line() ==
      "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"a,b\",waiting_lora_adapters=\"b,c\"} 1790000000");
}

TEST_CASE("vLLM's names tell the same figures at vLLM's bounds") {
  Figures figures = some_figures();
  figures.model.context_max = 1500;
  EngineStats& stats = figures.stats;
  stats.num_running = 3;
  stats.blocks_free = 75;
  stats.prompt_tokens = 1000;
  stats.prefix_queries = 900;
  stats.prefix_hits = 300;
  stats.prefix_host_hits = 60;
  stats.prefix_disk_hits = 40;
  stats.recent_hit_rate = 0.75;
  stats.recent_host_hit_rate = 0.25;
  stats.host_blocks_total = 8;
  stats.host_blocks_used = 4;
  for (int i = 1; i < kNumFinishReasons; ++i) stats.finished[static_cast<size_t>(i)] = uint64_t{1} << i;
  stats.ttft_s.add(0.02);
  stats.ttft_s.add(0.03);
  stats.ttft_s.add(5000);
  for (const MetricsFormat format : {MetricsFormat::kText, MetricsFormat::kOpenMetrics}) {
    MetricsWriter out(format);
    write_vllm_metrics(out, {"a \"b\"", "0"}, stats, figures.model, 0);
    out.gauge("behind", 1, "Written as before.");
    const std::string text = out.take();
    check_form(text, format);
    CHECK(has_line(text, "llmrt_behind 1"));
    const auto has = [&](std::string_view name, std::string_view labels, std::string_view number) {
      const auto line = fmt::format(R"(vllm:{}{{model_name="a \"b\"",engine="0"{}}} {})", name, labels, number);
      INFO(line);
      CHECK(has_line(text, line));
    };
    has("num_requests_running", "", "3");
    has("kv_cache_usage_perc", "", "0.25");
    has("cache_config_info", R"(,block_size="16",num_gpu_blocks="100",num_cpu_blocks="8",cache_dtype="f16")", "1");
    has("prompt_tokens_by_source_total", R"(,source="local_compute")", "700");
    has("prompt_tokens_by_source_total", R"(,source="local_cache_hit")", "200");
    has("prompt_tokens_by_source_total", R"(,source="external_kv_transfer")", "100");
    has("prompt_tokens_cached_total", "", "300");
    has("prefix_cache_queries_total", "", "900");
    has("prefix_cache_hits_total", "", "200");
    has("gpu_cache_usage_perc", "", "0.25");
    has("cpu_cache_usage_perc", "", "0.5");
    has("gpu_prefix_cache_hit_rate", "", "0.5");
    has("gpu_prefix_cache_queries_total", "", "900");
    has("gpu_prefix_cache_hits_total", "", "200");
    const auto ended = [&](std::initializer_list<FinishReason> reasons) {
      uint64_t count = 0;
      for (const FinishReason reason : reasons) count += uint64_t{1} << static_cast<int>(reason);
      return std::to_string(count);
    };
    using enum FinishReason;
    has("request_success_total", R"(,finished_reason="stop")",
        ended({kEos, kStopToken, kStopString, kPolicy, kGrammarEnd}));
    has("request_success_total", R"(,finished_reason="length")", ended({kLength}));
    has("request_success_total", R"(,finished_reason="abort")", ended({kCancelled, kTimeout, kDisconnected}));
    has("request_success_total", R"(,finished_reason="error")", ended({kError}));
    has("time_to_first_token_seconds_bucket", R"(,le="0.01")", "0");
    has("time_to_first_token_seconds_bucket", R"(,le="0.02")", "1");
    has("time_to_first_token_seconds_bucket", R"(,le="0.04")", "2");
    has("time_to_first_token_seconds_bucket", R"(,le="2560.0")", "2");
    has("time_to_first_token_seconds_bucket", R"(,le="+Inf")", "3");
    has("request_decode_time_seconds_bucket", R"(,le="60.0")", "0");
    has("request_decode_time_seconds_bucket", R"(,le="120.0")", "1");
    has("request_prompt_tokens_bucket", R"(,le="500.0")", "0");
    has("request_prompt_tokens_bucket", R"(,le="1000.0")", "1");
    CHECK(text.find(R"(le="2000.0")") == std::string::npos);
  }
  CHECK(figures.text(MetricsFormat::kText).find("vllm") == std::string::npos);
}

TEST_CASE("what is not known is not told") {
  const std::string text = Figures().text(MetricsFormat::kText);
  CHECK(text.find("process_") == std::string::npos);
  CHECK(text.find("client_memory") == std::string::npos);
  CHECK(text.find("llmrt_grammar") == std::string::npos);
}

TEST_CASE("label values are escaped, whatever a model is called") {
  Figures figures;
  figures.model.id =
      "a\\b\"c\nd\xff"
      "e{},=\xc3\xa4";
  for (const MetricsFormat format : {MetricsFormat::kText, MetricsFormat::kOpenMetrics}) {
    const std::string text = figures.text(format);
    CHECK(text.find(R"(model="a\\b\"c\nd)"
                    "\xef\xbf\xbd"
                    "e{},=\xc3\xa4\",") != std::string::npos);
    check_form(text, format);
  }
}

TEST_CASE("numbers that are none are told as the formats have them") {
  Figures figures;
  figures.stats.saturation[0].value = std::nan("");
  figures.stats.saturation[1].value = std::numeric_limits<double>::infinity();
  figures.stats.saturation[2].value = -std::numeric_limits<double>::infinity();
  figures.stats.saturation[3].value = 1e-7;
  for (const MetricsFormat format : {MetricsFormat::kText, MetricsFormat::kOpenMetrics}) {
    const std::string text = figures.text(format);
    check_form(text, format);
    CHECK(has_line(text, "llmrt_saturation_value{verdict=\"ttft_over_slo\"} NaN"));
    CHECK(has_line(text, "llmrt_saturation_value{verdict=\"tpot_over_slo\"} +Inf"));
    CHECK(has_line(text, "llmrt_saturation_value{verdict=\"kv_short\"} -Inf"));
    CHECK(has_line(text, "llmrt_saturation_value{verdict=\"queue_rising\"} 1e-07"));
  }
}

TEST_CASE("no more codes of refusals are told apart than the bound") {
  std::map<std::string, uint64_t> refusals;
  for (int i = 0; i < 1000; ++i) count_refusal(refusals, fmt::format("code_{}", i % 500));
  CHECK(refusals.size() == kRefusalCodesMax + 1);
  CHECK(refusals.at("code_0") == 2);
  CHECK(refusals.at("other") == 1000 - 2 * kRefusalCodesMax);
}

TEST_CASE("the Accept header decides on the format") {
  const auto open = MetricsFormat::kOpenMetrics, text = MetricsFormat::kText;
  const std::pair<const char*, MetricsFormat> cases[] = {
      // Prometheus 3; the same with protobuf first (native histograms); 2.49; 2.42; 2.30.
      {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
       "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
       "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
       open},
      {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,"
       "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
       "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
       "text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
       open},
      {"application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
       "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
       open},
      {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
       "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
       open},
      {"application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", text},
      // Prometheus told to scrape the text format first; vmagent; curl; browsers; none.
      {"text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.2", text},
      {"text/plain;version=0.0.4;q=1,*/*;q=0.1", text},
      {"*/*", text},
      {"text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8", text},
      {"", text},
      // Weights, precision, form.
      {"application/openmetrics-text", open},
      {"APPLICATION/OpenMetrics-Text ; Version=\"1.0.0\" ; Q=0.3", open},
      {"text/plain, application/openmetrics-text", open},
      {"text/plain;q=0.5, application/*;q=0.6", open},
      {"application/*, text/*", text},
      {"text/plain;q=0, */*", open},
      {"application/openmetrics-text;q=0, */*", text},
      {"application/openmetrics-text;version=1.0.0;q=0, application/openmetrics-text;q=1, text/plain;q=0.1", text},
      {"application/openmetrics-text;version=2.0.0", text},
      {"application/openmetrics-text;q=0.0001,text/plain;q=0", open},
      {"application/openmetrics-text;q=2", text},
      {"application/openmetrics-text;q=nan", text},
      {"application/openmetrics-text;q=", text},
      {"application/openmetrics-text;q=1x", text},
      {"a/b;c=\"d,application/openmetrics-text\"", text},
      {"a/b;c=\"\\\",\", application/openmetrics-text", open},
      {"a/b;c=\"never closed\\", text},
      {",,;;=,/,application/openmetrics-text", open},
      {"application/json", text},
  };
  for (const auto& [accept, format] : cases) {
    INFO(accept);
    CHECK((negotiate_metrics(accept) == format));
  }
}

TEST_CASE("all Accept lines of a request count") {
  const HeadScan scan = scan_head(
      "GET /metrics HTTP/1.1\r\nHost: a\r\nACCEPT: text/plain;q=0.5\r\naccept: application/openmetrics-text\r\n\r\n",
      {});
  REQUIRE(scan.bytes > 0);
  CHECK(scan.head.accept == "text/plain;q=0.5,application/openmetrics-text");
}

TEST_CASE("metrics tell of the device what its driver says, and nothing else") {
  struct SomeMonitor : DeviceMonitor {
    DeviceFigures read() const override {
      DeviceFigures figures;
      figures.memory_used_bytes = uint64_t{3} << 40;
      figures.power_watts = 310.5;
      return figures;
    }
  };
  struct WholeMonitor : DeviceMonitor {
    DeviceFigures read() const override { return {1, 2, 0.5, 3, 4, 5, 6}; }
  };
  Figures figures = some_figures();
  figures.model.device_monitor = std::make_shared<WholeMonitor>();
  const std::string whole = figures.text(MetricsFormat::kText);
  for (const char* name : {"memory_used_bytes", "memory_bytes", "busy_ratio", "core_clock_hertz", "memory_clock_hertz",
                           "power_watts", "temperature_celsius"})
    CHECK(whole.find(fmt::format("\nllmrt_device_{} ", name)) != std::string::npos);
  figures.model.device_monitor.reset();
  CHECK(figures.text(MetricsFormat::kText).find("llmrt_device_power") == std::string::npos);
  figures.model.device_monitor = std::make_shared<SomeMonitor>();
  const std::string text = figures.text(MetricsFormat::kText);
  CHECK(text.find("# TYPE llmrt_device_memory_used_bytes gauge\nllmrt_device_memory_used_bytes 3298534883328\n") !=
        std::string::npos);
  CHECK(text.find("\nllmrt_device_power_watts 310.5\n") != std::string::npos);
  for (const char* absent : {"device_memory_bytes", "busy_ratio", "clock", "temperature"})
    CHECK(text.find(absent) == std::string::npos);
}

TEST_CASE("the process is read from what the kernel says") {
  const auto stat = parse_process_stat(
      "4711 (a ) b) (c) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 15 16 17 18 9000 123456 77 18446744073709551615 1\n");
  REQUIRE(stat);
  CHECK(stat->user_ticks == 250);
  CHECK(stat->system_ticks == 50);
  CHECK(stat->start_ticks == 9000);
  CHECK(stat->virtual_bytes == 123456);
  CHECK(stat->resident_pages == 77);
  for (const char* broken : {"", "1 (a", "1 (a) S 1 2", "1 (a) S 1 2 3 4 5 6 7 8 9 10 x 50 13 14 15 16 17 18 9 1 7 1"})
    CHECK(!parse_process_stat(broken));

  const ProcessFigures figures = process_figures();
  REQUIRE(figures.resident_bytes);
  CHECK(*figures.resident_bytes > 1 << 20);
  CHECK(figures.virtual_bytes.value() >= *figures.resident_bytes);
  CHECK(figures.open_fds.value() >= 3);
  CHECK(figures.cpu_seconds.value() >= 0);
  if (!figures.start_time_seconds) return;  // some sandboxes do not tell when the machine started
  const double age = static_cast<double>(std::time(nullptr)) - *figures.start_time_seconds;
  CHECK(age > -60);
  CHECK(age < 3600);
}

}  // namespace
}  // namespace llmrt::server
