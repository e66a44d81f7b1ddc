#include "tools/llmrt_bench/load/structured.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/json_reader.h"
#include "tools/llmrt_bench/serving/schemas.h"

namespace llmrt::bench {
namespace {

namespace json = boost::json;

constexpr const char* kAskRecord = "Make up a record and write it as JSON.";
constexpr const char* kAskCall = "Call one of your functions with made-up arguments.";

void put_before(const char* sentence, LoadItem* item) {
  const std::string text = sentence;
  const auto num_words = static_cast<uint32_t>(1 + std::ranges::count(text, ' '));
  item->prompt = text + " " + item->prompt;
  if (item->prompt_tokens > 0) item->prompt_tokens += num_words;
}

void add_tools(Draws* draws, LoadItem* item) {
  constexpr uint32_t kToolsMost = 4;
  const uint32_t count = 1 + draws->below(kToolsMost);
  const auto words = schema_words();
  while (item->tools.size() < count) {
    const auto pick = [&] { return words[draws->below(static_cast<uint32_t>(words.size()))]; };
    const std::string name = fmt::format("get_{}_{}_{}", pick(), pick(), item->tools.size());
    item->tools.push_back(make_tool(name, draws));
  }
  put_before(kAskCall, item);
}

// The parameters of the tool of that name; null: there is none.
const json::value* parameters_of(const json::array& tools, std::string_view name) {
  for (const json::value& tool : tools) {
    const json::object* object = tool.if_object();
    const json::value* function = object ? object->if_contains("function") : nullptr;
    const json::object* told = function ? function->if_object() : nullptr;
    const json::value* known = told ? told->if_contains("name") : nullptr;
    if (!known || !known->is_string() || known->get_string() != name) continue;
    static const json::value kAnything = json::object();
    const json::value* parameters = told->if_contains("parameters");
    return parameters ? parameters : &kAnything;
  }
  return nullptr;
}

void count_calls(const LoadItem& item, const Outcome& outcome, StructureCounts* counts) {
  ++counts->tools;
  const bool must_call = item.tool_choice == json::value("required") || item.tool_choice.is_object();
  counts->tools_required += must_call;
  counts->answers_with_calls += !outcome.answer.calls.empty();
  counts->required_without_call += must_call && outcome.answer.calls.empty();
  for (const CalledTool& call : outcome.answer.calls) {
    ++counts->calls;
    const json::value* parameters = parameters_of(item.tools, call.name);
    counts->calls_known += parameters != nullptr;
    const Result<json::value> arguments = server::read_json(call.arguments);
    if (!arguments) continue;
    ++counts->calls_parsed;
    counts->calls_fit += parameters && fits_roughly(*arguments, *parameters);
  }
}

}  // namespace

void add_structure(const StructureShares& shares, Draws* draws, std::vector<LoadItem>* items) {
  size_t num_with_tools = 0;
  for (LoadItem& item : *items) {
    const double place = draws->unit();
    if (place <= shares.schemas) {
      item.schema = make_schema(draws);
      put_before(kAskRecord, &item);
    } else if (place <= shares.schemas + shares.tools) {
      add_tools(draws, &item);
      item.tool_choice = num_with_tools++ % 2 == 0 ? "required" : "auto";
    }
  }
}

StructureCounts count_structure(std::span<const LoadItem> items, std::span<const Outcome> outcomes) {
  StructureCounts counts;
  for (size_t i = 0; i < std::min(items.size(), outcomes.size()); ++i) {
    if (outcomes[i].failure) continue;
    if (!items[i].tools.empty()) count_calls(items[i], outcomes[i], &counts);
    if (items[i].schema.is_null()) continue;
    ++counts.schemas;
    const Result<json::value> value = server::read_json(outcomes[i].answer.content);
    if (!value) continue;
    ++counts.schemas_parsed;
    counts.schemas_fit += fits_roughly(*value, items[i].schema);
  }
  return counts;
}

std::string structure_text(const StructureCounts& c) {
  std::string out;
  if (c.schemas > 0)
    out += fmt::format("schemas: {} answers, {} parse as JSON, {} have the types and required keys\n", c.schemas,
                       c.schemas_parsed, c.schemas_fit);
  if (c.tools > 0)
    out += fmt::format(
        "tools: {} answers, {} with calls; {} had to call, {} of them did not; {} calls: {} of a tool that was "
        "offered, "
        "{} parse as JSON, {} have the types and required keys\n",
        c.tools, c.answers_with_calls, c.tools_required, c.required_without_call, c.calls, c.calls_known,
        c.calls_parsed, c.calls_fit);
  return out;
}

json::object structure_json(const StructureCounts& c) {
  return {{"schemas", c.schemas},
          {"schemas_parsed", c.schemas_parsed},
          {"schemas_fit_roughly", c.schemas_fit},
          {"tools", c.tools},
          {"tools_required", c.tools_required},
          {"answers_with_calls", c.answers_with_calls},
          {"required_without_call", c.required_without_call},
          {"calls", c.calls},
          {"calls_of_known_tools", c.calls_known},
          {"calls_parsed", c.calls_parsed},
          {"calls_fit_roughly", c.calls_fit}};
}

}  // namespace llmrt::bench
