// Devices that are lost while they work, one after the other: every later call on one fails, as after a hang of a GPU.
// One that is opened in its place is a good one.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/backend/forwarding.h"

namespace llmrt::test {

// Whether the device that a backend stands for is lost.
struct Fate {
  std::atomic<bool> is_lost = false;
  std::atomic<uint64_t> num_steps = 0;
};

// Loses them.
class Fates {
 public:
  static Fates& all() {
    static Fates fates;
    return fates;
  }
  // Before the first make(). 0: none is lost.
  void set_every_s(double seconds) { every_s_ = seconds; }
  std::shared_ptr<Fate> make() {
    std::lock_guard lock(mutex_);
    fates_.push_back(std::make_shared<Fate>());
    if (!thread_.joinable() && every_s_ > 0) thread_ = std::thread([this] { run(); });
    return fates_.back();
  }
  ~Fates() {
    stops_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  Fates() = default;
  void run() {
    auto due = std::chrono::steady_clock::now();
    while (!stops_) {
      due += std::chrono::milliseconds(static_cast<int64_t>(every_s_ * 1000));
      while (!stops_ && std::chrono::steady_clock::now() < due)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      lose_one();
    }
  }
  // The one that has been there for longest, if another one has begun to work.
  void lose_one() {
    std::lock_guard lock(mutex_);
    std::erase_if(fates_, [](const std::shared_ptr<Fate>& fate) { return fate.use_count() == 1 || fate->is_lost; });
    const auto works = [](const std::shared_ptr<Fate>& fate) { return fate->num_steps > kStepsBefore; };
    if (std::ranges::count_if(fates_, works) < 2) return;
    (*std::ranges::find_if(fates_, works))->is_lost = true;
  }

  static constexpr uint64_t kStepsBefore = 20;
  double every_s_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Fate>> fates_;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

class LosableBackend final : public ForwardingBackend {
 public:
  LosableBackend(std::unique_ptr<Backend> inner, std::shared_ptr<Fate> fate)
      : ForwardingBackend(std::move(inner)), fate_(std::move(fate)) {}

  Result<Ticket> submit(const StepSubmission& step) override {
    if (fate_->is_lost) return lost();
    ++fate_->num_steps;
    return inner().submit(step);
  }
  Result<StepOutput> wait(Ticket ticket) override {
    Result<StepOutput> output = inner().wait(ticket);
    if (fate_->is_lost) return lost();
    return output;
  }

 private:
  static Error lost() { return make_error(ErrorCode::kDeviceLost, "the test has taken the device away"); }

  const std::shared_ptr<Fate> fate_;
};

}  // namespace llmrt::test
