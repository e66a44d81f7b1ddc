// Requests that ask for structure: a share with a JSON schema (response_format), a share with tools. And what came of
// them, as far as it can be told without a validator of JSON Schema: fits_roughly() says what is looked at.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/llmrt_bench/load/outcome.h"
#include "tools/llmrt_bench/load/work.h"

namespace llmrt::bench {

struct StructureShares {
  double schemas = 0, tools = 0;  // of the requests; together at most 1
};

// Which requests they are is drawn; each has a schema, or one to four tools, of its own. Every second request with
// tools must call one (tool_choice required). A sentence that asks for it stands before the prompt.
void add_structure(const StructureShares& shares, Draws* draws, std::vector<LoadItem>* items);

// Of answers that came whole; the others are failures.
struct StructureCounts {
  size_t schemas = 0, schemas_parsed = 0, schemas_fit = 0;  // with a schema; JSON; of the schema's types and keys
  size_t tools = 0, tools_required = 0;                     // with tools; that had to call one
  size_t answers_with_calls = 0, required_without_call = 0;
  size_t calls = 0, calls_known = 0, calls_parsed = 0,
         calls_fit = 0;  // by name; JSON; of the parameters' types and keys

  bool is_empty() const { return schemas == 0 && tools == 0; }
};
StructureCounts count_structure(std::span<const LoadItem> items, std::span<const Outcome> outcomes);
std::string structure_text(const StructureCounts& counts);  // lines; empty without structure
boost::json::object structure_json(const StructureCounts& counts);

}  // namespace llmrt::bench
