#include "server/metrics_text.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "core/request/request.h"
#include "server/metrics_vllm.h"
#include "server/metrics_writer.h"
#include "server/stored_records.h"

namespace llmrt::server {
namespace {

using Kind = MetricKind;

double ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Little's law and the verdicts.
void write_load(MetricsWriter& out, const EngineStats& stats) {
  out.counter("requests_arrived_total", stats.in_system.arrivals(), "Requests that the scheduler has seen.");
  const LittlesLaw& law = stats.littles_law;
  out.gauge("littles_law_in_system", law.in_system, "L: requests that wait or run, mean of 5 minutes.");
  out.gauge("littles_law_arrivals_per_second", law.arrivals_per_s, "Lambda: arrivals, mean of 5 minutes.");
  out.gauge("littles_law_time_in_system_seconds", law.time_in_system_s, "W: of those that ended, mean of 5 minutes.");
  out.head(Kind::kGauge, "littles_law_residual_ratio",
           "|L - lambda W| / L: near 0 while the load is stable; absent while nobody has ended.");
  if (const auto residual = law.residual()) out.value("littles_law_residual_ratio", *residual);
  const auto each = [&](std::string_view name, std::string_view help, auto figure) {
    out.head(Kind::kGauge, name, help);
    for (size_t i = 0; i < kNumSaturations; ++i)
      out.value(name, figure(stats.saturation[i]), {{"verdict", saturation_name(static_cast<Saturation>(i))}});
  };
  each("saturated", "1 while the verdict holds; it never turns readiness off.",
       [](const SaturationVerdict& verdict) { return verdict.is_raised ? 1 : 0; });
  each("saturation_value", "The figure behind the verdict.",
       [](const SaturationVerdict& verdict) { return verdict.value; });
  each("saturation_limit", "What the figure is compared with.",
       [](const SaturationVerdict& verdict) { return verdict.limit; });
}

// Those that a compiler's refusals can have, and "other".
constexpr std::array kGrammarFailures = {
    ErrorCode::kUnsupportedSchema, ErrorCode::kInvalidArgument, ErrorCode::kUnsupported, ErrorCode::kGrammarTooComplex,
    ErrorCode::kGrammarTimeout,    ErrorCode::kCancelled,       ErrorCode::kOverloaded};

void write_grammars(MetricsWriter& out, const GrammarFigures& grammars) {
  out.counter("grammar_compiles_total", grammars.num_compiled, "Grammars compiled.");
  out.head(Kind::kCounter, "grammar_compile_failures_total", "Grammars that were not compiled, by reason.");
  uint64_t others = grammars.num_refused;
  for (const ErrorCode code : kGrammarFailures) {
    const auto found = grammars.refused.find(code);
    const uint64_t count = found == grammars.refused.end() ? 0 : found->second;
    others -= count;
    out.value("grammar_compile_failures_total", count, {{"reason", error_code_name(code)}});
  }
  out.value("grammar_compile_failures_total", others, {{"reason", "other"}});
  out.counter("grammar_compile_seconds_total", grammars.compile_ms_sum * 1e-3,
              "Processor time of compiling, failures among it.");
  out.counter("grammar_cache_hits_total", grammars.num_cached, "Grammars that were asked for and found compiled.");
  out.gauge("grammar_compiles_waiting", grammars.num_waiting, "Grammars that wait to be compiled.");
  out.gauge("grammars_cached", grammars.cache_grammars, "Compiled grammars that are kept.");
  out.gauge("grammar_cache_bytes", grammars.cache_bytes, "Memory that these and their masks hold.");
  out.counter("grammar_masks_made_total", grammars.num_masks_made, "Masks of tokens that were computed.");
  out.counter("grammar_masks_found_total", grammars.num_masks_found, "Masks that an earlier row had needed already.");
  out.counter("grammar_mask_cpu_seconds_total", static_cast<double>(grammars.mask_cpu_us) * 1e-6,
              "Processor time of computing masks.");
}

// By name: what a name has had stays when its adapter goes.
void write_adapters(MetricsWriter& out, const std::vector<NamedCounts>& adapters) {
  const auto each = [&](std::string_view name, std::string_view help, std::atomic<uint64_t> AdapterCounts::*count) {
    out.head(Kind::kCounter, name, help);
    for (const NamedCounts& adapter : adapters)
      out.value(name, ((*adapter.counts).*count).load(std::memory_order_relaxed), {{"adapter", adapter.name}});
  };
  each("adapter_requests_total", "Requests that name an adapter.", &AdapterCounts::num_requests);
  each("adapter_prompt_tokens_total", "Prompt tokens of these, when they are first admitted.",
       &AdapterCounts::prompt_tokens);
  each("adapter_generated_tokens_total", "Tokens of their answers.", &AdapterCounts::generated_tokens);
}

void write_process(MetricsWriter& out, const ProcessFigures& process) {
  out.set_prefix("process_");
  if (process.cpu_seconds)
    out.counter("cpu_seconds_total", *process.cpu_seconds, "Processor time of all threads, user and system.");
  if (process.resident_bytes)
    out.gauge("resident_memory_bytes", *process.resident_bytes, "Memory of the process that is in RAM.");
  if (process.virtual_bytes) out.gauge("virtual_memory_bytes", *process.virtual_bytes, "Address space of the process.");
  if (process.open_fds) out.gauge("open_fds", *process.open_fds, "Open file descriptors.");
  if (process.max_fds) out.gauge("max_fds", *process.max_fds, "Most file descriptors that may be open.");
  if (process.start_time_seconds)
    out.gauge("start_time_seconds", *process.start_time_seconds, "Start of the process, in seconds since 1970.");
}

void write_info(MetricsWriter& out, const ServedModel& model, const ServedWorker& worker) {
  const bool is_only = worker.name.empty();
  out.head(Kind::kInfo, "info", "The program, the model and the device; always 1.");
  out.value("info", 1,
            {{"version", model.origin.version},
             {"model", model.id},
             {"backend", is_only ? model.origin.backend : worker.backend},
             {"device", is_only ? model.origin.device : worker.name},
             {"device_name", is_only ? model.origin.device_name : worker.device_name},
             {"kv_dtype", model.origin.kv_dtype}});
}

// One of several engines.
void write_worker(MetricsWriter& out, const FleetWorkerFigures& figures) {
  out.gauge("worker_up", figures.is_lost ? 0 : 1, "0: the engine on this device is lost.");
  out.gauge("worker_drained", figures.is_drained ? 1 : 0, "1: it takes no new requests, as somebody wants it.");
  out.gauge("worker_on_trial", figures.is_out ? 1 : 0, "1: it has failed, and takes no requests or one at a time.");
  out.counter("worker_placed_total", figures.num_placed, "Choices that went to this engine.");
  out.counter("worker_moved_in_total", figures.num_moved_in,
              "Of these, those that an engine which was lost had begun.");
  out.counter("worker_handed_in_total", figures.num_handed_in, "Choices whose prompt another engine had computed.");
  out.counter("worker_failed_total", figures.num_failed, "Choices that ended there with an error of the engine.");
  out.counter("worker_losses_total", figures.num_losses, "Times that the engine was lost.");
}

void write_kv_groups(MetricsWriter& out, const EngineStats& stats) {
  const auto write = [&](std::string_view name, uint32_t KvGroupStats::*figure, std::string_view help) {
    out.head(Kind::kGauge, name, help);
    for (size_t g = 0; g < stats.kv_groups.size(); ++g)
      out.value(name, stats.kv_groups[g].*figure,
                {{"group", std::to_string(g)}, {"window", std::to_string(stats.kv_groups[g].window)}});
  };
  write("kv_group_blocks", &KvGroupStats::blocks_total,
        "Blocks of each KV group's pool, by its layers' window (0: all positions).");
  write("kv_group_blocks_free", &KvGroupStats::blocks_free, "Free blocks of each KV group, cached ones among them.");
  write("kv_group_blocks_used_most", &KvGroupStats::blocks_used_most,
        "Most blocks of each KV group in use at once, since the start.");
}

void write_states(MetricsWriter& out, const StateStats& states) {
  out.gauge("state_records", states.records_total,
            "Records for the states of recurrent layers; 0 without such layers.");
  out.gauge("state_records_used", states.records_used, "Records that requests hold.");
  out.gauge("state_checkpoints", states.checkpoints, "Records from which a later prompt may go on.");
  out.counter("state_checkpoints_kept_total", states.num_kept, "Checkpoints that were made.");
  out.counter("state_checkpoints_evicted_total", states.num_evicted, "Checkpoints that gave way to others.");
  out.counter("state_checkpoint_hits_total", states.num_hits, "Requests that went on from a checkpoint.");
}

// What nobody says has no line: 0 would be taken for a figure.
void write_device(MetricsWriter& out, const DeviceMonitor* monitor) {
  if (!monitor) return;
  const DeviceFigures figures = monitor->read();
  const auto write = [&](std::string_view name, const auto& figure, std::string_view help) {
    if (figure) out.gauge(name, *figure, help);
  };
  write("device_memory_used_bytes", figures.memory_used_bytes, "Device memory in use, by every program.");
  write("device_memory_bytes", figures.memory_total_bytes, "Memory of the device.");
  write("device_busy_ratio", figures.busy_ratio, "Share of time in which the device computed, as its driver counts.");
  write("device_core_clock_hertz", figures.core_clock_hz, "Clock of the processors.");
  write("device_memory_clock_hertz", figures.memory_clock_hz, "Clock of the memory.");
  write("device_power_watts", figures.power_watts, "Power that the device takes.");
  write("device_temperature_celsius", figures.temperature_celsius, "Temperature of the device.");
}

void write_access(MetricsWriter& out, const AccessFigures& access) {
  out.head(Kind::kCounter, "requests_unauthorized_total", "Requests without a key or with a wrong one.");
  out.value("requests_unauthorized_total", access.missing, {{"reason", "missing"}});
  out.value("requests_unauthorized_total", access.wrong, {{"reason", "wrong"}});
  out.head(Kind::kCounter, "key_file_reloads_total", "Times that the key file was read again, by result.");
  out.value("key_file_reloads_total", access.reloads, {{"result", "ok"}});
  out.value("key_file_reloads_total", access.reload_failures, {{"result", "failed"}});
  const auto each = [&](Kind kind, std::string_view name, uint64_t KeyFigures::*figure, std::string_view help) {
    out.head(kind, name, help);
    for (const KeyFigures& key : access.keys) out.value(name, key.*figure, {{"key", key.name}});
  };
  each(Kind::kCounter, "key_requests_total", &KeyFigures::requests, "Requests of a key that were begun.");
  each(Kind::kGauge, "key_requests_running", &KeyFigures::running, "Requests of a key that are under way.");
  each(Kind::kCounter, "key_prompt_tokens_total", &KeyFigures::prompt_tokens, "Prompt tokens charged to a key.");
  each(Kind::kCounter, "key_generated_tokens_total", &KeyFigures::generated_tokens,
       "Answers' tokens charged to a key.");
  out.head(Kind::kCounter, "key_requests_limited_total", "Requests of a key over one of its limits.");
  for (const KeyFigures& key : access.keys)
    for (size_t i = 0; i < kKeyLimits.size(); ++i)
      out.value("key_requests_limited_total", key.limited[i], {{"key", key.name}, {"limit", kKeyLimits[i]}});
}

void write_files(MetricsWriter& out, const FileFigures& files) {
  out.head(Kind::kGauge, "files", "Files that are kept, by purpose.");
  out.value("files", files.inputs, {{"purpose", kPurposeBatch}});
  out.value("files", files.outputs, {{"purpose", kPurposeOutput}});
  out.gauge("files_bytes", files.bytes, "What they take, answers of batches that are not over among them.");
  out.gauge("files_limit_bytes", files.bytes_limit, "Its bound: --files-gib.");
  out.head(Kind::kGauge, "batches", "Batches that are kept, by state.");
  for (size_t i = 0; i < kNumBatchStates; ++i)
    out.value("batches", files.batches[i], {{"state", batch_state_name(static_cast<BatchState>(i))}});
  out.gauge("batch_lines_open", files.lines_open, "Lines without an answer, of batches that are not over.");
  out.head(Kind::kCounter, "batch_lines_total", "Lines of batches that were answered, by outcome.");
  out.value("batch_lines_total", files.lines_completed, {{"outcome", "completed"}});
  out.value("batch_lines_total", files.lines_failed, {{"outcome", "failed"}});
}

void write_server(MetricsWriter& out, const ServerFigures& server) {
  out.head(Kind::kCounter, "http_responses_total", "HTTP responses, by status.");
  for (const auto& [status, count] : server.responses)
    out.value("http_responses_total", count, {{"status", std::to_string(status)}});
  out.head(Kind::kCounter, "requests_refused_total", "Requests answered with an error, by the error's code.");
  for (const auto& [code, count] : server.refusals) out.value("requests_refused_total", count, {{"code", code}});
  out.head(Kind::kCounter, "request_fields_ignored_total", "Fields of requests that had no effect, by path.");
  for (size_t i = 0; i < server.ignored_fields.size(); ++i)
    out.value("request_fields_ignored_total", server.ignored_fields[i], {{"endpoint", kCountedPaths[i]}});
  out.head(Kind::kCounter, "answer_oddities_total",
           "Things in ended answers that the chat format would not write, by kind.");
  for (size_t i = 0; i < kNumOddities; ++i)
    out.value("answer_oddities_total", server.oddities[i], {{"kind", oddity_name(static_cast<Oddity>(i))}});
  out.head(Kind::kCounter, "slow_clients_total", "Clients that read too slowly, by what came of it.");
  for (size_t i = 0; i < server.slow_clients.size(); ++i)
    out.value("slow_clients_total", server.slow_clients[i], {{"outcome", kSlowOutcomes[i]}});
  out.head(Kind::kCounter, "tls_handshakes_total", "TLS handshakes, by result.");
  out.value("tls_handshakes_total", server.handshakes, {{"result", "ok"}});
  out.value("tls_handshakes_total", server.failed_handshakes, {{"result", "failed"}});
  out.counter("host_out_of_memory_total", server.host_out_of_memory,
              "Connections that ended as the process got no memory.");
  write_access(out, server.access);
  if (server.files) write_files(out, *server.files);
  out.gauge("connections_open", server.connections_open, "Open connections.");
  out.gauge("connections_limit", server.connections_limit, "Most connections that may be open: --connections.");
  if (server.client_memory_limit_bytes == 0) return;
  out.gauge("client_memory_bytes", server.client_memory_bytes, "Memory held for bodies, the queue and answers.");
  out.gauge("client_memory_limit_bytes", server.client_memory_limit_bytes,
            "Its bound, beyond which requests are refused: --client-memory-mib.");
  out.head(Kind::kCounter, "client_memory_refusals_total",
           "Requests and answers that ended as clients hold all that they may, by what found no room.");
  for (size_t i = 0; i < kClientMemoryParts.size(); ++i)
    out.value("client_memory_refusals_total", server.memory_refusals[i], {{"part", kClientMemoryParts[i]}});
}

void write_disk(MetricsWriter& out, const DiskStats& disk) {
  if (!disk.is_on) return;
  out.gauge("kv_disk_bytes", disk.bytes_used, "Bytes of the disk tier's files.");
  out.gauge("kv_disk_limit_bytes", disk.bytes_max, "Their bound: --kv-disk-gib.");
  out.gauge("kv_disk_blocks", disk.blocks, "Blocks that the disk tier can find, of all KV groups.");
  out.gauge("kv_disk_queue", disk.blocks_queued, "Blocks that wait to be written to disk or read from it.");
  out.counter("kv_disk_blocks_written_total", disk.blocks_written, "Blocks written to disk.");
  out.counter("kv_disk_blocks_read_total", disk.blocks_read, "Blocks read from disk and found to be intact.");
  out.counter("kv_disk_bytes_written_total", disk.bytes_written, "Bytes of blocks written to disk.");
  out.counter("kv_disk_bytes_read_total", disk.bytes_read, "Bytes of blocks read from disk.");
  out.counter("kv_disk_blocks_evicted_total", disk.blocks_evicted,
              "Blocks that went with the file unused for longest.");
  out.head(Kind::kCounter, "kv_disk_dropped_total",
           "Blocks that were not written, by reason: queue (it was full), disk (it fails or is full).");
  out.value("kv_disk_dropped_total", disk.dropped_queue, {{"reason", "queue"}});
  out.value("kv_disk_dropped_total", disk.dropped_disk, {{"reason", "disk"}});
  out.head(Kind::kCounter, "kv_disk_unusable_total",
           "What was on disk and could not be used, by reason; its text is computed again.");
  out.value("kv_disk_unusable_total", disk.bad_corrupt, {{"reason", "corrupt"}});
  out.value("kv_disk_unusable_total", disk.bad_truncated, {{"reason", "truncated"}});
  out.value("kv_disk_unusable_total", disk.bad_foreign, {{"reason", "foreign"}});
  out.value("kv_disk_unusable_total", disk.bad_tokens, {{"reason", "tokens"}});
  out.value("kv_disk_unusable_total", disk.bad_read, {{"reason", "read"}});
}

void write_engine(MetricsWriter& out, const EngineStats& stats, const ServedModel& model) {
  out.gauge("requests_running", stats.num_running, "Requests that hold KV blocks.");
  out.gauge("requests_waiting", stats.num_waiting, "Requests that wait for admission, preempted ones among them.");
  out.gauge("requests_streaming", stats.num_streaming, "Finished requests whose answer is still being sent.");
  out.gauge("queue_tokens", stats.queue_tokens, "Prompt tokens of waiting requests.");
  out.gauge("kv_blocks", stats.blocks_total, "Blocks of the KV pool.");
  out.gauge("kv_blocks_free", stats.blocks_free, "Free blocks of the KV pool, cached ones among them.");
  out.gauge("kv_blocks_cached", stats.blocks_cached, "Free blocks that a later prompt may still find.");
  out.gauge("kv_block_tokens", model.block_tokens, "Tokens in a KV block.");
  out.gauge("kv_usage_ratio", stats.kv_usage(), "Share of the KV pool in use, 0 to 1.");
  write_kv_groups(out, stats);
  write_states(out, stats.states);
  write_disk(out, stats.disk);
  out.counter("prompt_tokens_total", stats.prompt_tokens, "Prompt tokens of admitted requests.");
  out.counter("prefix_cache_queries_total", stats.prefix_queries, "Prompt tokens looked up in the prefix cache.");
  out.counter("prefix_cache_hits_total", stats.prefix_hits, "Prompt tokens found there.");
  out.counter("prefix_cache_host_hits_total", stats.prefix_host_hits,
              "Prompt tokens found there that came from the host tier.");
  out.counter("prefix_cache_disk_hits_total", stats.prefix_disk_hits,
              "Prompt tokens found there that the disk tier has read for their request.");
  out.gauge("kv_host_blocks", stats.host_blocks_total, "Blocks of the host tier.");
  out.gauge("kv_host_blocks_used", stats.host_blocks_used, "Blocks of the host tier that hold something.");
  out.counter("kv_blocks_stored_total", stats.blocks_stored, "Blocks copied to the host tier.");
  out.counter("kv_blocks_loaded_total", stats.blocks_loaded, "Blocks copied back from it.");
  out.head(Kind::kGauge, "prefix_cache_recent_hit_ratio",
           "Share of prompt tokens found in the last minute, by source.");
  out.value("prefix_cache_recent_hit_ratio",
            stats.recent_hit_rate - stats.recent_host_hit_rate - stats.recent_disk_hit_rate, {{"source", "device"}});
  out.value("prefix_cache_recent_hit_ratio", stats.recent_disk_hit_rate, {{"source", "disk"}});
  out.value("prefix_cache_recent_hit_ratio", stats.recent_host_hit_rate, {{"source", "host"}});
  out.gauge("kv_table_slots", stats.table_slots,
            "Token slots in the blocks of running requests, shared ones each time.");
  out.gauge("kv_table_tokens", stats.table_tokens,
            "Token slots that are filled; slots - tokens is the internal fragmentation.");
  out.gauge("kv_utilization_ratio", ratio(stats.table_tokens, stats.table_slots), "Filled slots by slots, 0 to 1.");
  out.counter("generated_tokens_total", stats.generated_tokens, "Tokens generated.");
  out.counter("useful_tokens_total", stats.useful_tokens,
              "Positions computed for requests that have ended, once each.");
  out.counter("padded_tokens_total", stats.padded_tokens,
              "With static or dynamic batching: what batches of fixed shape would have computed on top.");
  out.counter("steps_total", stats.num_steps, "Steps run on the device.");
  out.counter("preemptions_total", stats.num_preemptions, "Running requests put back into the queue.");
  out.counter("preemptions_swapped_total", stats.num_swaps, "Preemptions whose keys and values go to the host tier.");
  out.counter("preemptions_reclaimed_total", stats.num_reclaims, "Preemptions that gave room back to a higher class.");
  out.counter("preemptions_outgrown_total", stats.num_outgrown,
              "Preemptions for a request that had passed what admission reserved for it.");
  out.counter("kv_pool_exhausted_total", stats.num_pool_exhausted,
              "Requests that ended as they alone outgrew the KV pool.");
  out.counter("over_reserved_tokens_total", stats.over_reserved_tokens,
              "Tokens that admission reserved and ended requests did not need.");
  out.counter("requests_rejected_total", stats.num_rejected, "Requests refused on arrival.");
  out.head(Kind::kCounter, "requests_finished_total", "Requests ended, by reason.");
  for (int i = 1; i < kNumFinishReasons; ++i)
    out.value("requests_finished_total", stats.finished[static_cast<size_t>(i)],
              {{"reason", finish_reason_name(static_cast<FinishReason>(i))}});
  const std::vector<double> times = latency_bounds_s(), lengths = length_bounds(), batches = batch_bounds();
  out.histogram("time_to_first_token_seconds", stats.ttft_s, times, "Arrival to first token.");
  out.histogram("inter_token_latency_seconds", stats.itl_s, times, "Token to token.");
  out.histogram("request_latency_seconds", stats.e2e_s, times, "Arrival to last token.");
  out.histogram("time_per_output_token_seconds", stats.tpot_s, times, "Mean of a request's tokens behind the first.");
  out.histogram("request_queue_time_seconds", stats.queue_s, times,
                "Arrival to the first step that computes something.");
  out.histogram("request_prefill_time_seconds", stats.prefill_s, times, "From there to the first token.");
  out.histogram("request_decode_time_seconds", stats.decode_s, times, "First token to last token.");
  out.histogram("request_prompt_tokens", stats.prompt_tokens_hist, lengths,
                "Length of prompts when they are first admitted.");
  out.histogram("request_generation_tokens", stats.answer_tokens_hist, lengths, "Length of answers that have ended.");
  out.counter("time_to_first_token_late_total", stats.num_ttft_late, "First tokens over --ttft-slo-ms.");
  out.counter("time_per_output_token_late_total", stats.num_tpot_late, "Requests over --tpot-slo-ms.");
  out.histogram("step_rows", stats.step_rows, batches, "Rows of a step: the batch size.");
  out.histogram("step_tokens", stats.step_tokens, batches, "Tokens of a step.");
  write_load(out, stats);
  out.counter("plan_seconds_total", stats.plan_ms * 1e-3, "Time spent planning and lowering.");
  out.counter("parked_draws_total", stats.num_parked,
              "Draws put off to a later step, as the mask or the logit changes were not there in time.");
  out.counter("draft_tokens_total", stats.drafts.num_proposed, "Drafts that were verified.");
  out.counter("draft_tokens_accepted_total", stats.drafts.num_accepted, "Of these the right ones: tokens of answers.");
  out.counter("draft_runs_total", stats.drafts.num_runs, "Rows of steps that verified drafts.");
  out.counter("draft_steps_total", stats.drafts.num_steps, "Steps with drafts.");
  out.counter("draft_steps_off_total", stats.drafts.num_steps_off,
              "Steps in which a row had no drafts as they had not paid for its class.");
  out.counter("draft_steps_awaited_total", stats.drafts.num_awaited,
              "Steps that were planned when the one before had ended, for drafts.");
  out.counter("draft_model_tokens_total", stats.drafts.num_model_proposed, "Drafts of the draft model, verified.");
  out.counter("draft_model_tokens_accepted_total", stats.drafts.num_model_accepted, "Of these the right ones.");
  out.counter("draft_model_seconds_total", stats.drafts.model_ms * 1e-3, "Time that the draft model drafted.");
  out.counter("draft_model_read_seconds_total", stats.drafts.model_read_ms * 1e-3,
              "Time that the draft model read prompts, and what it lacked of answers.");
  if (const AdapterStats& adapters = stats.adapters; adapters.pool_bytes > 0) {
    out.counter("adapter_hits_total", adapters.num_hits, "Requests whose adapter was on the device.");
    out.counter("adapter_misses_total", adapters.num_misses, "Requests whose adapter was not, and was brought there.");
    out.counter("adapter_loads_total", adapters.num_loads, "Adapters brought to the device.");
    out.counter("adapter_evictions_total", adapters.num_evictions, "Adapters given up for others.");
    out.gauge("adapters_resident", adapters.num_resident, "Adapters on the device.");
    out.gauge("adapters_waiting", adapters.num_waiting, "Adapters that requests wait for.");
    out.gauge("adapter_rows", adapters.num_rows, "Running requests with an adapter.");
    out.gauge("adapter_pool_bytes", adapters.pool_bytes, "Device memory for adapters.");
    out.gauge("adapter_pool_free_bytes", adapters.free_bytes, "Of this, what holds none.");
  }
  out.counter("mask_wait_seconds_total", stats.mask_wait_ms * 1e-3, "Time that steps waited for masks of grammars.");
  out.counter("device_seconds_total", stats.device_ms * 1e-3, "Time of the device's lists.");
  out.counter("busy_seconds_total", stats.wall_ms * 1e-3, "Wall time of steps; device idle = 1 - device / busy.");
}

void write_exchange(MetricsWriter& out, const ExchangeStats& exchange) {
  out.gauge("hand_over_bytes", exchange.bytes_used, "Memory of KV blocks that engines hand over.");
  out.gauge("hand_over_limit_bytes", exchange.bytes_max, "Its bound: --hand-over-gib.");
  out.gauge("hand_over_blocks", exchange.blocks, "Blocks there.");
  out.counter("hand_over_blocks_given_total", exchange.num_put, "Blocks that engines have given.");
  out.counter("hand_over_blocks_taken_total", exchange.num_got, "Blocks that engines have taken.");
  out.counter("hand_over_blocks_missed_total", exchange.num_missed, "Blocks that were not there any more.");
  out.counter("hand_over_blocks_evicted_total", exchange.num_evicted, "Blocks that made room for others.");
}

// What its engines share.
void write_model(MetricsWriter& out, const ServedModel& model, const std::optional<GrammarFigures>& grammars) {
  if (model.adapters) write_adapters(out, model.adapters->counts(model.id));
  if (grammars) write_grammars(out, *grammars);
}

// What the host counts of each model.
void write_models(MetricsWriter& out, const std::vector<SeenModel>& models) {
  const auto each = [&](Kind kind, std::string_view name, std::string_view help, auto figure) {
    out.head(kind, name, help);
    for (const SeenModel& model : models) out.value(name, figure(model.figures), {{"model", model.figures.name}});
  };
  out.head(Kind::kGauge, "model_state", "1 for the state that a model is in, 0 for the others.");
  for (const SeenModel& model : models)
    for (size_t i = 0; i < kNumModelStates; ++i) {
      const auto state = static_cast<ModelState>(i);
      out.value("model_state", model.figures.state == state ? 1 : 0,
                {{"model", model.figures.name}, {"state", model_state_name(state)}});
    }
  each(Kind::kGauge, "model_memory_bytes", "Memory that a loaded model's engine holds.",
       [](const ModelFigures& figures) { return figures.bytes; });
  each(Kind::kGauge, "model_requests_waiting", "Requests that wait until their model is loaded.",
       [](const ModelFigures& figures) { return figures.num_waiting; });
  each(Kind::kGauge, "model_requests_holding", "Requests that hold their model.",
       [](const ModelFigures& figures) { return figures.num_leases; });
  each(Kind::kCounter, "model_loads_total", "Times that a model was loaded.",
       [](const ModelFigures& figures) { return figures.num_loads; });
  each(Kind::kCounter, "model_load_failures_total", "Loads that failed, and engines that were lost.",
       [](const ModelFigures& figures) { return figures.num_failures; });
  each(Kind::kCounter, "model_unloads_total", "Times that a model was unloaded.",
       [](const ModelFigures& figures) { return figures.num_unloads; });
  out.head(Kind::kCounter, "model_out_of_memory_total",
           "Times that a model found too little memory, by when: to load, or while it served.");
  for (const SeenModel& model : models) {
    const ModelFigures& figures = model.figures;
    out.value("model_out_of_memory_total", figures.num_loads_short, {{"model", figures.name}, {"when", "load"}});
    out.value("model_out_of_memory_total", figures.num_losses_short, {{"model", figures.name}, {"when", "serving"}});
  }
  each(Kind::kGauge, "model_load_seconds", "What the last load took; 0: none was.",
       [](const ModelFigures& figures) { return static_cast<double>(figures.load_ns) * 1e-9; });
}

std::optional<GrammarFigures> grammar_figures(const ServedModel& model) {
  return model.grammars ? std::optional(model.grammars->figures()) : std::nullopt;
}

}  // namespace

std::string metrics_text(const MetricsSource& source, MetricsFormat format) {
  MetricsWriter out(format);
  write_info(out, source.model, {});
  write_engine(out, source.stats, source.model);
  write_model(out, source.model, source.grammars);
  write_device(out, source.model.device_monitor.get());
  write_server(out, source.server);
  write_process(out, source.process);
  return out.take();
}

std::string metrics_text(const std::vector<SeenModel>& models, const ServerFigures& server,
                         const ProcessFigures& process, MetricsFormat format, MetricsCompat compat,
                         int64_t unix_seconds) {
  MetricsWriter out(format);
  for (const SeenModel& seen : models) {
    if (!seen.loaded) continue;
    const ServedModel& model = seen.loaded->model;
    const std::vector<ServedWorker> workers = seen.workers();
    for (size_t i = 0; i < workers.size(); ++i) {
      const ServedWorker& worker = workers[i];
      if (!worker.name.empty())
        out.set_labels({{"worker", worker.name}});  // then there is one model
      else if (models.size() > 1)
        out.set_labels({{"model", seen.figures.name}});
      write_info(out, model, worker);
      if (worker.stats) write_engine(out, *worker.stats, model);
      if (!worker.name.empty()) {
        write_worker(out, worker.figures);
        write_device(out, worker.monitor.get());
      }
      if (worker.stats && compat == MetricsCompat::kVllm)
        write_vllm_metrics(out, {seen.figures.name, std::to_string(i)}, *worker.stats, model, unix_seconds);
    }
    out.set_labels({});
    if (models.size() > 1) out.set_labels({{"model", seen.figures.name}});
    write_model(out, model, grammar_figures(model));
    if (const std::optional<ExchangeStats> exchange = seen.loaded->door->exchange()) write_exchange(out, *exchange);
  }
  out.set_labels({});
  const auto is_loaded = [](const SeenModel& seen) { return seen.loaded != nullptr; };
  if (const auto first = std::ranges::find_if(models, is_loaded); first != models.end())
    write_device(out, first->loaded->model.device_monitor.get());  // all are on one device
  write_models(out, models);
  write_server(out, server);
  write_process(out, process);
  return out.take();
}

}  // namespace llmrt::server
