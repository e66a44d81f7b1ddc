#include "core/router/placement_log.h"

#include <boost/json.hpp>

#include "core/base/utf8.h"

namespace llmrt {

std::string format_placement(const PlacementRecord& record, std::span<const std::string> names, int64_t unix_ms) {
  namespace json = boost::json;
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? json::value(nullptr) : json::value(replace_invalid_utf8(text));
  };
  json::array workers;
  for (size_t i = 0; i < record.choice.terms.size(); ++i) {
    const PlacementTerms& terms = record.choice.terms[i];
    json::object worker = {{"worker", names[i]}};
    if (!terms.infeasible.empty()) {
      worker["infeasible"] = terms.infeasible;
    } else {
      worker["ttft_ms"] = terms.ttft_ms;
      worker["tpot_ms"] = terms.tpot_ms;
      worker["late_ms"] = terms.late_ms;
      worker["total_ms"] = terms.total_ms;
      worker["wait_ms"] = terms.wait_ms;
      worker["others_ms"] = terms.others_ms;
      worker["lost"] = terms.lost;
      worker["cached_tokens"] = terms.cached_tokens;
      worker["room_blocks"] = terms.room_blocks;
      worker["keeps_room"] = terms.keeps_room;
    }
    workers.push_back(std::move(worker));
  }
  return json::serialize(json::object{{"unix_ms", unix_ms},
                                      {"why", record.why},
                                      {"worker", record.worker ? json::value(names[*record.worker]) : nullptr},
                                      {"answer", text_or_null(record.request.answer)},
                                      {"request_id", text_or_null(record.request.http)},
                                      {"prompt_tokens", record.ask.prompt_tokens},
                                      {"answer_tokens", record.ask.answer_tokens},
                                      {"branches", record.ask.num_branches},
                                      {"workers", std::move(workers)}});
}

}  // namespace llmrt
