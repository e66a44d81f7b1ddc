// The engine's branches of one answer, and its choices and writer: what connections and batches have in common between
// a parsed request and its last event. One owner; the door's threads reach it through sinks alone.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "server/api_request.h"
#include "server/choice.h"
#include "server/dialect.h"
#include "server/outbox.h"
#include "server/served_engine.h"

namespace llmrt::server {

struct AnswerRun {
  const ServedLease lease;  // the last thing that goes
  const std::shared_ptr<EngineDoor> door;
  const ServedModel& model;
  const AnswerForm form;
  const std::unique_ptr<AnswerWriter> writer;
  std::vector<Choice> choices;
  std::vector<RequestId> ids;   // of those that were submitted
  std::vector<SentTimes> sent;  // by choice
  size_t num_open;              // choices that have not ended

  AnswerRun(ServedLease held, const Dialect& dialect, const ApiRequest& wanted, AnswerHead head);
  AnswerRun(const AnswerRun&) = delete;
  ~AnswerRun() { give_back(/*has_left=*/false); }

  // `sink_of`: of the request whose branches are the choices from that one on. After an error the others stay
  // submitted.
  using SinkOf = std::function<std::shared_ptr<EventSink>(size_t first_choice)>;
  std::optional<ApiError> submit(std::vector<PromptRequest>&& prompts, const SinkOf& sink_of);
  // Events go to their choices, and what they add to `use`, with whether it is the last of its choice; the error of a
  // choice that ended badly ends it.
  using Use = std::function<void(size_t choice, const ChoiceDelta& delta, bool is_end)>;
  std::optional<ApiError> digest(std::span<const ChoiceEvent> events, const Use& use);
  // Each branch is acknowledged or ended, and is nobody's then. `has_left`: because its client has.
  void give_back(bool has_left);
};

}  // namespace llmrt::server
