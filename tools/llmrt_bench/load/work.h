// The work of a load run: what is asked for, and when. Kept in a file, JSON lines, it goes unchanged to several
// servers:
//
//   {"arrival_s": 0.25, "prompt": "the text", "prompt_tokens": 128, "output_tokens": 64}
//
// Requests for structure have "schema" (a JSON schema), or "tools" and "tool_choice" as the API has them; their answers
// end by themselves, after output_tokens at most.
//
// "adapter": N asks for the N-th adapter that the server (or the engine) has, from 1 on.
//
// Either of prompt and prompt_tokens may be absent: without prompt so many words are made up. Without arrival_s, which
// all lines have or none, requests come as the options of the run say.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "tools/llmrt_bench/serving/workload.h"

namespace llmrt::bench {

inline constexpr uint32_t kItemTokensMax = 1u << 24;
inline constexpr uint32_t kItemAdaptersMax = 4096;
inline constexpr double kArrivalMaxS = 1e7;

struct LoadItem {
  std::optional<double> arrival_s;  // from the beginning of the run, in whole microseconds
  std::string prompt;
  uint32_t prompt_tokens = 0;  // as meant; who answers counts with a tokenizer of its own. 0 = not said
  uint32_t output_tokens = 1;
  uint32_t adapter = 0;                 // its number; 0 = the model itself
  boost::json::value schema = {};       // null: none
  boost::json::array tools = {};        // empty: none
  boost::json::value tool_choice = {};  // null: not said
  // Of talks (agents.h), in no file: instead of prompt, and whether what is answered is wanted.
  boost::json::array messages = {};
  bool keeps_answer = false;
  std::vector<int32_t> ids = {};  // in no file: over HTTP instead of prompt

  bool is_structured() const { return !schema.is_null() || !tools.empty(); }
};

// To the microsecond, so that what a file says is what was written to it.
double rounded_s(double seconds);

// Common English words, each of which is one token to most tokenizers that were trained on English text.
std::string make_words(uint32_t count, Draws* draws);

// `name` stands before the line's number in errors: invalid_argument.
Result<std::vector<LoadItem>> parse_work(std::string_view text, const std::string& name);
std::string format_work(const std::vector<LoadItem>& items);

// A ShareGPT file: of each conversation that begins with a human's words the prompt is those, and the output as long as
// the answer. As is usual, those of less than 4 tokens, more than 1,024 of the prompt or 2,048 in all are left out. Of
// the rest `count` are drawn, in a random order; fewer when there are no more.
class TokenCounter {
 public:
  virtual ~TokenCounter() = default;
  virtual size_t count(std::string_view text) const = 0;
};
Result<std::vector<LoadItem>> parse_sharegpt(std::string_view text, const TokenCounter& tokens, size_t count,
                                             Draws* draws);

}  // namespace llmrt::bench
