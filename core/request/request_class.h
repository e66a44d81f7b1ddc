// What kind of work a request is: what the scheduler may do to it for the sake of others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace llmrt {

enum class RequestClass : uint8_t {
  kInteractive,  // somebody reads along
  kAgent,        // a program waits for the answer
  kBatch,        // many, by some time
  kEvaluation,   // as batch; its numbers do not depend on what runs beside it
  kBackground,   // what is left over, but within an age bound
};
inline constexpr size_t kNumRequestClasses = 5;

constexpr const char* request_class_name(RequestClass request_class) {
  constexpr std::array kNames = {"interactive", "agent", "batch", "evaluation", "background"};
  return kNames[static_cast<size_t>(request_class)];
}
constexpr std::optional<RequestClass> parse_request_class(std::string_view name) {
  for (size_t i = 0; i < kNumRequestClasses; ++i)
    if (name == request_class_name(static_cast<RequestClass>(i))) return static_cast<RequestClass>(i);
  return std::nullopt;
}

// What requests of one class, or of several, share with each other and against other lanes (ClassShares). Evaluation is
// scheduled as batch. From the highest to the lowest.
enum class Lane : uint8_t { kInteractive, kAgent, kBatch, kBackground };  // from the highest to the lowest
inline constexpr size_t kNumLanes = 4;
inline constexpr std::array kLanes = {Lane::kInteractive, Lane::kAgent, Lane::kBatch, Lane::kBackground};

constexpr Lane lane_of(RequestClass request_class) {
  switch (request_class) {
    case RequestClass::kInteractive:
      return Lane::kInteractive;
    case RequestClass::kAgent:
      return Lane::kAgent;
    case RequestClass::kBatch:
    case RequestClass::kEvaluation:
      return Lane::kBatch;
    case RequestClass::kBackground:
      return Lane::kBackground;
  }
  return Lane::kBackground;
}

}  // namespace llmrt
