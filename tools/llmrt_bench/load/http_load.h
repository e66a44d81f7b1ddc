// Requests to an OpenAI-compatible server. One thread and one io_context: each request is a coroutine, so none waits
// for another's answer, and a time is taken as soon as bytes have been read.
#pragma once

#include <boost/json.hpp>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "tools/llmrt_bench/load/outcome.h"
#include "tools/llmrt_bench/load/work.h"

namespace llmrt::bench {

struct HttpTarget {
  std::string host, port, base;  // base: what stands before /v1, often empty
  std::vector<std::pair<std::string, std::string>> headers;
  std::string model;
  uint32_t num_adapters = 0;          // that items ask for: the server must list so many
  std::vector<std::string> adapters;  // by their numbers less 1, as HttpLoad::find_model found them
  bool is_chat = false;
  boost::json::object sampling = {{"temperature", 0}, {"top_p", 1}};  // fields of every body
  double timeout_s = 600;                                             // of a whole request
  // Fields that not every server knows; HttpLoad::probe clears what is refused.
  bool forces_length = true;  // ignore_eos and min_tokens, of requests without structure
  bool asks_usage = true;     // stream_options.include_usage
};
// "http://host[:port][/base]"; a /v1 at the end is taken as said. The port is 80 unless given.
Result<HttpTarget> parse_url(const std::string& url);

// Told of each outcome as it comes, and now and then without one (null).
using OnOutcome = std::function<void(const Outcome*)>;

class HttpLoad {
 public:
  // Looks the host up. Errors: not_found.
  static Result<std::unique_ptr<HttpLoad>> open(HttpTarget target);
  ~HttpLoad();

  // The first model that the server names and that is no adapter, where the target says none; and the adapters of the
  // model, which are those that have it as their `parent`. Errors: io, and what the server did instead; not_found,
  // where it has fewer adapters than the target asks for.
  Status find_model();
  // Asks for a short answer, and where the server refuses the optional fields does without them. Errors: the failure of
  // that request.
  Status probe(const LoadItem& item);
  const HttpTarget& target() const;

  // All of them, in their order: `concurrency` at a time, or at their arrivals where it is 0.
  std::vector<Outcome> run(const std::vector<LoadItem>& items, uint32_t concurrency, const OnOutcome& on_outcome);

 private:
  struct Impl;
  explicit HttpLoad(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace llmrt::bench
