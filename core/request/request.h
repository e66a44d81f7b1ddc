// What a client asked, complete when handed to the engine, and what comes back. Plain values; copies share the lists of
// sampling and of stop, so that branches and prompts of one call cost no more of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/sha256.h"
#include "core/base/shared_list.h"
#include "core/base/status.h"
#include "core/metrics/adapter_use.h"
#include "core/request/policy.h"
#include "core/request/request_class.h"
#include "core/request/stop_strings.h"
#include "core/request/token_constraint.h"
#include "core/sample/logits_processor.h"
#include "core/sample/sampling_params.h"
#include "core/speculate/drafter.h"

namespace llmrt {

struct AdapterImage;  // core/adapter

// An adapter that requests may name.
struct ReadyAdapter {
  std::shared_ptr<const AdapterImage> image;
  uint32_t id = 0;        // a number of this content in this process
  uint32_t rank_max = 0;  // of its parts
  Digest digest = {};     // of the content
};

using RequestId = uint64_t;

// What kind of call it came by: answers differ in length.
enum class Route : uint8_t { kCompletion, kChat };
inline constexpr size_t kNumRoutes = 2;

struct StopParams {
  StopStrings strings = {};            // matched on bytes, across tokens
  SharedList<int32_t> token_ids = {};  // beside the model's own end-of-generation set
  bool include_string = false;         // keep the matched string in the text
  bool ignore_eos = false;             // end-of-generation tokens do not stop (they may still be drawn)
};

enum class FinishReason : uint8_t {
  kNone,
  kEos,
  kStopToken,
  kStopString,
  kLength,
  kCancelled,
  kTimeout,
  kError,
  kPolicy,
  kGrammarEnd,    // the answer is whole, and nothing may follow
  kDisconnected,  // its client is gone, or was given up
  kHandedOver,    // another engine goes on with it; no client is told so
};
const char* finish_reason_name(FinishReason reason);  // "eos", "stop_token", ...

struct TopLogprob {
  int32_t token;
  float logprob;
};

// How a token was drawn. processed_logprob, support (how many tokens it has) and margin are those of the distribution
// that was drawn from: margin (winner minus runner-up: noised scores, greedy: logits; infinite with one token in the
// support).
struct Draw {
  float logprob;  // raw
  float processed_logprob;
  uint32_t support;
  float margin;
  // Of the mask that it was drawn under (TokenMask::digest, num_allowed); 0 and 0 without one.
  uint64_t mask_digest = 0;
  uint32_t mask_allowed = 0;
  // Of the run of drafts that it was drawn in: how many were proposed, and how many of them stand before it, all of
  // which were right. 0 and 0: its row had no drafts in that step.
  uint32_t num_drafts = 0;
  uint32_t run_idx = 0;
};

// What came of a sampled row: the one struct from the sampler to the stream. Text: the receiver keeps the bytes of all
// tokens so far; after this token all but the last `hold_bytes` may be shown, and at the end `cut_bytes` of them are
// dropped first (a stop string).
struct TokenOutcome {
  int32_t token = -1;  // -1: none (an end without a token, a score, a request that has already ended)
  uint32_t hold_bytes = 0, cut_bytes = 0;
  bool has_logprob = false;                   // false for the first token of a prompt
  float logprob = 0;                          // raw, or as SamplingParams::processed_logprobs says
  std::vector<TopLogprob> top_logprobs = {};  // as many as asked for
  std::optional<Draw> draw = {};              // of a drawn token, with tell_draws
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error = {};  // with kError and kTimeout
};

// One step of a request's answer, in order: a sampled token, or one token of the prompt with its log-probability
// (is_prompt), or an end.
struct TokenEvent : TokenOutcome {
  bool is_prompt = false;
  RequestId request_id = 0;    // of the branch
  uint32_t branch = 0;         // which of the request's n
  uint32_t cached_tokens = 0;  // of branch 0: prompt tokens that the prefix cache spared
  TimeNs time_ns = 0;          // when the step's result was taken
};

// Where events go. Called on the engine's thread; must only hand over (post), never block, never call the engine.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on_events(std::span<const TokenEvent> events) = 0;
};

// Beam search: the n branches are beams. Nothing is drawn; at the end branch 0 gets the best answer, branch 1 the next
// one and so on, each all at once. core/request/beam_search.h says which are the best.
struct BeamParams {
  float length_penalty = 1;     // [-10, 10]
  bool early_stopping = false;  // over as soon as n answers have ended
};

// What a request is called outside, for the request trace. Empty: it has no such name.
struct RequestNames {
  std::string answer;    // the answer's id
  std::string http;      // the HTTP request's: x-request-id
  std::string trace_id;  // of the client's trace
};

// Of engines of one process that share a BlockExchange. kGive: what the request's tokens fill of blocks goes there.
// kTake: what another engine gives of them is waited for, for a bounded time; what is missing then is computed.
enum class HandOver : uint8_t { kNone, kGive, kTake };

// With n > 1 the prompt is continued n times, by branches that share its keys and values. A branch is a request of its
// own in everything else: branch b has the id `id + b`, draws what a lone request with sampling.branch + b draws, and
// its events say which it is.
struct Request {
  RequestId id = 0;  // given by the engine
  std::vector<int32_t> prompt;
  uint32_t n = 1;
  SamplingParams sampling;
  StopParams stop;
  std::optional<BeamParams> beam = {};
  std::vector<std::shared_ptr<const LogitsProcessor>> processors = {};  // applied in this order
  std::shared_ptr<const Policy> policy = {};
  // What the answer's tokens must be (a grammar); null: anything.
  std::shared_ptr<const TokenConstraint> constraint = {};
  // Drafts of its tokens; absent: as the engine is configured.
  std::optional<Speculation> speculation = {};
  // For sample traces: JSON from which the constraint can be made again. Empty: a trace does not tell it.
  std::string constraint_source = {};
  // Tokens of the answer that are there already: the request goes on behind them as if it had drawn them (its noise,
  // penalties, bans and max_tokens count them; no events tell them). Only with n = 1.
  std::vector<int32_t> begun = {};
  uint32_t max_tokens = 16;  // 0: prompt log-probabilities only
  uint32_t min_tokens = 0;   // end-of-generation and stop tokens are banned before that many
  uint32_t adapter_id = 0;   // 0 = none; a number that the process gives one content of an adapter, and no other
  // What the number stands for, where the engine has a pool of adapters, and the request's own factor on it.
  std::shared_ptr<const AdapterImage> adapter = {};
  Digest adapter_digest = {};  // of it, for sample traces
  float adapter_scale = 1;
  // The position from which on it counts, in the prompt: what lies before is computed, and shared, as without an
  // adapter. Absent: it counts for all. The engine finds it for adapters with invocation tokens.
  std::optional<uint32_t> adapter_start = {};
  bool adapter_on_experts = false;               // it changes experts: the engine finds it in its bytes
  std::shared_ptr<AdapterUse> adapter_use = {};  // that the engine counts it for; null: nobody asks
  RequestClass request_class = RequestClass::kInteractive;
  bool batch_invariant = false;  // its numbers may not depend on what runs beside it; evaluation implies it
  Route route = Route::kCompletion;
  RequestNames names = {};
  HandOver hand_over = HandOver::kNone;  // without an exchange it means nothing
  // Prefixes are shared only between requests of one salt: with one whole blocks and a part of one, without whole
  // blocks.
  std::string cache_salt = {};
  TimeNs arrival_ns = 0;
  uint32_t deadline_ms = 0;  // from its arrival; the engine makes deadline_ns of it
  // 0 = none. Past one of them it ends with kTimeout.
  TimeNs deadline_ns = 0;  // when the client needs the answer: within its class the earliest goes first
  TimeNs expiry_ns = 0;    // the server's own limit: decides no order
  TimeNs start_by_ns = 0;  // only until it is first admitted
  std::shared_ptr<EventSink> sink;
};

inline constexpr uint32_t kBranchesMax = 128;
inline constexpr uint32_t kBeamCandidatesMax = kLogprobAlternativesMax;  // that the device tells of each beam
inline constexpr size_t kStopTokensMax = 128;
inline constexpr size_t kStopStringsMax = 64;
inline constexpr size_t kStopBytesMax = 4096;  // of all stop strings together
inline constexpr size_t kCacheSaltBytesMax = 256;

// What a request holds while it waits, about: what is its own and, beside the first, so much for each branch. Lists
// that copies share (of prompts of one call) count for each. A branch that runs has its tokens on top.
inline constexpr uint64_t kBranchBytes = 2048;
uint64_t held_bytes(const Request& request);

// Everything about the values inside: prompt not empty and inside the vocabulary, sampling ranges, n, stop lists and
// salt within the limits above and no empty stop string, min_tokens <= max_tokens. invalid_argument naming field, range
// and value; unsupported for what does not go together with beam search, or with a constraint (it alone says where the
// answer may end).
Status validate(const Request& request, uint32_t vocab_size);

}  // namespace llmrt
