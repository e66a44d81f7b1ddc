// Threads of a block as fibers of one host thread.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include <ucontext.h>

#include "backends/cuda/tf32.cuh"
#include "backends/cuda/warpgroup.cuh"
#include "cuda_runtime.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr unsigned kWarp = 32, kWarpgroup = 128;

struct Copy {
  void* to;
  const void* from;
  unsigned bytes;
  bool valid;
};

// Where a fiber goes on: what __builtin_setjmp keeps.
using Place = void* [5];

// Runs the threads of one number in all blocks, one after the other, on one stack.
struct Fiber {
  Place place;
  bool started = false, done = false;
  std::unique_ptr<char[]> stack;
  std::unique_ptr<ucontext_t> context;
  dim3 index;  // threadIdx
  // It need not run while *waits_for & mask is the value.
  const uint64_t* waits_for = nullptr;
  uint64_t mask = 0, value = 0;
  std::vector<Copy> open;                // not yet committed
  std::deque<std::vector<Copy>> groups;  // committed, oldest first

  bool must_wait() const { return waits_for && (*waits_for & mask) == value; }
};

// Where threads wait for each other.
struct Meeting {
  std::vector<void*> given;
  unsigned arrived = 0;
  uint64_t generation = 0;
};
void prepare(std::vector<Meeting>* meetings, size_t count) {
  meetings->resize(count);
  for (Meeting& meeting : *meetings) meeting.arrived = 0;
}

// Blocks of a cluster run side by side; all others one after the other.
struct Block {
  dim3 index;
  unsigned num_live = 0;
  std::vector<Fiber> fibers;
  Meeting everyone;
  std::vector<Meeting> warps, warpgroups, named;
  std::vector<unsigned char> shared;
  dim3 threads{0, 0, 0};  // that the fibers' indices are for
};
const std::function<void()>* kernel_thread;
unsigned num_threads;        // of a block
std::vector<Block> cluster;  // the blocks that run now
Meeting cluster_meeting;
unsigned current_block, current_thread;
uint64_t progress;
#if defined(__SANITIZE_ADDRESS__)
ucontext_t scheduler;
#else
Place scheduler_place;
#endif
std::mutex device;  // one kernel at a time

Block& block() {
  return cluster[current_block];
}
Fiber& fiber() {
  return block().fibers[current_thread];
}

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "CUDA emulator: %s: block (%u, %u, %u), thread %u\n", what, blockIdx.x, blockIdx.y, blockIdx.z,
               current_thread);
  std::abort();
}

void enter(unsigned b, unsigned thread) {
  current_block = b;
  current_thread = thread;
  blockIdx = block().index;
  threadIdx = fiber().index;
}

// The order of threads in a block.
bool wants_reverse() {
  const char* order = std::getenv("LLMRT_EMULATOR_ORDER");
  return order && std::string_view(order) == "reverse";
}
const bool runs_reverse = wants_reverse();
unsigned nth_of(unsigned n, unsigned count) {
  return runs_reverse ? count - 1 - n : n;
}
#if !defined(__SANITIZE_ADDRESS__)
// False when no thread of the block behind the current one could go on, or one must be started first.
bool enter_next() {
  Fiber* const fibers = block().fibers.data();
  for (unsigned n = nth_of(current_thread, num_threads) + 1; n < num_threads; ++n) {
    const Fiber& next = fibers[nth_of(n, num_threads)];
    if (next.done || next.must_wait()) continue;
    if (!next.started) return false;
    enter(current_block, nth_of(n, num_threads));
    return true;
  }
  return false;
}
#endif

// GCC's own pair of jumps is the fastest; callers must take every register for lost (noipa). The address sanitizer only
// follows the slow pair.
#if defined(__SANITIZE_ADDRESS__)
void to_scheduler() {
  swapcontext(fiber().context.get(), &scheduler);
}
void to_fiber() {
  swapcontext(&scheduler, fiber().context.get());
}
#else
[[noreturn, gnu::noipa]] void jump(Place& place) {
  __builtin_longjmp(place, 1);
}
// Straight on to the next thread that the scheduler would run, where the block has one: most switches are between the
// lanes of a warp, and this takes one jump of two away.
[[gnu::noipa]] void to_scheduler() {
  Place& mine = fiber().place;
  const bool goes_on = enter_next();
  if (__builtin_setjmp(mine) == 0) jump(goes_on ? fiber().place : scheduler_place);
}
[[gnu::noipa]] void to_fiber() {
  if (__builtin_setjmp(scheduler_place) != 0) return;
  if (fiber().started) jump(fiber().place);
  fiber().started = true;
  setcontext(fiber().context.get());
}
#endif

void wait_while(const uint64_t* word, uint64_t mask, uint64_t value) {
  Fiber& mine = fiber();
  mine.waits_for = word;
  mine.mask = mask;
  mine.value = value;
  while (mine.must_wait()) to_scheduler();
  mine.waits_for = nullptr;
}

void fiber_main() {
  for (;;) {
    (*kernel_thread)();
    fiber().done = true;
    --block().num_live;
    ++progress;
    to_scheduler();
  }
}

void meet(Meeting& meeting, unsigned place, unsigned wanted, void* mine, void (*fn)(void**, unsigned)) {
  if (meeting.given.size() < wanted) meeting.given.resize(wanted);
  meeting.given[place] = mine;
  if (++meeting.arrived == wanted) {
    if (fn) fn(meeting.given.data(), wanted);
    meeting.arrived = 0;
    ++meeting.generation;
    ++progress;
    return;
  }
  const uint64_t generation = meeting.generation;
  wait_while(&meeting.generation, ~uint64_t{0}, generation);
}

void prepare(Block& b, dim3 index, size_t shared_bytes) {
  b.index = index;
  b.num_live = num_threads;
  b.everyone.arrived = 0;
  prepare(&b.warps, num_threads / kWarp);
  prepare(&b.warpgroups, num_threads / kWarpgroup);
  prepare(&b.named, 16);
  b.shared.assign(shared_bytes, 0xff);  // NaN in every float format
  if (b.fibers.size() < num_threads) b.fibers.resize(num_threads);
  const bool is_indexed = b.threads.x == blockDim.x && b.threads.y == blockDim.y && b.threads.z == blockDim.z;
  b.threads = blockDim;
  for (unsigned i = 0; i < num_threads; ++i) {
    Fiber& f = b.fibers[i];
    if (!is_indexed) f.index = dim3(i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y);
    f.done = false;
    if (f.stack) continue;  // its last thread is done, and fiber_main begins the next
    f.stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
    f.context = std::make_unique<ucontext_t>();
    getcontext(f.context.get());
    f.context->uc_stack.ss_sp = f.stack.get();
    f.context->uc_stack.ss_size = kStackBytes - i % 64 * 1088;  // else all stacks meet in the same lines of the cache
    f.context->uc_link = nullptr;
    makecontext(f.context.get(), fiber_main, 0);
  }
}

void run_cluster(unsigned num_blocks) {
  cluster_meeting = {};
  for (bool any = true; any;) {
    any = false;
    const uint64_t before = progress;
    for (unsigned n = 0; n < num_blocks; ++n) {
      const unsigned b = nth_of(n, num_blocks);
      Fiber* const fibers = cluster[b].fibers.data();
      for (unsigned m = 0; m < num_threads; ++m) {
        const unsigned thread = nth_of(m, num_threads);
        if (fibers[thread].done) continue;
        any = true;
        if (fibers[thread].must_wait()) continue;
        enter(b, thread);
        to_fiber();
        m = nth_of(current_thread, num_threads);  // it may have gone on to others
      }
    }
    if (any && progress == before) fail("threads wait for others that never come");
  }
  for (unsigned b = 0; b < num_blocks; ++b) {
    for (unsigned i = 0; i < num_threads; ++i) {
      Fiber& f = cluster[b].fibers[i];
      for (const auto& group : f.groups) {
        if (group.empty()) continue;
        enter(b, i);
        fail("a kernel ended with copies under way");
      }
      f.groups.clear();
      f.open.clear();
    }
  }
}

}  // namespace

unsigned lane() {
  return current_thread % kWarp;
}

unsigned char* dynamic_shared() {
  return block().shared.data();
}

unsigned char* cluster_shared(const void* mine, unsigned rank) {
  const size_t offset = static_cast<size_t>(static_cast<const unsigned char*>(mine) - block().shared.data());
  if (offset >= block().shared.size()) fail("only dynamic shared memory is read across a cluster here");
  return cluster.at(rank).shared.data() + offset;
}

void meet_warp(void* mine, void (*fn)(void**, unsigned)) {
  meet(block().warps[current_thread / kWarp], lane(), kWarp, mine, fn);
}
// Threads that have left the kernel are waited for in vain: we write no barriers behind a return.
void meet_block(void* mine, void (*fn)(void**, unsigned)) {
  meet(block().everyone, current_thread, num_threads, mine, fn);
}
void meet_cluster() {
  meet(cluster_meeting, current_block * num_threads + current_thread,
       static_cast<unsigned>(cluster.size()) * num_threads, nullptr, nullptr);
}

namespace {
std::function<void(const LaunchRecord&)> launch_observer;
bool runs_kernels = true;
}  // namespace

void observe_launches(std::function<void(const LaunchRecord&)> observer, bool runs) {
  launch_observer = std::move(observer);
  runs_kernels = runs;
}
void tell_launch(const LaunchRecord& record) {
  if (launch_observer) launch_observer(record);
}

void launch(dim3 grid, dim3 threads, unsigned cluster_y, size_t shared_bytes, const std::function<void()>& thread) {
  if (!runs_kernels) return;
  const std::lock_guard lock(device);
  gridDim = grid;
  blockDim = threads;
  kernel_thread = &thread;
  num_threads = threads.x * threads.y * threads.z;
  cluster.resize(cluster_y);
  if (num_threads % kWarp != 0 || grid.y % cluster_y != 0) fail("a grid is made of whole warps and clusters");
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; y += cluster_y)
      for (unsigned x = 0; x < grid.x; ++x) {
        for (unsigned b = 0; b < cluster_y; ++b) prepare(cluster[b], dim3(x, y + b, z), shared_bytes);
        run_cluster(cluster_y);
      }
}

// ---- asynchronous copies -------------------------------------------------------------------------------------------

void start_copy(void* to, const void* from, unsigned bytes, bool valid) {
  if (reinterpret_cast<uintptr_t>(to) % bytes || (valid && reinterpret_cast<uintptr_t>(from) % bytes))
    fail("an asynchronous copy that is not aligned");
  fiber().open.push_back({to, from, bytes, valid});
}
void commit_copies() {
  fiber().groups.push_back(std::move(fiber().open));
  fiber().open.clear();
}
void wait_copies(int pending) {
  while (fiber().groups.size() > static_cast<size_t>(pending)) {
    for (const Copy& copy : fiber().groups.front()) {
      if (copy.valid)
        std::memcpy(copy.to, copy.from, copy.bytes);
      else
        std::memset(copy.to, 0, copy.bytes);
    }
    fiber().groups.pop_front();
  }
}

// ---- matrix units --------------------------------------------------------------------------------------------------

namespace {
const float* make_half_values() {
  static float values[65536];
  for (unsigned i = 0; i < 65536; ++i)
    values[i] = static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(i)));
  return values;
}
}  // namespace
const float* const half_values = make_half_values();

void transpose_8x8(void** lanes, unsigned) {
  uint16_t matrix[8][8];
  for (unsigned lane = 0; lane < kWarp; ++lane) std::memcpy(&matrix[lane / 4][lane % 4 * 2], lanes[lane], 4);
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const unsigned row = lane / 4, column = lane % 4 * 2;
    *static_cast<uint32_t*>(lanes[lane]) = matrix[column][row] | uint32_t{matrix[column + 1][row]} << 16;
  }
}

void multiply(void** lanes, unsigned) {
  float a[16][16], b[16][8];
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const Product& mine = *static_cast<const Product*>(lanes[lane]);
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned s = 0; s < 2; ++s) {
      for (unsigned i = 0; i < 4; ++i)
        a[g + i % 2 * 8][2 * t + s + i / 2 * 8] = half_values[mine.a[i] >> (16 * s) & 0xffff];
      for (unsigned i = 0; i < 2; ++i) b[2 * t + s + i * 8][g] = half_values[mine.b[i] >> (16 * s) & 0xffff];
    }
  }
  float sums[16][8] = {};  // the columns side by side, as the processor's vectors want them
  for (unsigned m = 0; m < 16; ++m)
    for (unsigned k = 0; k < 16; ++k)
      for (unsigned n = 0; n < 8; ++n) sums[m][n] += a[m][k] * b[k][n];
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const Product& mine = *static_cast<const Product*>(lanes[lane]);
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; ++i) mine.c[i] += sums[g + i / 2 * 8][2 * t + i % 2];
  }
}

void multiply_tf32(void** lanes, unsigned) {
  float a[16][8], b[8][8];
  const auto number = [](uint32_t bits) {
    if (bits & 0x1fff) fail("a number with more bits than tf32 has");
    return std::bit_cast<float>(bits);
  };
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const Product& mine = *static_cast<const Product*>(lanes[lane]);
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; ++i) a[g + i % 2 * 8][t + i / 2 * 4] = number(mine.a[i]);
    for (unsigned i = 0; i < 2; ++i) b[g][t + i * 4] = number(mine.b[i]);
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const Product& mine = *static_cast<const Product*>(lanes[lane]);
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; ++i) {
      float sum = 0;
      for (unsigned k = 0; k < 8; ++k) sum += a[g + i / 2 * 8][k] * b[2 * t + i % 2][k];
      mine.c[i] += sum;
    }
  }
}

// ---- warpgroups ----------------------------------------------------------------------------------------------------

namespace {
struct CountedBarrier {  // in the place of a barrier
  uint64_t parity : 1, count : 15, missing : 16;
  int64_t bytes : 32;  // that were announced and have not come; below 0 when they came first
};
static_assert(sizeof(CountedBarrier) == sizeof(uint64_t));

void change(uint64_t* barrier, unsigned arrivals, int bytes) {
  auto state = std::bit_cast<CountedBarrier>(*barrier);
  if (state.count == 0 || state.missing < arrivals) fail("a barrier that was not initialised, or too many arrivals");
  state.missing -= arrivals;
  state.bytes += bytes;
  if (state.missing == 0 && state.bytes == 0) {
    state.parity ^= 1;
    state.missing = state.count;
  }
  *barrier = std::bit_cast<uint64_t>(state);
  ++progress;
}
}  // namespace

void barrier_init(uint64_t* barrier, unsigned count) {
  CountedBarrier state{};
  state.count = state.missing = count;
  *barrier = std::bit_cast<uint64_t>(state);
}

void barrier_arrive(uint64_t* barrier) {
  change(barrier, 1, 0);
}

void barrier_add_bytes(uint64_t* barrier, int bytes) {
  change(barrier, 0, bytes);
}

void copy_rows(unsigned char* to, unsigned at, const uint64_t* words, unsigned column, unsigned row,
               uint64_t* barrier) {
  const auto* base = reinterpret_cast<const unsigned char*>(words[0]);
  const uint64_t num_rows = words[1], columns = words[2];
  const unsigned box_rows = static_cast<unsigned>(words[3]), box_columns = static_cast<unsigned>(words[4]);
  const unsigned pieces = std::min(box_columns, 64u) / 8;
  if (at % 1024 != 0) fail("rows are copied to a multiple of 1024 bytes");
  for (unsigned end = column + box_columns; column < end; column += pieces * 8) {
    for (unsigned r = 0; r < box_rows; ++r) {
      for (unsigned piece = 0; piece < pieces; ++piece) {
        unsigned char* target = to + (r * pieces + (pieces == 8 ? piece ^ r % 8 : piece)) * 16;
        const bool inside = row + r < num_rows && column + piece * 8 < columns;
        if (inside)
          std::memcpy(target, base + ((row + r) * columns + column + piece * 8) * 2, 16);
        else
          std::memset(target, 0, 16);
      }
    }
    to += box_rows * pieces * 16;
  }
  change(barrier, 0, -static_cast<int>(box_rows * box_columns * 2));
}

void copy_bytes(void* to, const void* from, unsigned bytes, uint64_t* barrier) {
  if (reinterpret_cast<uintptr_t>(to) % 16 || reinterpret_cast<uintptr_t>(from) % 16 || bytes % 16)
    fail("a copy that is not of whole and aligned pieces of 16 bytes");
  std::memcpy(to, from, bytes);
  change(barrier, 0, -static_cast<int>(bytes));
}

void barrier_wait(const uint64_t* barrier, unsigned parity) {
  wait_while(barrier, 1, parity);
}

// Of whole warps that stand side by side.
void meet_named(unsigned number, unsigned threads) {
  meet(block().named.at(number), current_thread % threads, threads, nullptr, nullptr);
}

namespace {

float shared_half(uint32_t at) {
  at ^= (at >> 7 & 7) << 4;
  if (at + 2 > block().shared.size()) fail("a matrix product reads past the shared memory");
  uint16_t bits;
  std::memcpy(&bits, block().shared.data() + at, 2);
  return half_values[bits];
}

void multiply_lanes(void** threads, unsigned) {
  const auto at = [&](unsigned i) -> const WarpgroupProduct& { return *static_cast<WarpgroupProduct*>(threads[i]); };
  const WarpgroupProduct& first = at(0);
  const auto start_of = [](uint64_t operand) { return static_cast<uint32_t>(operand & 0x3fff) << 4; };
  const uint32_t start = start_of(first.b);
  const uint32_t tile_bytes = static_cast<uint32_t>(first.b >> 16 & 0x3fff) << 4;
  constexpr unsigned kDepth = 16;
  const unsigned columns = first.columns;
  std::vector<float> b(columns * kDepth), sums(2 * columns);
  for (unsigned n = 0; n < columns; ++n)
    for (unsigned k = 0; k < kDepth; ++k)
      b[k * columns + n] = shared_half(first.is_transposed ? start + n / 64 * tile_bytes + k * 128 + n % 64 * 2
                                                           : start + n * 128 + k * 2);
  for (unsigned i = 0; i < kWarpgroup; ++i) {
    if (at(i).b != first.b || at(i).shared_a != first.shared_a || at(i).add != first.add)
      fail("threads of a warpgroup multiply different matrices");
    const unsigned quad = i / 4 * 4, row = i / kWarp * 16 + i % kWarp / 4;
    const auto factor = [&](unsigned half, unsigned k) {
      if (!first.a) return shared_half(start_of(first.shared_a) + (row + 8 * half) * 128 + k * 2);
      const uint32_t pair = at(quad + k % 8 / 2).a[k / 8 * 2 + half];
      return half_values[pair >> (k % 2 * 16) & 0xffff];
    };
    if (i % 4 == 0) {  // the four threads of a quad have the same two rows
      std::ranges::fill(sums, 0.0f);
      for (unsigned half = 0; half < 2; ++half)
        for (unsigned k = 0; k < kDepth; ++k) {
          const float x = factor(half, k);
          const float* y = b.data() + k * columns;
          float* row_sums = sums.data() + half * columns;
          for (unsigned n = 0; n < columns; ++n) row_sums[n] += x * y[n];
        }
    }
    for (unsigned c = 0; c < columns / 2; ++c) {
      const float sum = sums[c % 4 / 2 * columns + c / 4 * 8 + i % 4 * 2 + c % 2];
      float* d = at(i).d + c;
      *d = at(i).add ? *d + sum : sum;
    }
  }
}

}  // namespace

void multiply_warpgroup(const WarpgroupProduct& mine) {
  if (current_thread / kWarpgroup >= num_threads / kWarpgroup) fail("a product of threads that are no warpgroup");
  WarpgroupProduct copy = mine;
  meet(block().warpgroups[current_thread / kWarpgroup], current_thread % kWarpgroup, kWarpgroup, &copy, multiply_lanes);
}

}  // namespace emulator
