// A branch of a request, as its receiver sees it, and what must be true of it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "tests/sim/scenario.h"

namespace llmrt::test {

struct Client {
  const ClientPlan* plan = nullptr;
  uint32_t branch = 0;
  Engine* engine = nullptr;
  const Tokenizer* tokenizer = nullptr;
  FakeAnswer alone;

  bool arrived = false, refused = false, drained = false, cancelled = false;
  RequestId id = 0;
  TimeNs deadline_ns = 0, start_by_ns = 0;  // 0 = none; of the request or the server, whichever is first
  uint32_t arrived_at = 0, ended_at = 0;
  uint64_t num_events = 0, num_prompt_events = 0;
  uint32_t cached_tokens = 0;
  FakeAnswer got;
  std::optional<Error> error;
  bool is_paused = false;
  size_t tokens_at_pause = 0;
  std::string wrong;              // what broke first
  std::vector<Client*> together;  // with beam search: all branches, which are cancelled together

  bool ended() const { return got.finish != FinishReason::kNone; }
  void begin();
  void on_event(const TokenEvent& event);
  void take(const TokenEvent& event);
  void take_prompt_token(const TokenEvent& event);
  void cancel() {
    cancelled = true;
    for (Client* other : together) other->cancelled = true;
    engine->cancel(id, {}, plan->disconnects ? FinishReason::kDisconnected : FinishReason::kCancelled);
  }
  // Of steps that are under way: one with drafts has none behind it.
  static constexpr size_t kTokensWhilePausedMax = 1 + kDraftTokensMax;
  void pause(bool paused) {
    is_paused = paused;
    tokens_at_pause = got.tokens.size();
    engine->set_paused(id, paused);
  }
  std::string check_end(TimeNs now, const MemoryPlan& pool) const;
  std::string check_error(const MemoryPlan& pool) const;
};

struct Sink final : EventSink {
  std::vector<Client*> branches;
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) branches.at(event.branch)->on_event(event);
  }
};

// Empty when all is well, else what is wrong. `is_lost`: the device of this engine.
std::string check_refusal(const Engine& engine, bool is_lost, const Client& client, const Error& error);
// The prompt tokens that the client was spared, by what the others have asked or got.
std::string check_cached(const Engine& engine, const Client& client, std::span<const std::unique_ptr<Client>> others);
// The record of a branch that was accepted says what its client has seen.
std::string check_record(const RequestTrace& record, const Client& client);

}  // namespace llmrt::test
