// Which script each character of Unicode belongs to (UAX 24). Immutable tables.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace llmrt {

struct ScriptName {
  std::string_view code, name;  // "Latn", "Latin"
};
struct ScriptRun {
  char32_t first;
  uint8_t script;  // index of its name
};
std::span<const ScriptName> script_names();
// All code points in order; a run ends where the next begins.
std::span<const ScriptRun> script_runs();

}  // namespace llmrt
