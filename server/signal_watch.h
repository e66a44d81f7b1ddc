// SIGINT and SIGTERM for a program that ends in order, on threads of its own: whatever else is busy or hangs, a second
// signal ends the process. SIGHUP, where it is asked for, ends nothing.
#pragma once

#include <boost/asio.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "core/log/log.h"

namespace llmrt::server {

class SignalWatch {
 public:
  // `on_signal` is called with the signal's number and how many came before it. From the first one on the process has
  // `drain` time, from the second one on kHurry; then it ends with code 128 + number. The destructor ends the watch.
  SignalWatch(std::shared_ptr<Log> log, std::chrono::seconds drain, std::function<void(int, int)> on_signal);
  ~SignalWatch();
  static constexpr std::chrono::milliseconds kHurry{1500};
  // To be called once: from now on SIGHUP calls it, on the watch's own thread.
  void on_hangup(std::function<void()> on_hangup);

 private:
  using Time = std::chrono::steady_clock::time_point;
  void wait_for_signal();
  void wait_for_hangup();
  void guard();

  std::shared_ptr<Log> log_;
  const std::chrono::seconds drain_;
  std::function<void(int, int)> on_signal_;
  boost::asio::io_context io_;
  boost::asio::signal_set signals_{io_, SIGINT, SIGTERM};
  boost::asio::signal_set hangups_{io_};
  std::function<void()> on_hangup_;
  int num_signals_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Time> end_;  // of the process
  int exit_code_ = 0;
  bool is_over_ = false;
  std::thread signal_thread_, guard_thread_;
};

}  // namespace llmrt::server
