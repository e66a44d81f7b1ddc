// When who waits may join those that run. Continuous batching is what llmrt is for; the other two are what it is
// compared with.
//
// A batch of a baseline is made when nothing runs: of those that wait, in the order of their classes and of their
// queues, as many as there are rows (all beams of a request with the first). Nobody joins it, and the next one is made
// when all of it have ended. Rows that find no room in the KV pool, or no tokens in the step, start when there is some;
// rows that had to yield come back.
//
// Padding is counted, not computed: rows that have ended cost nothing here, but in a batch of fixed shape each is
// computed until the longest has ended, behind a prompt as long as the longest. So a measured time favours the
// baselines; EngineStats::padded_tokens says what they would have computed on top.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace llmrt {

enum class Batching : uint8_t {
  kContinuous,  // whoever finds room, in any step
  kStatic,      // a batch is made as soon as anybody waits
  kDynamic,     // a batch is made when it is full, or some time (batch_wait_ms) after the first that waits has come
};
inline constexpr size_t kNumBatchings = 3;

constexpr const char* batching_name(Batching batching) {
  constexpr std::array kNames = {"continuous", "static", "dynamic"};
  return kNames[static_cast<size_t>(batching)];
}
constexpr std::optional<Batching> parse_batching(std::string_view name) {
  for (size_t i = 0; i < kNumBatchings; ++i)
    if (name == batching_name(static_cast<Batching>(i))) return static_cast<Batching>(i);
  return std::nullopt;
}

}  // namespace llmrt
