// What the endpoints for answers have in common: the fields that mean the same in all of them, and the request that
// follows.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_request.h"
#include "server/fields.h"
#include "server/structure.h"

namespace llmrt::server {

// All of that but prompt and length.
struct SharedFields {
  AnswerForm form;
  SamplingParams sampling;
  StopParams stop;
  std::optional<BeamParams> beam;
  bool has_seed = false;
  uint32_t min_tokens = 0, deadline_ms = 0;
  RequestClass request_class = RequestClass::kInteractive;
  bool batch_invariant = false;
  std::string cache_salt;
  std::optional<Speculation> speculation;
  ReadyAdapter adapter;  // of `model`, where that is an adapter's name
  std::shared_ptr<AdapterUse> adapter_use;
  float adapter_scale = 1;
};
SharedFields read_shared(Fields& fields, const ServedModel& model, const ParseContext& context);

// An array of token ids, each inside the vocabulary.
std::vector<int32_t> read_ids(Fields& fields, std::string_view name, const boost::json::array& array,
                              uint32_t vocab_size);
// -1: what the context leaves.
std::optional<int64_t> read_max_tokens(Fields& fields, std::string_view name, int64_t min, int64_t max);
// The same under either of two names, or under both if they agree.
std::optional<int64_t> read_max_tokens(Fields& fields, std::string_view name, std::string_view other_name, int64_t min,
                                       int64_t max);

Request make_request(Fields& fields, const SharedFields& shared, const ServedModel& model, std::vector<int32_t> prompt,
                     int64_t max_tokens);
// Checks what does not go together with a grammar, and hands the stop strings to whoever looks for them.
void take_structure(Fields& fields, const ServedModel& model, AnswerStructure structure, ApiRequest* out);
// Says which fields had no effect, and how long the answer may be where that is less than was asked for.
void add_headers(ApiRequest& request, std::optional<int64_t> max_tokens);

}  // namespace llmrt::server
