#include "core/jinja/meter.h"

#include <algorithm>
#include <cstdint>

#include "core/platform/thread_clock.h"

namespace llmrt::jinja {
namespace {

std::chrono::nanoseconds cpu_time() {
  return std::chrono::nanoseconds(static_cast<int64_t>(1e6 * thread_cpu_ms()));
}

// 1000000 as 1,000,000.
std::string grouped(size_t number) {
  std::string digits = std::to_string(number);
  for (size_t pos = digits.size(); pos > 3; pos -= 3) {
    digits.insert(pos - 3, 1, ',');
  }
  return digits;
}

}  // namespace

std::string excerpt(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) {
    return std::string(text);
  }
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return std::string(text.substr(0, end)) + "...";
}

Meter::Meter(const RenderLimits& limits, const std::atomic<bool>* cancelled)
    : limits_(limits), cancelled_(cancelled), cpu_begin_(cpu_time()) {}

void Meter::charge_and_check(size_t steps) {
  const size_t used = granted_ - left_;
  if (steps > limits_.steps - std::min(used, limits_.steps)) {
    fail("expected at most {} steps, found more", grouped(limits_.steps));
  }
  granted_ = std::min(used + steps + kStepsPerCheck, limits_.steps);
  left_ = granted_ - used - steps;
  if (cancelled_ && cancelled_->load(std::memory_order_relaxed)) {
    throw TemplateError{ErrorCode::kCancelled, "the rendering was cancelled", {}};
  }
  if (cpu_time() - cpu_begin_ > limits_.cpu) {
    fail("expected at most {} ms of CPU time, found more", grouped(static_cast<size_t>(limits_.cpu.count())));
  }
}

void Meter::fail_text() const {
  fail("expected at most {} bytes of text, found more", grouped(limits_.text_bytes));
}

void Meter::fail_entries() const {
  fail("expected at most {} entries in a list or dict, found more", grouped(limits_.entries));
}

void Meter::fail_held() const {
  fail("expected at most {} bytes of memory held by values, found more", grouped(limits_.held_bytes));
}

}  // namespace llmrt::jinja
