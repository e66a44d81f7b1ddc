// The order of those that wait, and the sums of what they hold.
#include <catch2/catch_test_macros.hpp>

#include "core/schedule/waiting.h"
#include "schedule_parts.h"

using namespace llmrt;
using test::request_of;
using test::sequence_of;

namespace {

constexpr TimeNs kSecond = 1'000'000'000;

std::vector<RequestId> order(const Waiting& waiting, Lane lane) {
  std::vector<RequestId> ids;
  for (const auto& [place, sequence] : waiting.queue(lane)) ids.push_back(sequence->request.id);
  return ids;
}

std::unique_ptr<Sequence> arrived(RequestId id, TimeNs arrival_ns, TimeNs deadline_ns = 0) {
  Request request = request_of(id);
  request.arrival_ns = arrival_ns;
  request.deadline_ns = deadline_ns;
  return sequence_of(std::move(request));
}

void make_preempted(Sequence& sequence) {
  sequence.move_to(RequestState::kPrefilling);
  sequence.move_to(RequestState::kPreempted);
}

}  // namespace

TEST_CASE("preempted branches come first, the last one at the front, then new ones by when they are due") {
  Waiting waiting;
  const auto late = arrived(1, 2 * kSecond), early = arrived(2, 1 * kSecond), same = arrived(3, 2 * kSecond);
  const auto urgent = arrived(4, 9 * kSecond, /*deadline_ns=*/12 * kSecond);
  const auto patient = arrived(5, 0, /*deadline_ns=*/900 * kSecond);
  const auto yielded = arrived(6, 9 * kSecond), again = arrived(7, 9 * kSecond);
  for (Sequence* sequence : {late.get(), early.get(), same.get(), urgent.get(), patient.get()}) waiting.add(*sequence);
  make_preempted(*yielded);
  waiting.add(*yielded);
  make_preempted(*again);
  waiting.add(*again);
  CHECK(order(waiting, Lane::kInteractive) == std::vector<RequestId>{7, 6, 4, 2, 1, 3, 5});
  CHECK(waiting.check().ok());
  waiting.remove(*urgent);
  CHECK_FALSE(urgent->waits());
  CHECK(order(waiting, Lane::kInteractive) == std::vector<RequestId>{7, 6, 2, 1, 3, 5});
}

TEST_CASE("lanes wait apart, and those without penalties are listed by themselves") {
  Waiting waiting;
  const auto plain = sequence_of(request_of(1, 4, 8, RequestClass::kBatch));
  Request counted = request_of(2, 4, 8, RequestClass::kEvaluation);
  counted.sampling.presence_penalty = 1;
  const auto with_penalty = sequence_of(std::move(counted));
  waiting.add(*plain);
  waiting.add(*with_penalty);
  CHECK(order(waiting, Lane::kBatch) == std::vector<RequestId>{1, 2});
  CHECK(waiting.plain_queue(Lane::kBatch).size() == 1);
  CHECK(waiting.lanes() == LaneFlags{false, false, true, false});
  waiting.remove(*with_penalty);
  CHECK(waiting.plain_queue(Lane::kBatch).size() == 1);
  waiting.remove(*plain);
  CHECK(waiting.plain_queue(Lane::kBatch).empty());
}

TEST_CASE("the sums are of those that wait: a shared prompt counts once") {
  Waiting waiting;
  const auto prompt = std::make_shared<const std::vector<int32_t>>(100, 1);
  Request request = request_of(1, 0);
  request.n = 2;
  Sequence first(request, 0, prompt), second(request, 1, prompt);
  first.ticket.start_bytes = 1000;
  second.ticket.start_bytes = kBranchBytes;
  waiting.add(first);
  waiting.add(second);
  CHECK(waiting.tokens() == 101);
  CHECK(waiting.tokens(Lane::kInteractive) == 101);
  CHECK(waiting.load().branches == 2);
  CHECK(waiting.load().bytes == 1000 + kBranchBytes);

  waiting.remove(first);
  CHECK(waiting.tokens() == 1);
  first.take_prompt();
  make_preempted(first);
  waiting.add(first);  // it has its own copy now
  CHECK(waiting.tokens() == 101);
  CHECK(waiting.load().bytes == 2 * kBranchBytes + first.tokens.capacity() * sizeof(int32_t));
  waiting.remove(first);
  waiting.remove(second);
  CHECK(waiting.tokens() == 0);
  CHECK(waiting.load().bytes == 0);
  CHECK(waiting.size() == 0);
}

TEST_CASE("the check names a branch whose state is not one of waiting") {
  Waiting waiting;
  Sequence sequence(request_of(5));
  waiting.add(sequence);
  sequence.move_to(RequestState::kPrefilling);
  const Status status = waiting.check();
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().message.find("request 5 waits in state PREFILLING") != std::string::npos);
}

TEST_CASE("the check finds a ticket that differs from the sums") {
  Waiting waiting;
  Sequence sequence(request_of(5));
  waiting.add(sequence);
  ++sequence.ticket.queued_tokens;
  CHECK_FALSE(waiting.check().ok());
}
