#include "server/signal_watch.h"

#include <csignal>
#include <cstdlib>

namespace llmrt::server {

SignalWatch::SignalWatch(std::shared_ptr<Log> log, std::chrono::seconds drain, std::function<void(int, int)> on_signal)
    : log_(std::move(log)), drain_(drain), on_signal_(std::move(on_signal)) {
  wait_for_signal();
  signal_thread_ = std::thread([this] { io_.run(); });
  guard_thread_ = std::thread([this] { guard(); });
}

SignalWatch::~SignalWatch() {
  io_.stop();
  signal_thread_.join();
  {
    std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  guard_thread_.join();
}

void SignalWatch::wait_for_signal() {
  signals_.async_wait([this](boost::system::error_code error, int number) {
    if (error) return;
    const int num_before = num_signals_++;
    {
      std::lock_guard lock(mutex_);
      const Time end =
          std::chrono::steady_clock::now() + (num_before == 0 ? std::chrono::milliseconds(drain_) : kHurry);
      end_ = end_ ? std::min(*end_, end) : end;
      exit_code_ = 128 + number;
    }
    changed_.notify_all();
    wait_for_signal();
    on_signal_(number, num_before);
  });
}

void SignalWatch::on_hangup(std::function<void()> on_hangup) {
  boost::asio::post(io_, [this, on_hangup = std::move(on_hangup)]() mutable {
    on_hangup_ = std::move(on_hangup);
    hangups_.add(SIGHUP);
    wait_for_hangup();
  });
}

void SignalWatch::wait_for_hangup() {
  hangups_.async_wait([this](boost::system::error_code error, int) {
    if (error) return;
    wait_for_hangup();
    on_hangup_();
  });
}

// Nothing here waits for others: the log is written by a thread that may hang with whoever reads it.
void SignalWatch::guard() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    if (!end_) {
      changed_.wait(lock);
    } else if (std::chrono::steady_clock::now() < *end_) {
      changed_.wait_until(lock, Time(*end_));
    } else {
      std::thread([log = log_, code = exit_code_] {
        log->error("the process ends with code {}: something did not stop in time", code);
      }).detach();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      std::_Exit(exit_code_);
    }
  }
}

}  // namespace llmrt::server
