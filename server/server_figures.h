// What /metrics tells of the HTTP side. A plain value; nothing that a client sends becomes a key of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/chat/answer_counts.h"
#include "server/access_figures.h"
#include "server/batch_state.h"
#include "server/slow_clients.h"

namespace llmrt::server {

// The paths whose bodies may have fields that are ignored.
enum class CountedPath {
  kChatCompletions,
  kCompletions,
  kTokenize,
  kDetokenize,
  kInfill,
  kResponses,
  kMessages,
  kCountTokens,
  kOllamaChat,
  kOllamaGenerate,
  kOllamaShow,
  kAdapters
};
inline constexpr std::array<const char*, 12> kCountedPaths = {"/v1/chat/completions",
                                                              "/v1/completions",
                                                              "/tokenize",
                                                              "/detokenize",
                                                              "/infill",
                                                              "/v1/responses",
                                                              "/v1/messages",
                                                              "/v1/messages/count_tokens",
                                                              "/api/chat",
                                                              "/api/generate",
                                                              "/api/show",
                                                              "/v1/load_lora_adapter"};

// What found no room in --client-memory-mib.
enum class ClientMemoryPart { kBody, kRequest, kAnswer };
inline constexpr std::array<const char*, 3> kClientMemoryParts = {"body", "request", "answer"};

// Of the store of files and batches.
struct FileFigures {
  uint64_t inputs = 0, outputs = 0;  // files, by purpose
  uint64_t bytes = 0, bytes_limit = 0;
  std::array<uint64_t, kNumBatchStates> batches = {};  // by BatchState
  uint64_t lines_open = 0;                             // of batches that are not over, without an answer
  uint64_t lines_completed = 0, lines_failed = 0;      // since the start
};

struct ServerFigures {
  std::map<int, uint64_t> responses;         // by status
  std::map<std::string, uint64_t> refusals;  // by code of ApiError
  std::array<uint64_t, kCountedPaths.size()> ignored_fields = {};
  std::array<uint64_t, kNumOddities> oddities = {};  // of answers that have ended, by Oddity
  uint64_t connections_open = 0, connections_limit = 0;
  std::array<uint64_t, kSlowOutcomes.size()> slow_clients = {};          // by SlowOutcome
  uint64_t handshakes = 0, failed_handshakes = 0;                        // of TLS
  std::array<uint64_t, kClientMemoryParts.size()> memory_refusals = {};  // by ClientMemoryPart
  uint64_t host_out_of_memory = 0;  // connections that ended as the process got no memory
  // What bodies, waiting requests and answers hold. Limit 0: nothing counts them, and neither is told.
  uint64_t client_memory_bytes = 0, client_memory_limit_bytes = 0;
  AccessFigures access = {};
  std::optional<FileFigures> files = {};  // absent: there is no folder for them
};

// Codes are literals of ours; should one ever carry a client's text, no more than so many of them are told apart.
inline constexpr size_t kRefusalCodesMax = 64;
inline void count_refusal(std::map<std::string, uint64_t>& refusals, const std::string& code) {
  const bool fits = refusals.size() < kRefusalCodesMax || refusals.contains(code);
  ++refusals[fits ? code : "other"];
}

}  // namespace llmrt::server
