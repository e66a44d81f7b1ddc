// The seeded simulation of the disk tier: disk_sim [--seeds N] [--first-seed S]. A run is some engines in a row over
// the same files, each of one of two models and ended as by a crash, with a disk that is slow, fails, is full, and
// loses bits between two of them. What every client gets is what it gets alone, and books balance after every step.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>

#include "core/disk/block_record.h"
#include "core/engine/disk_source.h"
#include "core/engine/engine.h"
#include "core/engine/pool_shapes.h"
#include "core/kv/prefix_digests.h"
#include "tests/fakes/memory_folder.h"
#include "tests/fakes/sim_clock.h"
#include "tests/sim/client.h"
#include "tests/sim/seeds.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

constexpr TimeNs kMs = 1'000'000;
constexpr uint32_t kTicksMax = 20000;
constexpr uint32_t kOtherModel = 1000;  // FakeBackendConfig::model

struct Coverage {
  uint64_t num_lives = 0, num_requests = 0, num_tokens = 0, disk_hits = 0, host_hits = 0;
  DiskStats disk;

  void add(const EngineStats& stats) {
    disk_hits += stats.prefix_disk_hits;
    host_hits += stats.prefix_host_hits;
    disk.blocks_written += stats.disk.blocks_written;
    disk.blocks_read += stats.disk.blocks_read;
    disk.blocks_evicted += stats.disk.blocks_evicted;
    disk.dropped_disk += stats.disk.dropped_disk;
    disk.bad_corrupt += stats.disk.bad_corrupt;
    disk.bad_truncated += stats.disk.bad_truncated;
    disk.bad_foreign += stats.disk.bad_foreign;
    disk.bad_tokens += stats.disk.bad_tokens;
    disk.bad_read += stats.disk.bad_read;
  }
  bool reached_everything() const {
    return disk_hits > 0 && host_hits > 0 && disk.blocks_evicted > 0 && disk.dropped_disk > 0 && disk.bad_corrupt > 0 &&
           disk.bad_truncated > 0 && disk.bad_foreign > 0 && disk.bad_tokens > 0 && disk.bad_read > 0;
  }
  void print() const {
    fmt::print("{} engines, {} requests, {} tokens; prompt tokens from the disk {}, from the host {}\n", num_lives,
               num_requests, num_tokens, disk_hits, host_hits);
    fmt::print("  blocks: {} written, {} read, {} evicted, {} dropped\n", disk.blocks_written, disk.blocks_read,
               disk.blocks_evicted, disk.dropped_disk);
    fmt::print("  unusable: {} corrupt, {} truncated, {} foreign, {} of other tokens, {} not read\n", disk.bad_corrupt,
               disk.bad_truncated, disk.bad_foreign, disk.bad_tokens, disk.bad_read);
  }
};

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint32_t between(uint32_t low, uint32_t high) { return low + static_cast<uint32_t>(random_() % (high - low + 1)); }
  bool one_in(uint32_t n) { return random_() % n == 0; }
  uint32_t one_of(std::initializer_list<uint32_t> values) { return *(values.begin() + random_() % values.size()); }

 private:
  std::mt19937_64 random_;
};

// Both models have the same folder: what keeps them apart is what the files say.
class Disk final : public DiskSource {
 public:
  explicit Disk(Dice* dice) : dice_(*dice) {}

  Result<std::unique_ptr<Folder>> open(const std::string&) override {
    pace_ = dice_.one_of({1, 3, 10});
    return std::unique_ptr<Folder>(std::make_unique<MemoryFolder>(files));
  }
  uint32_t next_jobs() override {
    if (dice_.one_in(500)) files->fail_writes = dice_.between(1, 2);
    if (dice_.one_in(200)) files->fail_reads = dice_.between(1, 2);
    return dice_.one_in(pace_) ? dice_.between(0, 6) : 0;
  }

  // Between two lives.
  void spoil() {
    files->fail_writes = files->fail_reads = 0;
    files->bytes_max = dice_.one_in(8) ? files->num_bytes() + dice_.between(0, 3000) : ~uint64_t{0};
    for (auto& [name, file] : files->files) {
      for (uint32_t i = dice_.one_in(3) ? dice_.between(1, 4) : 0; i > 0 && !file.bytes.empty(); --i)
        file.bytes[dice_.between(0, static_cast<uint32_t>(file.bytes.size()) - 1)] ^=
            static_cast<std::byte>(1u << dice_.between(0, 7));
      if (dice_.one_in(4)) lie(file.bytes);
      if (dice_.one_in(8)) file.bytes.resize(dice_.between(0, static_cast<uint32_t>(file.bytes.size())));
    }
  }

  std::shared_ptr<MemoryFiles> files = std::make_shared<MemoryFiles>();

 private:
  // Two neighbours of one size get each other's body, and all checksums are right.
  void lie(std::vector<std::byte>& bytes) {
    uint64_t last = 0, last_size = 0;
    RecordHeader last_header;
    for (uint64_t at = kSegmentHeaderBytes; at + kRecordHeaderBytes <= bytes.size();) {
      RecordHeader header;
      std::memcpy(&header, bytes.data() + at, sizeof header);
      const uint64_t size = kRecordHeaderBytes + uint64_t{header.num_tokens} * 4 + header.payload_bytes;
      if (header.num_tokens > 64 || header.payload_bytes > 1 << 20 || at + size > bytes.size()) return;
      if (last != 0 && size == last_size && header.is_live() && dice_.one_in(2)) {
        std::swap_ranges(bytes.begin() + static_cast<ptrdiff_t>(at + kRecordHeaderBytes),
                         bytes.begin() + static_cast<ptrdiff_t>(at + size),
                         bytes.begin() + static_cast<ptrdiff_t>(last + kRecordHeaderBytes));
        seal_record(header, std::span(bytes).subspan(at, size));
        seal_record(last_header, std::span(bytes).subspan(last, size));
        return;
      }
      last = header.is_live() ? at : 0;
      last_size = size;
      last_header = header;
      at += size;
    }
  }

  Dice& dice_;
  uint32_t pace_ = 1;
};

class Run {
 public:
  Run(uint64_t seed, bool overlap, Coverage* coverage)
      : dice_(seed), disk_(std::make_shared<Disk>(&dice_)), overlap_(overlap), coverage_(*coverage) {
    for (std::vector<int32_t>& text : texts_)
      for (int i = 0; i < 260; ++i) text.push_back(static_cast<int32_t>(dice_.between(0, kFakeVocab - 1)));
    is_hybrid_ = dice_.one_in(4);
    block_tokens_ = dice_.one_of({16, 16, 32});
    poison_ = dice_.one_in(4) ? 400 : 0;
    disk_blocks_ = dice_.one_of({12, 40, 400});
  }

  std::string run() {
    for (uint32_t life = dice_.between(2, 4); life-- > 0;) {
      ++coverage_.num_lives;
      model_ = dice_.one_in(4) ? kOtherModel : 0;
      std::string wrong = live();
      if (engine_) coverage_.add(engine_->stats());
      engine_.reset();
      for (auto& client : clients_) of_model_[model_ != 0].push_back(std::move(client));
      clients_.clear();
      if (!wrong.empty()) return wrong;
      disk_->spoil();
    }
    return "";
  }

 private:
  EngineConfig config() {
    EngineConfig config;
    config.context_max = 400;
    config.sequences_max = dice_.one_of({2, 4, 8});
    config.step_tokens_max = dice_.one_of({16, 64, 256});
    config.sample_rows_max = 32;
    config.chunk_tokens = dice_.one_of({7, 16, 32});
    config.chunk_tokens = std::min(config.chunk_tokens, config.step_tokens_max);
    config.block_tokens = block_tokens_;
    config.state_interval = 64;
    config.kv_tokens = dice_.between(26, 60) * 16;
    config.reserve_output_tokens = dice_.one_of({0, 16});
    config.watermark = 0;
    config.prefix_cache = dice_.one_in(3) ? PrefixCacheKind::kHashed : PrefixCacheKind::kRadix;
    const OnExhaustion policies[] = {OnExhaustion::kPreempt, OnExhaustion::kSwap, OnExhaustion::kRecompute};
    config.on_exhaustion = policies[dice_.between(0, 2)];
    config.audit_steps = 1;
    config.overlap = overlap_;
    const PoolShapes shapes(model()->config, config);
    if (config.on_exhaustion == OnExhaustion::kSwap || !dice_.one_in(3))
      config.kv_host_bytes = shapes.bytes_of(dice_.one_of({2, 6, 20, 60}));
    config.disk.folder = "disk";
    config.disk.bytes_max = disk_blocks_ * 1800;
    config.disk.source = disk_;
    return config;
  }

  std::shared_ptr<const Model> model() const {
    auto model = std::make_shared<Model>(*make_fake_model(is_hybrid_));
    model->config.architecture = fmt::format("fake {}", model_);
    return model;
  }

  // Those of the lives before stay: clients point to them.
  void plan_clients() {
    first_plan_ = plans_.size();
    uint32_t tick = 0;
    for (uint32_t i = dice_.between(3, 12); i-- > 0;) {
      ClientPlan& plan = plans_.emplace_back();
      Request& request = plan.request;
      const std::vector<int32_t>& text = texts_[dice_.between(0, texts_.size() - 1)];
      request.prompt.assign(text.begin(), text.begin() + dice_.between(1, static_cast<uint32_t>(text.size())));
      for (uint32_t k = dice_.one_of({0, 0, 3, 20}); k-- > 0;)
        request.prompt.push_back(static_cast<int32_t>(dice_.between(0, kFakeVocab - 1)));
      request.max_tokens = dice_.between(1, 40);
      request.sampling.temperature = static_cast<float>(dice_.between(0, 1));
      request.sampling.seed = dice_.between(0, 2);
      request.stop.ignore_eos = dice_.one_in(2);
      if (dice_.one_in(6)) request.cache_salt = "salt";
      if (dice_.one_in(8)) request.adapter_id = 1;
      if (dice_.one_in(6)) request.n = dice_.between(2, 3);
      if (dice_.one_in(8)) request.batch_invariant = true;
      if (dice_.one_in(8)) plan.cancel_after_ticks = static_cast<int>(dice_.between(0, 30));
      tick += dice_.one_of({0, 0, 5, 40});
      plan.arrival_tick = tick;
    }
  }

  // All of them arrive by and by; a crash may come at any time.
  std::string live() {
    FakeBackendConfig backend;
    backend.poison = poison_;
    backend.model = model_;
    if (is_hybrid_) backend.groups = kFakeHybrid;
    auto engine = Engine::create(config(), model(), tokenizer_, std::make_unique<FakeBackend>(backend), &clock_, {});
    if (!engine) return "the engine did not start: " + engine.error().message;
    engine_ = std::move(*engine);
    engine_->listen(std::make_shared<PrefixDigests>());  // stops the process when what is told does not balance
    plan_clients();
    for (size_t i = first_plan_; i < plans_.size(); ++i) {
      const ClientPlan& plan = plans_[i];
      Request alone = plan.request;
      alone.n = 1;
      alone.adapter_id += model_;
      for (uint32_t branch = 0; branch < plan.request.n; ++branch, ++alone.sampling.branch) {
        auto& client = clients_.emplace_back(std::make_unique<Client>());
        client->plan = &plan;
        client->branch = branch;
        client->engine = engine_.get();
        client->tokenizer = tokenizer_.get();
        client->alone = answer_alone(alone, *tokenizer_, poison_, backend.groups);
        client->begin();
      }
    }
    const uint32_t crash = dice_.one_in(4) ? dice_.between(1, 200) : kTicksMax;
    uint32_t quiet = 0;
    for (uint32_t tick = 0; tick < crash; ++tick) {
      std::string wrong = this->tick(tick);
      if (!wrong.empty()) return fmt::format("tick {}: {}", tick, wrong);
      quiet = all_ended() ? quiet + 1 : 0;
      if (quiet == 60) return all_done();
    }
    return crash < kTicksMax ? "" : "stuck";
  }

  std::string tick(uint32_t now) {
    for (size_t i = 0; i < clients_.size(); ++i) {
      Client& client = *clients_[i];
      if (!client.arrived && client.plan->arrival_tick <= now) arrive(i, now);
      if (client.arrived && static_cast<int>(now - client.arrived_at) == client.plan->cancel_after_ticks)
        client.cancel();
    }
    if (const Result<bool> worked = engine_->tick(); !worked) return worked.error().message;
    clock_.advance_ns(kMs * dice_.between(0, 3));
    for (const auto& client : clients_) {
      if (!client->arrived || client->refused) continue;
      const auto tell = [&](const std::string& what) { return fmt::format("request {}: {}", client->id, what); };
      if (!client->wrong.empty()) return tell(client->wrong);
      if (!client->ended() || client->drained) continue;
      client->drained = true;
      engine_->drained(client->id);
      coverage_.num_tokens += client->got.tokens.size();
      std::string wrong = client->check_end(clock_.now_ns(), engine_->memory_plan());
      if (wrong.empty()) wrong = check_hits(*client);
      if (!wrong.empty()) return tell(wrong);
    }
    return "";
  }

  // What others of this life know, or of any life of the model if it may be on the disk.
  std::string check_hits(const Client& client) {
    const std::string wrong = check_cached(*engine_, client, clients_);
    const bool may_last = client.plan->request.cache_salt.empty() && client.plan->request.adapter_id == 0;
    if (wrong.empty() || !may_last) return wrong;
    return check_cached(*engine_, client, of_model_[model_ != 0]);
  }

  void arrive(size_t first, uint32_t now) {
    ++coverage_.num_requests;
    Request request = clients_[first]->plan->request;
    auto sink = std::make_shared<Sink>();
    for (uint32_t branch = 0; branch < request.n; ++branch) sink->branches.push_back(clients_[first + branch].get());
    request.sink = sink;
    const Result<RequestId> id = engine_->submit(std::move(request));
    for (Client* client : sink->branches) {
      client->arrived = true;
      client->arrived_at = now;
      client->refused = !id.ok();
      if (id) client->id = *id + client->branch;
    }
  }

  bool all_ended() const {
    return std::ranges::all_of(clients_, [](const auto& client) { return client->refused || client->ended(); });
  }

  std::string all_done() const {
    const EngineStats stats = engine_->stats();
    if (stats.num_running + stats.num_waiting != 0) return "something still runs or waits";
    if (stats.blocks_free != stats.blocks_total) return "blocks are held";
    if (disk_->files->num_bytes() > engine_->config().disk.bytes_max && stats.disk.blocks_written > 0)
      return fmt::format("{} bytes of files, {} at most", disk_->files->num_bytes(), engine_->config().disk.bytes_max);
    return "";
  }

  Dice dice_;
  std::shared_ptr<Disk> disk_;
  const bool overlap_;
  Coverage& coverage_;
  bool is_hybrid_ = false;
  uint32_t block_tokens_ = 16, poison_ = 0, model_ = 0;
  uint64_t disk_blocks_ = 0;
  std::array<std::vector<int32_t>, 3> texts_;
  SimClock clock_;
  std::shared_ptr<const Tokenizer> tokenizer_ = make_fake_tokenizer();
  std::unique_ptr<Engine> engine_;
  std::deque<ClientPlan> plans_;
  size_t first_plan_ = 0;  // of this life
  std::vector<std::unique_ptr<Client>> clients_;
  std::array<std::vector<std::unique_ptr<Client>>, 2> of_model_;  // of lives before
};

}  // namespace

int main(int argc, char** argv) {
  Coverage coverage;
  const Seeds seeds = parse_seeds(argc, argv);
  const bool passed = run_seeds("disk_sim", seeds, [&](uint64_t seed, bool overlap) {
    const std::string wrong = Run(seed, overlap, &coverage).run();
    return wrong.empty() ? "" : fmt::format("seed {}, {} loop, {}", seed, overlap ? "overlapped" : "plain", wrong);
  });
  if (!passed) return 1;
  coverage.print();
  return seeds.reached(coverage.reached_everything());
}
