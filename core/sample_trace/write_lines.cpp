#include <boost/json.hpp>

#include <cmath>

#include "core/request/logit_changes.h"
#include "core/sample/gumbel.h"
#include "core/sample_trace/sample_trace.h"

namespace llmrt {
namespace {

namespace json = boost::json;

json::array array_of(std::span<const int32_t> ids) {
  return json::array(ids.begin(), ids.end());
}

// JSON has no infinity.
json::value number_of(float value) {
  return std::isfinite(value) ? json::value(static_cast<double>(value)) : json::value(nullptr);
}

}  // namespace

std::string header_line(const SampleTraceOrigin& origin) {
  return json::serialize(json::object{{"type", "header"},
                                      {"format", "llmrt sample trace"},
                                      {"version", kSampleTraceVersion},
                                      {"model", origin.model},
                                      {"model_digest", origin.model_digest},
                                      {"device", origin.device},
                                      {"kv_dtype", origin.kv_dtype}});
}

std::string request_line(RequestId id, const Request& request) {
  const SamplingParams& s = request.sampling;
  json::array processors, bias, bad_words;
  for (const std::string& name : processor_names(request)) processors.emplace_back(name);
  for (const auto& [token, value] : s.logit_bias) bias.push_back(json::array{token, number_of(value)});
  for (const std::vector<int32_t>& word : s.bad_words) bad_words.push_back(array_of(word));
  json::object line{{"type", "request"},
                    {"request", id},
                    {"adapter", request.adapter_id},
                    {"method", s.temperature == 0 ? "argmax" : "sampled"},
                    {"processors", std::move(processors)}};
  if (request.adapter_id != 0) {
    line["adapter_digest"] = to_hex(request.adapter_digest);
    line["adapter_scale"] = number_of(request.adapter_scale);
  }
  for (const SamplingParameter& parameter : kSamplingParameters) {
    const double number = parameter.of(s);
    line[parameter.name] = parameter.is_whole() ? json::value(static_cast<uint32_t>(number)) : json::value(number);
  }
  line["logit_bias"] = std::move(bias);
  line["bad_words"] = std::move(bad_words);
  line["min_tokens"] = request.min_tokens;
  line["max_tokens"] = request.max_tokens;
  line["stop_token_ids"] = array_of(request.stop.token_ids);
  line["ignore_eos"] = request.stop.ignore_eos;
  line["seed"] = s.seed;
  line["branch"] = s.branch;
  line["prompt"] = array_of(request.prompt);
  line["begun"] = array_of(request.begun);
  json::error_code error;
  if (json::value grammar = json::parse(request.constraint_source, error); !error) line["grammar"] = std::move(grammar);
  return json::serialize(line);
}

std::string token_line(RequestId id, const SamplingParams& sampling, uint32_t position, int32_t token,
                       const Draw& draw) {
  const auto key = [&](uint32_t word) {
    return noise_key(static_cast<uint32_t>(sampling.seed), static_cast<uint32_t>(sampling.seed >> 32), sampling.branch,
                     position, word);
  };
  json::value noise = nullptr;
  if (sampling.temperature > 0) noise = noise_hash(key(0), key(1), static_cast<uint32_t>(token));
  json::object line{{"type", "token"},
                    {"request", id},
                    {"position", position},
                    {"token", token},
                    {"noise", std::move(noise)},
                    {"logprob", number_of(draw.logprob)},
                    {"processed_logprob", number_of(draw.processed_logprob)},
                    {"support", draw.support},
                    {"margin", number_of(draw.margin)}};
  if (draw.mask_allowed > 0) {
    line["mask"] = draw.mask_digest;
    line["allowed"] = draw.mask_allowed;
  }
  if (draw.num_drafts > 0) {
    line["drafts"] = draw.num_drafts;
    line["run"] = draw.run_idx;
  }
  return json::serialize(line);
}

std::string end_line(RequestId id, FinishReason finish, size_t num_tokens) {
  return json::serialize(
      json::object{{"type", "end"}, {"request", id}, {"finish", finish_reason_name(finish)}, {"tokens", num_tokens}});
}

}  // namespace llmrt
