// Answers the lines of the store's batches in the server itself, at the class batch, beside what clients ask for. One
// thread keeps the books: it checks new batches, begins them, ends them; threads of lower priority each take a line, in
// turns of the batches that run, wait for its answer and write it. What is written is on the disk: a batch goes on
// where a stop or a crash left it. All methods are thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/log/log.h"
#include "core/router/model_host.h"
#include "server/client_memory.h"
#include "server/file_store.h"
#include "server/key_ring.h"

namespace llmrt::server {

class BatchRunner {
 public:
  static constexpr uint64_t kLinesMax = 50'000;                 // of a batch
  static constexpr size_t kProblemsMax = 100;                   // told of a batch that is refused
  static constexpr size_t kActiveMax = 8, kActiveOfKeyMax = 4;  // batches whose lines are being answered
  static constexpr int64_t kWindowS = 24 * 3600;

  struct Settings {
    uint32_t in_flight = 64;  // lines in the engine at once
    bool strict_fields = false;
  };
  // All of them outlive this.
  struct Parts {
    FileStore* store;
    ModelHost* models;
    KeyRing* keys;
    std::shared_ptr<ClientMemory> memory;
    std::shared_ptr<Log> log;
  };

  BatchRunner(Parts parts, Settings settings);
  ~BatchRunner();  // stop()
  BatchRunner(const BatchRunner&) = delete;

  // A batch was made or is to be cancelled.
  void wake();
  // No line is begun from now on; those that run may end.
  void drain();
  bool is_busy() const;  // a line is being answered
  // Those that run end soon, without an answer.
  void cancel();
  // cancel(), and waits for the threads.
  void stop();

 private:
  struct Active;

  void keep_books();
  void visit(const OpenBatch& batch);
  void check_lines(const OpenBatch& open);
  void begin(const OpenBatch& open);
  Status open_files(const StoredBatch& record, Active* active) const;
  void end_soon(Active& active, BatchState how, LineProblem problem = {});
  void finish(Active& active);
  Status write_rest(Active& active) const;
  Result<bool> keep_answers(const Active& active, GrowingFile& data, const std::string& id) const;
  void fail(const OpenBatch& open, LineProblem problem);
  size_t num_active_of(const std::string& owner) const;  // locked

  void work();
  std::shared_ptr<Active> next_turn();
  void answer_line(Active& active, const BatchLine& line, size_t num_bytes);
  bool pause(const Active& active, int seconds);  // false: do not go on
  void write(Active& active, const BatchLine& line, const OfflineAnswer& answer);

  const Parts parts_;
  const Settings settings_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<Active>> active_;  // by id
  std::string last_turn_;                                  // the id of the batch that had it
  bool is_woken_ = true;
  std::atomic<bool> draining_ = false, stopping_ = false;
  std::vector<std::thread> workers_;
  std::thread clerk_;
};

}  // namespace llmrt::server
