#include "tools/llmrt_bench/load/agents.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace llmrt::bench {
namespace {

// About 120 tokens to most tokenizers: part of the system prompt, as models without a format for tools have them.
constexpr uint32_t kToolTokens = 120;
constexpr const char* kTools =
    "You can call these tools.\n"
    R"([{"name": "read_file", "parameters": {"path": "string", "first_line": "integer", "num_lines": "integer"}},)"
    R"( {"name": "edit_file", "parameters": {"path": "string", "old_text": "string", "new_text": "string"}},)"
    R"( {"name": "run_command", "parameters": {"command": "string", "timeout_s": "number"}},)"
    R"( {"name": "search", "parameters": {"query": "string", "limit": "integer"}}])"
    "\n";

// `text` is told by no earlier one, so that nothing of it is cached.
std::string system_prompt(uint32_t tokens, Draws* draws) {
  const uint32_t words = tokens > kToolTokens ? tokens - kToolTokens : 1;
  const std::string begin = make_words(std::min(words, 4u), draws);
  return begin + "\n" + (tokens > kToolTokens ? kTools : "") + make_words(words, draws);
}

LoadItem item_of(boost::json::array messages, uint32_t prompt_tokens, uint32_t output_tokens) {
  LoadItem item;
  item.messages = std::move(messages);
  item.prompt_tokens = prompt_tokens;
  item.output_tokens = output_tokens;
  return item;
}

boost::json::object message(std::string_view role, std::string_view text) {
  return {{"role", role}, {"content", text}};
}

double median_ttft(std::span<const Outcome> outcomes) {
  std::vector<double> samples;
  for (const Outcome& outcome : outcomes)
    if (const auto ttft = outcome.ttft_ms(); ttft && !outcome.failure) samples.push_back(*ttft);
  return percentile(std::move(samples), 0.5);
}

}  // namespace

AgentTalks::AgentTalks(const AgentShape& shape, const Lengths& input, const Lengths& output, uint64_t seed)
    : shape_(shape), input_(input), output_(output), draws_(seed), other_draws_(~seed), talks_(shape.users) {
  system_ = system_prompt(shape.system_tokens, &draws_);
}

std::vector<LoadItem> AgentTalks::next() {
  std::vector<LoadItem> items;
  for (std::vector<Message>& talk : talks_) {
    const uint32_t words = input_.draw(&draws_);
    talk.push_back({"user", make_words(words, &draws_), words});
    boost::json::array messages = {message("system", system_)};
    uint32_t tokens = shape_.system_tokens;
    for (const Message& said : talk) {
      messages.push_back(message(said.role, said.text));
      tokens += said.words;
    }
    items.push_back(item_of(std::move(messages), tokens, output_.draw(&draws_)));
    items.back().keeps_answer = true;
  }
  return items;
}

std::vector<LoadItem> AgentTalks::others() {
  std::vector<LoadItem> items;
  for (const std::vector<Message>& talk : talks_) {
    boost::json::array messages = {message("system", system_prompt(shape_.system_tokens, &other_draws_))};
    uint32_t tokens = shape_.system_tokens;
    for (const Message& said : talk) {
      messages.push_back(message(said.role, make_words(std::max(said.words, 1u), &other_draws_)));
      tokens += said.words;
    }
    items.push_back(item_of(std::move(messages), tokens, 1));
  }
  return items;
}

void AgentTalks::take(std::span<const Outcome> outcomes) {
  for (size_t user = 0; user < talks_.size(); ++user) {
    const Outcome& outcome = outcomes[user];
    const bool is_first = talks_[user].size() == 1;
    if (is_first && !outcome.failure && outcome.prompt_tokens > 0)
      tokens_word_ = static_cast<double>(outcome.prompt_tokens) / (shape_.system_tokens + talks_[user][0].words);
    const double words = outcome.failure ? 0 : outcome.output_tokens / tokens_word_;
    talks_[user].push_back({"assistant", outcome.failure ? std::string() : outcome.answer.content,
                            static_cast<uint32_t>(std::lround(words))});
  }
}

double AgentTurn::cached_share() const {
  return num_told == 0 || told_prompt_tokens == 0
             ? NAN
             : static_cast<double>(cached_tokens) / static_cast<double>(told_prompt_tokens);
}

AgentTurn agent_turn(uint32_t turn, std::span<const Outcome> outcomes, std::span<const Outcome> cold) {
  AgentTurn out;
  out.turn = turn;
  out.num_requests = outcomes.size();
  for (const Outcome& outcome : outcomes) {
    if (outcome.failure) continue;
    ++out.num_answered;
    out.prompt_tokens += outcome.prompt_tokens;
    if (!outcome.cached_tokens) continue;
    ++out.num_told;
    out.num_hits += *outcome.cached_tokens > 0;
    out.cached_tokens += *outcome.cached_tokens;
    out.told_prompt_tokens += outcome.prompt_tokens;
  }
  if (out.num_answered > 0) out.prompt_tokens /= static_cast<double>(out.num_answered);
  out.ttft_ms = median_ttft(outcomes);
  out.cold_ttft_ms = median_ttft(cold);
  return out;
}

std::string agents_text(std::span<const AgentTurn> turns) {
  const auto number = [](double value, const char* unit, int digits) {
    return std::isfinite(value) ? fmt::format("{:.{}f}{}", value, digits, unit) : std::string("-");
  };
  std::string text = fmt::format("{:>4} {:>9} {:>7} {:>9} {:>12} {:>12} {:>8}\n", "turn", "prompt", "cached", "hits",
                                 "TTFT ms", "cold ms", "of cold");
  for (const AgentTurn& turn : turns)
    text += fmt::format("{:>4} {:>9} {:>7} {:>9} {:>12} {:>12} {:>8}\n", turn.turn, number(turn.prompt_tokens, "", 0),
                        number(100 * turn.cached_share(), " %", 1),
                        turn.num_told == 0 ? "-" : fmt::format("{} of {}", turn.num_hits, turn.num_told),
                        number(turn.ttft_ms, "", 1), number(turn.cold_ttft_ms, "", 1),
                        number(100 * turn.ttft_ms / turn.cold_ttft_ms, " %", 1));
  if (std::ranges::all_of(turns, [](const AgentTurn& turn) { return turn.num_told == 0; }))
    text += "the server does not say how many tokens it had (usage.prompt_tokens_details.cached_tokens)\n";
  return text;
}

boost::json::object agent_turn_json(const AgentTurn& turn) {
  const auto number = [](double value) { return std::isfinite(value) ? boost::json::value(value) : nullptr; };
  return {{"turn", turn.turn},
          {"prompt_tokens", turn.prompt_tokens},
          {"cached_share", number(turn.cached_share())},
          {"told", turn.num_told},
          {"hits", turn.num_hits},
          {"ttft_ms", number(turn.ttft_ms)},
          {"cold_ttft_ms", number(turn.cold_ttft_ms)}};
}

}  // namespace llmrt::bench
