// What becomes of the fields of a body that the endpoint itself does not read. Three tiers: names that would shape the
// answer and are not served are refused, with what to use instead; names that change nothing here pass; the rest pass
// too, but are told in a header, as nobody knows what they were to do. A name that looks like a slip of a known one is
// refused. docs/api.md has the rule.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/fields.h"

namespace llmrt::server {

enum class Endpoint : uint8_t {
  kChat = 1,
  kCompletion = 2,
  kTokenize = 4,
  kInfill = 8,
  kResponses = 16,
  kMessages = 32,  // these are judged as the chats that they become
  kOllamaChat = 64,
  kOllamaGenerate = 128
};

enum class Tier : uint8_t {
  kRefused,   // at any value but the neutral ones
  kHarmless,  // any value passes
  kNoted      // any value passes; other than neutral ones it is named in the header
};

// The values of a field, beside null, at which it asks for nothing.
enum class Neutral : uint8_t { kNothing, kFalse, kTrue, kZero, kOne, kMinusOne, kEmpty, kOff };

struct KnownField {
  std::string_view name;
  Tier tier;
  Neutral neutral = Neutral::kNothing;
  std::string_view instead = {};  // "use max_tokens"; of refused ones
  uint8_t endpoints = 15;         // a set of Endpoint; elsewhere the name is unknown
};

std::span<const KnownField> known_fields();
bool is_neutral(Neutral neutral, const boost::json::value& value);

inline constexpr size_t kFieldsMax = 1024;                // of a body
inline constexpr size_t kIdleFieldBytesMax = 64 << 10;    // of a field that has no effect
inline constexpr size_t kIdleFieldsBytesMax = 256 << 10;  // of all of them
inline constexpr const char* kIgnoredHeader = "x-llmrt-ignored";
inline constexpr size_t kIgnoredNamesMax = 8, kIgnoredNameBytesMax = 40;

// What a value takes at least as text, counted until it passes `most`.
size_t text_bytes_least(const boost::json::value& value, size_t most);

// Whether they differ by one letter left out, put in, exchanged for another or for its neighbour, or by case and
// underscores alone.
bool looks_like(std::string_view name, std::string_view known);

// Judges what `fields` has not read; refused ones make it fail. Names for the header are appended to `ignored`, at most
// kIgnoredNamesMax, as they may stand there. `strict`: what would be named there is refused.
void judge_rest(Fields& fields, Endpoint endpoint, bool strict, std::vector<std::string>& ignored);
// Adds a name for the header, cleaned, unless it is there already or the list is full.
void add_ignored(std::vector<std::string>& ignored, std::string_view name);
std::string join_ignored(const std::vector<std::string>& ignored);

}  // namespace llmrt::server
