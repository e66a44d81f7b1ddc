// Engines on several devices that serve one model, as the server sees them: as one. Each has a thread. When one is lost
// its answers go on elsewhere, and its device is opened again after a while, with longer waits each time that this
// fails; so it can come back while the others serve.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/disk/block_exchange.h"
#include "core/engine/engine_thread.h"
#include "core/log/log.h"
#include "core/metrics/saturation.h"
#include "core/router/fleet.h"
#include "core/sample_trace/trace_writer.h"
#include "core/trace/line_file.h"
#include "server/engine_door.h"

namespace llmrt::cli {

class FleetDoor final : public server::EngineDoor {
 public:
  struct Worker {
    std::string device, backend, device_name;
    std::shared_ptr<const DeviceMonitor> monitor;
    std::unique_ptr<Engine> engine;
  };
  struct Config {
    PlacementConfig placement;
    HandOverRule hand_over;                     // no roles: nothing is handed over
    std::shared_ptr<BlockExchange> exchange;    // the engines'; null: none
    std::shared_ptr<LineFile> decisions;        // of the router; null: not recorded
    std::shared_ptr<TraceWriter> sample_trace;  // null: none
    // Opens a worker's device again and loads the model there. On a thread of its own.
    std::function<Result<std::unique_ptr<Engine>>(size_t worker)> reopen;
    double first_wait_s = 10;  // before that; twice as long each time that it fails, kWaitMostS at most
  };
  // `clock` outlives this.
  FleetDoor(std::vector<Worker> workers, Config config, const Clock* clock, std::shared_ptr<Log> log);
  ~FleetDoor() override;

  // Once. `on_end` is called when no engine is left, on the thread of the last one, behind the ends of all requests.
  void start(std::function<void(const Error&)> on_end);
  // Ends all threads and engines; what still calls reaches nobody from now on.
  void close();

  Result<RequestId> submit(Request request) override;
  void cancel(RequestId id, const SentTimes& sent) override;
  void disconnect(RequestId id, const SentTimes& sent) override;
  void set_paused(RequestId id, bool is_paused) override;
  void drained(RequestId id, const SentTimes& sent) override;
  Result<ReadyAdapter> load_adapter(const std::string& path) override;
  std::vector<server::ServedWorker> workers() const override;
  std::optional<ExchangeStats> exchange() const override;
  bool drain(std::string_view worker, bool is_drained) override;
  std::optional<std::string> trouble() const override;
  void stop() override;

 private:
  static constexpr double kWaitMostS = 600;
  // An engine with its thread, which is declared last and so ends first.
  struct Running {
    std::shared_ptr<Engine> engine;
    std::shared_ptr<EngineThread> thread;
  };
  struct Member {
    std::string device, backend, device_name;
    std::shared_ptr<const DeviceMonitor> monitor;
    Running running;  // null engine: lost, and not there again
    double wait_s = 0;
  };
  struct Loss {
    size_t worker;
    TimeNs due_ns;
  };

  void run(size_t worker);  // locked
  void lost(size_t worker);
  void keep();
  bool bring_back(size_t worker);
  void judge_skew();  // locked
  std::vector<Running> all_running() const;

  const Config config_;
  const Clock* const clock_;
  const std::shared_ptr<Log> log_;
  std::function<void(const Error&)> on_end_;
  std::unique_ptr<Fleet> fleet_;

  mutable std::shared_mutex calls_;  // held by calls to the fleet; exclusively by close()
  bool is_closed_ = false;           // guarded by calls_

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<Member> members_;
  std::deque<Loss> losses_;
  WorkerSkew skew_;
  SaturationVerdict skew_verdict_;
  size_t busiest_ = 0;
  bool stops_ = false;

  std::thread keeper_;
};

}  // namespace llmrt::cli
