// The work that one rendering may do. Everything that loops, copies or allocates pays here, so a hostile template, or a
// hostile context for a good one, ends with an error instead of the process's time or memory. One thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <utility>

#include "core/jinja/error.h"
#include "core/jinja/render_limits.h"

namespace llmrt::jinja {

inline constexpr int kNestingMax = 64;     // of blocks, brackets, macro calls, lists and dicts
inline constexpr int kTreeDepthMax = 512;  // of an expression such as a + b + c + ...
inline constexpr size_t kBytesPerStep = 512;
inline constexpr size_t kCharactersPerStep = 32;
inline constexpr size_t kStepsPerCheck = 2048;  // of the clock: some 100 us

class Meter {
 public:
  // `cancelled`, looked at together with the clock, may be nullptr.
  explicit Meter(const RenderLimits& limits = {}, const std::atomic<bool>* cancelled = nullptr);
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  const RenderLimits& limits() const { return limits_; }
  size_t steps() const { return granted_ - left_; }

  void charge(size_t steps) {
    if (steps > left_) {
      charge_and_check(steps);
    } else {
      left_ -= steps;
    }
  }
  // Before `bytes` are copied, hashed, searched or compared.
  void charge_bytes(size_t bytes) { charge(bytes / kBytesPerStep); }
  // Before `bytes` are looked at one character after the other.
  void charge_characters(size_t bytes) { charge(bytes / kCharactersPerStep); }
  // Before a string of `bytes` is made.
  void charge_text(size_t bytes) { charge_growth(0, bytes); }
  // Before a string of `size` bytes grows by `more`.
  void charge_growth(size_t size, size_t more) {
    if (more > limits_.text_bytes || size > limits_.text_bytes - more) {
      fail_text();
    }
    charge_bytes(more);
  }
  // Before `count` pieces of `bytes` each become one string.
  void charge_repeated(size_t bytes, size_t count) {
    if (bytes > 0 && count > limits_.text_bytes / bytes) {
      fail_text();
    }
    charge_text(bytes * count);
  }
  void check_entries(size_t entries) const {
    if (entries > limits_.entries) {
      fail_entries();
    }
  }

  void hold(size_t bytes) {
    if (bytes > limits_.held_bytes - held_) {
      fail_held();
    }
    held_ += bytes;
  }
  void release(size_t bytes) { held_ -= bytes; }
  size_t held() const { return held_; }

  // The meter of the rendering that this thread is in; nullptr outside: what a template's source holds is free.
  static Meter* current() { return current_; }
  class Current {
   public:
    explicit Current(Meter& meter) : outer_(std::exchange(current_, &meter)) {}
    ~Current() { current_ = outer_; }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    Meter* outer_;
  };

 private:
  void charge_and_check(size_t steps);
  [[noreturn]] void fail_text() const;
  [[noreturn]] void fail_entries() const;
  [[noreturn]] void fail_held() const;

  inline static thread_local Meter* current_ = nullptr;
  const RenderLimits limits_;
  const std::atomic<bool>* cancelled_;
  const std::chrono::nanoseconds cpu_begin_;
  size_t granted_ = 0;  // steps up to the next look at the clock
  size_t left_ = 0;     // of granted_
  size_t held_ = 0;
};

// The bytes that one value holds, given back with it. Not copied along: a copy pays for itself.
class Held {
 public:
  Held() = default;
  explicit Held(size_t bytes) { grow(bytes); }
  Held(Held&& other) noexcept : meter_(std::exchange(other.meter_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Held& operator=(Held&& other) noexcept {
    std::swap(meter_, other.meter_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Held() {
    if (meter_) {
      meter_->release(bytes_);
    }
  }
  void grow(size_t bytes) {
    if (meter_ || (meter_ = Meter::current())) {
      meter_->hold(bytes);
      bytes_ += bytes;
    }
  }

 private:
  Meter* meter_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace llmrt::jinja
