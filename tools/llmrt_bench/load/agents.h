// Talks of agents: users who share a system prompt with tools, and whose every turn repeats all that was said before.
// So a server that keeps what it has computed reads little but the new words. Turns go in step: all users ask, all are
// answered, then the next turn. Beside each turn stand prompts as long in other words, which no server has seen: what
// it takes without a cache, with as many at once.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/llmrt_bench/load/arrivals.h"
#include "tools/llmrt_bench/load/outcome.h"
#include "tools/llmrt_bench/load/work.h"

namespace llmrt::bench {

struct AgentShape {
  uint32_t users = 8, turns = 5;
  uint32_t system_tokens = 2000;  // words, among them what tools there are
};

class AgentTalks {
 public:
  // Lengths of what users say and are answered are drawn; so are all words, in the order of users and turns.
  AgentTalks(const AgentShape& shape, const Lengths& input, const Lengths& output, uint64_t seed);

  // A request of each user: the next turn.
  std::vector<LoadItem> next();
  // Requests as long as those of next() in words of their own, of which one token is asked for.
  std::vector<LoadItem> others();
  // What came of next(). An answer that failed counts as one of no words.
  void take(std::span<const Outcome> outcomes);

 private:
  struct Message {
    const char* role;
    std::string text;
    uint32_t words = 0;  // of an answer: words of the workload that make as many tokens
  };

  AgentShape shape_;
  Lengths input_, output_;
  Draws draws_, other_draws_;
  std::string system_;
  double tokens_word_ = 1;                   // as the server counts the first prompts
  std::vector<std::vector<Message>> talks_;  // without the system prompt; of a user in turn with an assistant
};

// A turn's figures, of the answers that came.
struct AgentTurn {
  uint32_t turn = 1;
  size_t num_requests = 0, num_answered = 0;
  double prompt_tokens = 0;  // in the mean
  // Requests whose cached tokens the server told; of those the sums, and how many had any.
  size_t num_told = 0, num_hits = 0;
  uint64_t told_prompt_tokens = 0, cached_tokens = 0;
  double ttft_ms = 0, cold_ttft_ms = 0;  // medians

  double cached_share() const;  // not a number where nothing was told
};
AgentTurn agent_turn(uint32_t turn, std::span<const Outcome> outcomes, std::span<const Outcome> cold);

std::string agents_text(std::span<const AgentTurn> turns);
boost::json::object agent_turn_json(const AgentTurn& turn);

}  // namespace llmrt::bench
