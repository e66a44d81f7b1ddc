#include "tools/llmrt_bench/load/work.h"

#include <fmt/ranges.h>

#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "server/json_reader.h"

namespace llmrt::bench {
namespace {

namespace json = boost::json;

constexpr std::array kWords = {
    "time",  "year",   "people", "way",     "day",     "man",     "thing",    "woman",   "life",       "child",
    "world", "school", "state",  "family",  "student", "group",   "country",  "problem", "hand",       "part",
    "place", "case",   "week",   "company", "system",  "program", "question", "work",    "government", "number",
    "night", "point",  "home",   "water",   "room",    "mother",  "area",     "money",   "story",      "fact",
    "month", "lot",    "right",  "study",   "book",    "eye",     "job",      "word",    "business",   "issue",
    "side",  "kind",   "head",   "house",   "service", "friend",  "father",   "power",   "hour",       "game",
    "line",  "end",    "member", "law"};

Error bad_field(const std::string& place, std::string_view field, const char* expected, const json::value* found) {
  std::string text = found ? json::serialize(*found) : "nothing";
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return make_error(ErrorCode::kInvalidArgument, "{}: {}: expected {}, found {}", place, field, expected, text);
}

// Absent: 0.
Result<uint32_t> number_of(const json::object& line, const char* field, const std::string& place, uint32_t most,
                           const char* expected) {
  const json::value* value = line.if_contains(field);
  if (!value) return 0u;
  boost::system::error_code error;
  const auto number = value->to_number<uint32_t>(error);
  if (error || number < 1 || number > most) return bad_field(place, field, expected, value);
  return number;
}

Result<uint32_t> tokens_of(const json::object& line, const char* field, const std::string& place) {
  return number_of(line, field, place, kItemTokensMax, "a whole number from 1 to 2^24");
}

// The fields of a request for structure. What tools hold is the server's to judge.
Status parse_structure(const json::object& line, const std::string& place, LoadItem* item) {
  if (const json::value* schema = line.if_contains("schema")) {
    if (!schema->is_object()) return bad_field(place, "schema", "a JSON schema (an object)", schema);
    item->schema = *schema;
  }
  const json::value* tools = line.if_contains("tools");
  if (tools) {
    const bool are_objects = tools->is_array() && std::ranges::all_of(tools->get_array(), &json::value::is_object);
    if (!are_objects || tools->get_array().empty()) return bad_field(place, "tools", "a list of objects", tools);
    item->tools = tools->get_array();
  }
  if (const json::value* choice = line.if_contains("tool_choice")) {
    if (!tools) return bad_field(place, "tools", "tools beside tool_choice", nullptr);
    if (!choice->is_string() && !choice->is_object())
      return bad_field(place, "tool_choice", "auto, none, required or an object", choice);
    item->tool_choice = *choice;
  }
  return {};
}

Result<LoadItem> parse_item(std::string_view text, const std::string& place) {
  Result<json::value> parsed = server::read_json(text);
  if (!parsed) return make_error(ErrorCode::kInvalidArgument, "{}: {}", place, parsed.error().message);
  if (!parsed->is_object()) return bad_field(place, "line", "an object", &*parsed);
  const json::object& line = parsed->get_object();
  constexpr std::string_view kFields[] = {"arrival_s", "prompt", "prompt_tokens", "output_tokens",
                                          "adapter",   "schema", "tools",         "tool_choice"};
  for (const auto& [key, value] : line)
    if (std::ranges::find(kFields, std::string_view(key)) == std::end(kFields))
      return make_error(ErrorCode::kInvalidArgument, "{}: expected the fields {}, found {}", place,
                        fmt::join(kFields, ", "), std::string_view(key));
  LoadItem item;
  if (const json::value* arrival = line.if_contains("arrival_s")) {
    boost::system::error_code error;
    const auto seconds = arrival->to_number<double>(error);
    if (error || seconds < 0 || seconds > kArrivalMaxS)
      return bad_field(place, "arrival_s", "seconds from 0 to 10,000,000", arrival);
    item.arrival_s = rounded_s(seconds);
  }
  if (const json::value* prompt = line.if_contains("prompt")) {
    if (!prompt->is_string() || prompt->get_string().empty())
      return bad_field(place, "prompt", "a text that is not empty", prompt);
    item.prompt = std::string(prompt->get_string());
  }
  Result<uint32_t> prompt_tokens = tokens_of(line, "prompt_tokens", place);
  if (!prompt_tokens) return prompt_tokens.error();
  Result<uint32_t> output_tokens = tokens_of(line, "output_tokens", place);
  if (!output_tokens) return output_tokens.error();
  if (*output_tokens == 0) return bad_field(place, "output_tokens", "a whole number from 1 to 2^24", nullptr);
  if (item.prompt.empty() && *prompt_tokens == 0)
    return make_error(ErrorCode::kInvalidArgument, "{}: expected prompt or prompt_tokens, found neither", place);
  if (Status status = parse_structure(line, place, &item); !status) return status.error();
  Result<uint32_t> adapter = number_of(line, "adapter", place, kItemAdaptersMax, "a whole number from 1 to 4096");
  if (!adapter) return adapter.error();
  item.adapter = *adapter;
  item.prompt_tokens = *prompt_tokens;
  item.output_tokens = *output_tokens;
  return item;
}

// The words of one turn; null: not by `who`.
const json::string* words_of(const json::value& turn, std::string_view who) {
  const json::object* object = turn.if_object();
  const json::value* from = object ? object->if_contains("from") : nullptr;
  const json::value* value = object ? object->if_contains("value") : nullptr;
  return from && value && *from == json::value(who) ? value->if_string() : nullptr;
}

}  // namespace

double rounded_s(double seconds) {
  return std::round(seconds * 1e6) / 1e6;
}

std::string make_words(uint32_t count, Draws* draws) {
  std::string text;
  for (uint32_t i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += kWords[draws->below(kWords.size())];
  }
  return text;
}

Result<std::vector<LoadItem>> parse_work(std::string_view text, const std::string& name) {
  std::vector<LoadItem> items;
  Draws draws(1);
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = fmt::format("{}: line {}", name, number);
    Result<LoadItem> item = parse_item(line, place);
    if (!item) return item.error();
    if (!items.empty() && item->arrival_s.has_value() != items.front().arrival_s.has_value())
      return make_error(ErrorCode::kInvalidArgument, "{}: expected arrival_s on all lines or on none", place);
    if (item->prompt.empty()) item->prompt = make_words(item->prompt_tokens, &draws);
    items.push_back(*std::move(item));
  }
  if (items.empty()) return make_error(ErrorCode::kInvalidArgument, "{}: expected at least one line", name);
  std::ranges::stable_sort(items, {}, &LoadItem::arrival_s);
  return items;
}

std::string format_work(const std::vector<LoadItem>& items) {
  std::string text;
  for (const LoadItem& item : items) {
    json::object line;
    if (item.arrival_s) line["arrival_s"] = *item.arrival_s;
    line["prompt"] = item.prompt;
    if (item.prompt_tokens > 0) line["prompt_tokens"] = item.prompt_tokens;
    line["output_tokens"] = item.output_tokens;
    if (item.adapter > 0) line["adapter"] = item.adapter;
    if (!item.schema.is_null()) line["schema"] = item.schema;
    if (!item.tools.empty()) line["tools"] = item.tools;
    if (!item.tool_choice.is_null()) line["tool_choice"] = item.tool_choice;
    text += json::serialize(line) + "\n";
  }
  return text;
}

Result<std::vector<LoadItem>> parse_sharegpt(std::string_view text, const TokenCounter& tokens, size_t count,
                                             Draws* draws) {
  constexpr size_t kTokensMin = 4, kPromptMax = 1024, kTokensMax = 2048;
  Result<json::value> parsed = server::read_json(text);
  if (!parsed) return make_error(ErrorCode::kInvalidArgument, "--sharegpt: {}", parsed.error().message);
  if (!parsed->is_array())
    return make_error(ErrorCode::kInvalidArgument, "--sharegpt: expected an array of conversations, found {}",
                      to_string(parsed->kind()));
  const json::array& conversations = parsed->get_array();
  std::vector<size_t> order(conversations.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t j = draws->below(static_cast<uint32_t>(i + 1));
    order[i] = order[j];
    order[j] = i;
  }
  std::vector<LoadItem> items;
  for (const size_t i : order) {
    if (items.size() == count) break;
    const json::object* conversation = conversations[i].if_object();
    const json::value* turns = conversation ? conversation->if_contains("conversations") : nullptr;
    if (!turns || !turns->is_array())
      return make_error(ErrorCode::kInvalidArgument,
                        "--sharegpt: entry {}: expected an object with an array \"conversations\"", i);
    const json::array& all = turns->get_array();
    const json::string* prompt = all.size() < 2 ? nullptr : words_of(all[0], "human");
    const json::string* answer = all.size() < 2 ? nullptr : words_of(all[1], "gpt");
    if (!prompt || !answer) continue;
    const size_t prompt_tokens = tokens.count(*prompt), output_tokens = tokens.count(*answer);
    if (prompt_tokens < kTokensMin || output_tokens < kTokensMin || prompt_tokens > kPromptMax ||
        prompt_tokens + output_tokens > kTokensMax)
      continue;
    items.push_back(
        {{}, std::string(*prompt), static_cast<uint32_t>(prompt_tokens), static_cast<uint32_t>(output_tokens)});
  }
  if (items.empty())
    return make_error(ErrorCode::kInvalidArgument,
                      "--sharegpt: {} conversations, expected one that a human begins, gpt answers, with {} to {} "
                      "tokens each",
                      conversations.size(), kTokensMin, kPromptMax);
  return items;
}

}  // namespace llmrt::bench
