// Who may not join the queue, with the numbers that it is told.
#include <catch2/catch_test_macros.hpp>

#include "core/schedule/queue_limits.h"
#include "schedule_parts.h"

using namespace llmrt;
using test::request_of;

namespace {

constexpr TimeNs kMs = 1'000'000;

struct Queue {
  SchedulerConfig config;
  Waiting waiting;
  Fairness fairness{{.decode = {1, 1, 1, 1}, .prefill = {1, 1, 1, 1}}, 0};
  Pace pace{config};
  QueueLimits limits{config, waiting, fairness, pace};
  std::vector<std::unique_ptr<Sequence>> sequences;

  void wait(Request request) {
    sequences.push_back(test::sequence_of(std::move(request)));
    sequences.back()->ticket.start_bytes = 1000;
    waiting.add(*sequences.back());
  }
  void serve_tokens_per_ms(uint64_t rate) {
    for (int step = 0; step < 40; ++step) {
      pace.note_spared(rate);
      pace.observe({}, {}, /*some_wait=*/true, step * kMs);
    }
  }
  std::string full(const Request& request, const QueueLoad& inbox = {}) const {
    const std::optional<Error> error = limits.queue_full(request, inbox);
    return error ? error->message : "";
  }
};

}  // namespace

TEST_CASE("a lane's tokens have a limit, and a request that finds none waiting is never refused") {
  Queue queue;
  queue.config.queue_tokens_max = 100;
  CHECK(queue.full(request_of(1, 200)).empty());
  queue.wait(request_of(2, 60));
  CHECK(queue.full(request_of(1, 40)).empty());
  CHECK(queue.full(request_of(1, 41)) ==
        "queue full: expected at most 100 tokens of class interactive, found 60 and 41 more");
  CHECK(queue.full(request_of(1, 41, 8, RequestClass::kBatch)).empty());  // another lane
  CHECK_FALSE(queue.full(request_of(1, 30), {.tokens = 11}).empty());     // with those in the inbox
}

TEST_CASE("branches and bytes have limits for all lanes together") {
  Queue queue;
  queue.config.queue_branches_max = 2;
  queue.config.queue_bytes_max = 1u << 20;
  queue.wait(request_of(2, 4, 8, RequestClass::kBatch));
  Request two = request_of(1);
  two.n = 2;
  CHECK(queue.full(request_of(1)).empty());
  CHECK(queue.full(two) == "queue full: expected at most 2 choices to wait, found 1 and 2 more");
  CHECK(queue.full(request_of(1), {.branches = 1}).find("choices") != std::string::npos);
  queue.config.queue_branches_max = 100;
  CHECK(queue.full(request_of(1), {.branches = 1, .bytes = 1u << 20}).find("bytes of requests") != std::string::npos);
}

TEST_CASE("with a target for the first token a request is refused once the rate is known and the wait too long") {
  Queue queue;
  queue.config.ttft_target_ms = 50;
  queue.wait(request_of(2, 400));
  CHECK(queue.full(request_of(1, 200)).empty());
  queue.serve_tokens_per_ms(10);
  CHECK(queue.full(request_of(1, 100)).empty());
  const std::optional<Error> error = queue.limits.queue_full(request_of(1, 200), {});
  REQUIRE(error);
  CHECK(error->code == ErrorCode::kOverloaded);
  CHECK(error->message.find("within 50 ms is wanted, 60 ms are expected") != std::string::npos);
  CHECK(error->retry_after_s == 1);
  queue.wait(request_of(3, 100, 8, RequestClass::kAgent));  // takes half of the rate
  CHECK_FALSE(queue.full(request_of(1, 100)).empty());
}

TEST_CASE("a deadline that those before it leave no time for is refused at once") {
  Queue queue;
  queue.serve_tokens_per_ms(10);
  queue.wait(request_of(2, 400));
  Request request = request_of(1);
  request.deadline_ns = 39 * kMs;
  CHECK_FALSE(queue.limits.too_late(request, 0));  // due before the one that waits
  request.deadline_ns = 100'000 * kMs;
  CHECK_FALSE(queue.limits.too_late(request, 0));
  CHECK(queue.limits.too_late(request, request.deadline_ns - 39 * kMs));
  CHECK_FALSE(queue.limits.too_late(request, request.deadline_ns - 41 * kMs));
  request.deadline_ns = 0;
  CHECK_FALSE(queue.limits.too_late(request, 1));
}
