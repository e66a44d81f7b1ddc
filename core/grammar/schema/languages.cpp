#include "core/grammar/schema/languages.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

namespace llmrt {
namespace {

constexpr uint32_t kAliveFuel = 1000;

// What may follow, for each class of bytes that leads somewhere: the expression and the number of bytes.
std::vector<std::pair<RegexId, uint32_t>> steps(RegexPool* pool, RegexId regex) {
  const RegexPool::ByteClasses classes = pool->byte_classes(regex);
  std::vector<uint32_t> sizes(classes.representatives.size(), 0);
  for (const uint8_t of_byte : classes.class_of) ++sizes[of_byte];
  std::vector<std::pair<RegexId, uint32_t>> out;
  for (size_t c = 0; c < sizes.size(); ++c) {
    const RegexId next = pool->after(regex, classes.representatives[c]);
    if (next == RegexPool::kNothing || pool->has_text(next, kAliveFuel) == RegexPool::Answer::kNo) continue;
    out.emplace_back(next, sizes[c]);
  }
  return out;
}

}  // namespace

std::optional<std::vector<std::string>> list_texts(RegexPool* pool, RegexId regex, size_t max) {
  constexpr size_t kLengthMax = 1024;
  constexpr uint32_t kFuel = 1000;
  std::vector<std::pair<std::string, RegexId>> open = {{"", regex}};
  std::vector<std::string> out;
  for (size_t length = 0; !open.empty(); ++length) {
    std::vector<std::pair<std::string, RegexId>> next;
    for (const auto& [text, state] : open) {
      if (pool->accepts_empty(state)) out.push_back(text);
      for (int byte = 0; byte < 256; ++byte) {
        const RegexId after = pool->after(state, static_cast<uint8_t>(byte));
        if (after == RegexPool::kNothing || pool->has_text(after, kFuel) == RegexPool::Answer::kNo) continue;
        next.emplace_back(text + static_cast<char>(byte), after);
        if (next.size() > max) return std::nullopt;
      }
    }
    if (out.size() + next.size() > max || length > kLengthMax || pool->failed()) return std::nullopt;
    open = std::move(next);
  }
  return out;
}

// Layer by layer: the ways to come to each state with texts of one length.
uint32_t count_texts(RegexPool* pool, RegexId regex, uint32_t most) {
  constexpr size_t kLengthMax = 4096;
  constexpr size_t kWorkMax = 20'000;
  if (regex == RegexPool::kNothing || pool->has_text(regex, kAliveFuel) == RegexPool::Answer::kNo) return 0;
  std::map<RegexId, uint32_t> layer = {{regex, 1}};
  uint64_t found = 0;
  size_t work = 0;
  for (size_t length = 0; length <= kLengthMax && !layer.empty(); ++length) {
    std::map<RegexId, uint32_t> next;
    for (const auto& [state, ways] : layer) {
      if (pool->accepts_empty(state)) found += ways;
      if (found >= most) return most;
      if (++work > kWorkMax || pool->failed()) return static_cast<uint32_t>(found);
      for (const auto& [to, bytes] : steps(pool, state)) {
        uint32_t& reached = next[to];
        reached = static_cast<uint32_t>(std::min<uint64_t>(most, reached + uint64_t{ways} * bytes));
      }
    }
    layer = std::move(next);
  }
  return static_cast<uint32_t>(found);
}

bool is_never_stuck(RegexPool* pool, RegexId regex) {
  constexpr size_t kStatesMax = 400;
  std::unordered_map<RegexId, uint32_t> index = {{regex, 0}};
  std::vector<RegexId> states = {regex};
  std::vector<std::vector<uint32_t>> from;  // states that lead to each
  std::vector<uint32_t> num_next;
  for (size_t i = 0; i < states.size(); ++i) {
    if (states.size() > kStatesMax || pool->failed()) return false;
    from.resize(states.size());
    num_next.push_back(0);
    for (const auto& [to, bytes] : steps(pool, states[i])) {
      const auto [it, is_new] = index.try_emplace(to, static_cast<uint32_t>(states.size()));
      if (is_new) states.push_back(to);
      from.resize(states.size());
      from[it->second].push_back(static_cast<uint32_t>(i));
      ++num_next[i];
    }
  }
  // States from which no loop can be reached have few texts. All right where it is the empty text alone.
  std::vector<uint32_t> finite;
  for (uint32_t i = 0; i < states.size(); ++i) {
    if (num_next[i] == 0) finite.push_back(i);
  }
  while (!finite.empty()) {
    const uint32_t state = finite.back();
    finite.pop_back();
    if (states[state] != RegexPool::kEmpty) return false;
    for (const uint32_t before : from[state]) {
      if (--num_next[before] == 0) finite.push_back(before);
    }
  }
  return true;
}

}  // namespace llmrt
