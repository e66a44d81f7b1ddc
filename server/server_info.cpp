#include "server/server_info.h"

#include <chrono>

#include "server/http.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

uint64_t pool_tokens(const ServedModel& model, const EngineStats& stats) {
  return uint64_t{stats.blocks_total} * model.block_tokens;
}

}  // namespace

json::object model_card(const ServedModel& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "llmrt"},
          {"max_model_len", model.context_max}};
}
json::object model_list(const ServedModel& model) {
  // Codex looks for `models`, with descriptions that it ships for its own models; without the name it logs an error.
  return {{"object", "list"}, {"data", json::array{model_card(model)}}, {"models", json::array()}};
}

// A verdict is something to know, not a reason to be taken out of service.
json::object health(const EngineStats& stats) {
  json::array saturated;
  for (size_t i = 0; i < kNumSaturations; ++i) {
    const SaturationVerdict& verdict = stats.saturation[i];
    const auto which = static_cast<Saturation>(i);
    if (verdict.is_raised)
      saturated.push_back({{"verdict", saturation_name(which)},
                           {"value", verdict.value},
                           {"limit", verdict.limit},
                           {"message", saturation_text(which)}});
  }
  return {{"status", "ok"}, {"saturated", std::move(saturated)}};
}

json::object server_info(const ServedModel& model, const EngineStats& stats, const std::string& version) {
  return {{"model_id", model.id},
          {"model_path", model.id},  // where the file lies is nobody's business
          {"served_model_name", model.id},
          {"version", version},
          {"dp_size", 1},
          {"context_length", model.context_max},
          {"page_size", model.block_tokens},
          {"max_total_tokens", pool_tokens(model, stats)}};
}

json::object model_info(const ServedModel& model) {
  return {{"model_path", model.id},
          {"tokenizer_path", model.tokenizer ? json::value(model.id) : json::value(nullptr)},
          {"served_model_name", model.id},
          {"is_generation", true},
          {"context_length", model.context_max},
          {"vocab_size", model.vocab_size},
          {"has_chat_template", model.chat_template != nullptr}};
}

// num_tokens is what a router compares: keys and values held, and prompt tokens still to come.
json::array load(const EngineStats& stats) {
  return {json::object{{"dp_rank", 0},
                       {"num_reqs", uint64_t{stats.num_running} + stats.num_waiting},
                       {"num_waiting_reqs", stats.num_waiting},
                       {"num_tokens", stats.table_tokens + stats.queue_tokens}}};
}

json::object loads(const ServedModel& model, const EngineStats& stats, const std::string& version) {
  const uint64_t used = uint64_t{stats.blocks_total - stats.blocks_free} * model.block_tokens;
  const uint64_t total = pool_tokens(model, stats);
  json::object rank = {{"dp_rank", 0},
                       {"num_running_reqs", stats.num_running},
                       {"num_waiting_reqs", stats.num_waiting},
                       {"num_total_reqs", uint64_t{stats.num_running} + stats.num_waiting},
                       {"num_used_tokens", used},
                       {"num_waiting_tokens", stats.queue_tokens},
                       {"max_total_num_tokens", total},
                       {"token_usage", total == 0 ? 0.0 : static_cast<double>(used) / static_cast<double>(total)},
                       {"cache_hit_rate", stats.recent_hit_rate}};
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return {{"timestamp", http_date(now)}, {"version", version}, {"loads", json::array{std::move(rank)}}};
}

}  // namespace llmrt::server
