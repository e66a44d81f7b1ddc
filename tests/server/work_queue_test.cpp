// Which work waits for which: small work never for large, large work not for ever.
#include "server/work_queue.h"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <latch>
#include <stdexcept>

namespace llmrt::server {
namespace {

namespace asio = boost::asio;
constexpr size_t kLarge = 4 << 20;

TEST_CASE("small work runs while every other thread is busy with large work") {
  std::latch let_go(1), began(1), small_done(3);
  WorkQueue queue(2);
  queue.post(kLarge, [&] {
    began.count_down();
    let_go.wait();
  });
  began.wait();
  for (int i = 0; i < 5; ++i) queue.post(kLarge, [&] { let_go.wait(); });
  for (int i = 0; i < 3; ++i) queue.post(100, [&] { small_done.count_down(); });
  small_done.wait();  // or the test hangs
  let_go.count_down();
}

TEST_CASE("of large work the smallest comes first, but now and then the oldest") {
  std::latch let_go(1), began(1), done(9);
  std::mutex mutex;
  std::vector<size_t> order;
  WorkQueue queue(2);
  queue.post(kLarge, [&] {
    began.count_down();
    let_go.wait();
  });
  began.wait();
  for (const size_t size : {900u, 800u, 700u, 600u, 500u, 400u, 300u, 200u, 100u})
    queue.post(size * 1000, [&, size] {
      std::lock_guard lock(mutex);
      order.push_back(size);
      done.count_down();
    });
  let_go.count_down();
  done.wait();
  CHECK(std::find(order.begin(), order.end(), 900u) - order.begin() < 4);
  CHECK(order.back() != 900u);
  CHECK(std::find(order.begin(), order.end(), 100u) - order.begin() < 2);
}

TEST_CASE("a result and an exception come back to the one that waits") {
  WorkQueue queue(2);
  asio::io_context io;
  int result = 0;
  bool thrown = false;
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        result = co_await queue.run<int>(10, [] { return 7; });
        try {
          co_await queue.run<int>(10, []() -> int { throw std::runtime_error("no"); });
        } catch (const std::runtime_error&) {
          thrown = true;
        }
      },
      asio::detached);
  io.run();
  CHECK(result == 7);
  CHECK(thrown);
}

}  // namespace
}  // namespace llmrt::server
