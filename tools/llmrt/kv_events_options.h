// Options of `llmrt serve` for the stream of KV events, and the publisher that they ask for.
#pragma once

#include <memory>
#include <string>

#include "core/engine/engine.h"
#include "core/kv_events/publisher.h"
#include "tools/llmrt/program.h"

namespace llmrt::cli {

struct KvEventsOptions {
  KvEventsConfig config;
  std::string topic = "kv@{worker}@{model}";
};
void add_kv_events_options(CLI::App& command, KvEventsOptions& options);

// Where the engines of a process tell their blocks.
class KvEventStream {
 public:
  // Null: none is wanted. Errors: those of KvEventPublisher, and invalid_argument without a prefix cache.
  static Result<std::shared_ptr<KvEventStream>> open(const KvEventsOptions& options, const EngineConfig& engine,
                                                     const std::string& worker_id, std::shared_ptr<Log> log);

  // The engine, which has no requests yet, tells its blocks from now on; engines of one model as one.
  void follow(Engine& engine, const std::string& model);

 private:
  KvEventStream(std::string topic, std::unique_ptr<KvEventPublisher> publisher)
      : topic_(std::move(topic)), publisher_(std::move(publisher)) {}

  const std::string topic_;  // with {model}
  const std::unique_ptr<KvEventPublisher> publisher_;
};

}  // namespace llmrt::cli
