#include "server/server_info.h"

#include <chrono>

#include "server/http.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

uint64_t pool_tokens(const ServedModel& model, const ServedWorker& worker) {
  return worker.stats ? uint64_t{worker.stats->blocks_total} * model.block_tokens : 0;
}

}  // namespace

const char* worker_state_name(const FleetWorkerFigures& figures) {
  if (figures.is_lost) return "lost";
  if (figures.is_drained) return "drained";
  return figures.is_out ? "on trial" : "ready";
}

json::object model_card(const SeenModel& model) {
  json::object card = {{"id", model.figures.name}, {"object", "model"}};
  card["created"] = model.loaded ? model.loaded->model.created : 0;
  card["owned_by"] = "llmrt";
  if (model.loaded) card["max_model_len"] = model.loaded->model.context_max;
  card["state"] = model_state_name(model.figures.state);
  return card;
}
json::object adapter_card(const ShelvedAdapter& adapter, const SeenModel& model) {
  json::object card = model_card(model);
  card["id"] = card["root"] = adapter.name;
  card["created"] = adapter.created;
  card["parent"] = adapter.model;
  return card;
}

std::shared_ptr<AdapterShelf> shelf_of(const std::vector<SeenModel>& models) {
  for (const SeenModel& model : models)
    if (model.loaded && model.loaded->model.adapters) return model.loaded->model.adapters;
  return nullptr;
}

json::object model_list(const std::vector<SeenModel>& models) {
  json::array cards;
  for (const SeenModel& model : models) cards.push_back(model_card(model));
  if (const std::shared_ptr<AdapterShelf> shelf = shelf_of(models))
    for (const ShelvedAdapter& adapter : shelf->all())
      for (const SeenModel& model : models)
        if (model.loaded && model.figures.name == adapter.model) cards.push_back(adapter_card(adapter, model));
  // Codex looks for `models`, with descriptions that it ships for its own models; without the name it logs an error.
  return {{"object", "list"}, {"data", std::move(cards)}, {"models", json::array()}};
}

// A verdict is something to know, not a reason to be taken out of service.
json::object health(const std::vector<SeenModel>& models) {
  json::array saturated;
  json::object states, workers;
  for (const SeenModel& model : models) {
    states[model.figures.name] = model_state_name(model.figures.state);
    for (const ServedWorker& worker : model.workers()) {
      if (!worker.name.empty()) workers[worker.name] = worker_state_name(worker.figures);
      for (size_t i = 0; worker.stats && i < kNumSaturations; ++i) {
        const SaturationVerdict& verdict = worker.stats->saturation[i];
        const auto which = static_cast<Saturation>(i);
        if (!verdict.is_raised) continue;
        json::object told = {{"verdict", saturation_name(which)},
                             {"value", verdict.value},
                             {"limit", verdict.limit},
                             {"message", saturation_text(which)}};
        if (models.size() > 1) told["model"] = model.figures.name;
        if (!worker.name.empty()) told["worker"] = worker.name;
        saturated.push_back(std::move(told));
      }
    }
  }
  json::object out = {{"status", "ok"}, {"saturated", std::move(saturated)}};
  if (!workers.empty()) out["workers"] = std::move(workers);
  if (models.size() > 1) out["models"] = std::move(states);
  return out;
}

json::object server_info(const ServedModel& model, const std::vector<ServedWorker>& workers,
                         const std::string& version) {
  uint64_t num_tokens = 0;
  for (const ServedWorker& worker : workers) num_tokens += pool_tokens(model, worker);
  return {{"model_id", model.id},
          {"model_path", model.id},  // where the file lies is nobody's business
          {"served_model_name", model.id},
          {"version", version},
          {"dp_size", workers.size()},
          {"context_length", model.context_max},
          {"page_size", model.block_tokens},
          {"max_total_tokens", num_tokens}};
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
json::array load(const std::vector<SeenModel>& models) {
  uint64_t num_requests = 0, num_waiting = 0, num_tokens = 0;
  for (const SeenModel& model : models) {
    num_waiting += model.figures.num_waiting;
    num_requests += model.figures.num_waiting;
    for (const ServedWorker& worker : model.workers()) {
      if (!worker.stats) continue;
      num_waiting += worker.stats->num_waiting;
      num_requests += uint64_t{worker.stats->num_running} + worker.stats->num_waiting;
      num_tokens += worker.stats->table_tokens + worker.stats->queue_tokens;
    }
  }
  return {json::object{
      {"dp_rank", 0}, {"num_reqs", num_requests}, {"num_waiting_reqs", num_waiting}, {"num_tokens", num_tokens}}};
}

json::object loads(const std::vector<SeenModel>& models, const std::string& version) {
  json::array ranks;
  for (const SeenModel& model : models) {
    for (const ServedWorker& worker : model.workers()) {
      if (!worker.stats) continue;
      const EngineStats& stats = *worker.stats;
      const uint64_t used = uint64_t{stats.blocks_total - stats.blocks_free} * model.loaded->model.block_tokens;
      const uint64_t total = pool_tokens(model.loaded->model, worker);
      json::object rank = {{"dp_rank", ranks.size()},
                           {"num_running_reqs", stats.num_running},
                           {"num_waiting_reqs", stats.num_waiting},
                           {"num_total_reqs", uint64_t{stats.num_running} + stats.num_waiting},
                           {"num_used_tokens", used},
                           {"num_waiting_tokens", stats.queue_tokens},
                           {"max_total_num_tokens", total},
                           {"token_usage", total == 0 ? 0.0 : static_cast<double>(used) / static_cast<double>(total)},
                           {"cache_hit_rate", stats.recent_hit_rate}};
      if (models.size() > 1) rank["model"] = model.figures.name;
      if (!worker.name.empty()) rank["worker"] = worker.name;
      ranks.push_back(std::move(rank));
    }
  }
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return {{"timestamp", http_date(now)}, {"version", version}, {"loads", std::move(ranks)}};
}

}  // namespace llmrt::server
