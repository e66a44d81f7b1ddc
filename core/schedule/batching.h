// When waiting requests may join those that run. Continuous batching is what llmrt is for; the other two are baselines
// to compare it with.
//
// A batch of a baseline is made when nothing runs. It takes waiting requests in the order of their classes and queues,
// as many as there are rows (all beams of a request with the first). No request joins it later, and the next batch is
// made when all of this one have ended. A row that finds no room in the KV pool, or no tokens in the step, starts when
// there is some; a row that had to yield comes back.
//
// Padding is counted, not computed: a row that has ended costs nothing here, but in a batch of fixed shape each row is
// computed until the longest has ended, behind a prompt as long as the longest. So a measured time favours the
// baselines; EngineStats::padded_tokens says what they would have computed on top.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace llmrt {

enum class Batching : uint8_t {
  kContinuous,  // a request joins in any step in which it finds room
  kStatic,      // a batch is made as soon as a request waits
  kDynamic,     // a batch is made when it is full, or batch_wait_ms after the first waiting request has come
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
