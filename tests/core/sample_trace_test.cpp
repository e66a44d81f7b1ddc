// Sample traces: what is written is read again, hostile files are refused by line and field, and a replay finds what
// differs. Method: the engine on the backend of hashes records its own draws.
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <unistd.h>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/sample/gumbel.h"
#include "core/sample_trace/replay.h"
#include "core/sample_trace/trace_writer.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/fake_constraint.h"
#include "tests/fakes/processors.h"
#include "tests/fakes/scripted_drafts.h"
#include "tests/fakes/sim_clock.h"

using namespace llmrt;
using namespace llmrt::test;
using Catch::Matchers::ContainsSubstring;

namespace {

const SampleTraceOrigin kOrigin = {"fake.gguf", "00ff", "fake:0", "f16"};

struct Running {
  explicit Running(uint64_t queue_tokens_max = 1u << 20) {
    EngineConfig config;
    config.context_max = 200;
    config.kv_tokens = 40 * 16;
    config.audit_steps = 1;
    config.queue_tokens_max = queue_tokens_max;
    auto created = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                                  std::make_unique<FakeBackend>(FakeBackendConfig{}), &clock, {});
    REQUIRE(created.ok());
    engine = std::move(*created);
  }
  void run() {
    for (bool worked = true; worked;) {
      auto tick = engine->tick();
      REQUIRE(tick.ok());
      worked = *tick;
    }
  }
  SimClock clock;
  std::unique_ptr<Engine> engine;
};

struct Nothing final : EventSink {
  void on_events(std::span<const TokenEvent>) override {}
};

// Requests with all that a draw may depend on.
std::vector<Request> requests() {
  std::vector<Request> all(4);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].prompt = {5, 6, 7, static_cast<int32_t>(8 + i)};
    all[i].max_tokens = 30;
    all[i].sampling.seed = (uint64_t{i + 1} << 40) + 77;
    all[i].sink = std::make_shared<Nothing>();
  }
  all[0].sampling.temperature = 0;
  all[1].n = 3;
  all[1].sampling.top_p = 0.7f;
  all[1].sampling.min_p = 0.01f;
  all[1].sampling.branch = 2;
  all[2].sampling.presence_penalty = 0.5f;
  all[2].sampling.logit_bias = {{3, 1.5f}, {4, -2}};
  all[2].sampling.bad_words = {{9}, {10, 11}};
  all[2].sampling.no_repeat_ngram_size = 2;
  all[2].min_tokens = 20;
  all[2].stop.token_ids = {12};
  all[3].sampling.top_k = 7;
  all[3].stop.ignore_eos = true;
  all[3].begun = {20, 21, 22};
  return all;
}

std::string record(const std::vector<Request>& wanted) {
  const std::string path = std::filesystem::temp_directory_path() / fmt::format("llmrt_trace_{}.jsonl", getpid());
  Running run;
  {
    auto writer = TraceWriter::open(path, kOrigin);
    REQUIRE(writer.ok());
    for (Request request : wanted) {
      (*writer)->record(&request);
      REQUIRE(run.engine->submit(std::move(request)).ok());
    }
    run.run();
    REQUIRE((*writer)->flush().ok());
  }
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  std::remove(path.c_str());
  return text.str();
}

SampleTrace parsed(const std::string& text) {
  Result<SampleTrace> trace = parse_sample_trace(text);
  INFO((trace.ok() ? "" : trace.error().message));
  REQUIRE(trace.ok());
  return std::move(*trace);
}

}  // namespace

TEST_CASE("a trace is made for its owner alone; a file that others may read stays as it is, and that is told") {
  const std::string path = std::filesystem::temp_directory_path() / fmt::format("llmrt_trace_mode_{}.jsonl", getpid());
  using std::filesystem::perms;
  const mode_t umask_before = ::umask(0);
  CHECK_FALSE(TraceWriter::open(path, kOrigin).value()->others_may_read());
  CHECK(std::filesystem::status(path).permissions() == perms(0600));
  std::filesystem::permissions(path, perms(0640));
  CHECK(TraceWriter::open(path, kOrigin).value()->others_may_read());
  CHECK(std::filesystem::status(path).permissions() == perms(0640));
  CHECK_FALSE(TraceWriter::open("/dev/null", kOrigin).value()->others_may_read());
  ::umask(umask_before);
  std::remove(path.c_str());
}

TEST_CASE("a trace holds each branch with its parameters, tokens and end") {
  const SampleTrace trace = parsed(record(requests()));
  CHECK(trace.origin.model_digest == kOrigin.model_digest);
  REQUIRE(trace.branches.size() == 6);
  std::map<uint64_t, const TracedBranch*> by_seed_and_branch;
  for (const TracedBranch& branch : trace.branches) {
    CHECK_FALSE(branch.finish.empty());
    by_seed_and_branch[branch.request.sampling.seed + branch.request.sampling.branch] = &branch;
  }
  const TracedBranch& fourth = *by_seed_and_branch.at((uint64_t{2} << 40) + 77 + 4);  // the third of the second request
  CHECK(fourth.request.sampling.top_p == 0.7f);
  CHECK(fourth.request.sampling.min_p == 0.01f);
  CHECK(fourth.processors == std::vector<std::string>{"top_p", "min_p"});
  const TracedBranch& masked = *by_seed_and_branch.at((uint64_t{3} << 40) + 77);
  CHECK(masked.request.sampling.bad_words == std::vector<std::vector<int32_t>>{{9}, {10, 11}});
  CHECK(masked.request.sampling.logit_bias == requests()[2].sampling.logit_bias);
  CHECK(masked.request.min_tokens == 20);
  CHECK(masked.processors ==
        std::vector<std::string>{"penalties", "logit_bias", "min_tokens", "bad_words", "no_repeat_ngram"});
  const TracedBranch& begun = *by_seed_and_branch.at((uint64_t{4} << 40) + 77);
  CHECK(begun.request.begun == std::vector<int32_t>{20, 21, 22});
  CHECK(begun.draws.size() == 27);
  CHECK(begun.finish == "length");
}

TEST_CASE("a token's line has its noise coordinate; greedy rows have none") {
  SamplingParams sampling;
  sampling.seed = (uint64_t{3} << 32) + 9;
  sampling.branch = 1;
  const uint32_t noise = noise_hash(noise_key(9, 3, 1, 5, 0), noise_key(9, 3, 1, 5, 1), 42);
  const Draw draw = {-1.5f, -0.5f, 3, 0.25f};
  CHECK(token_line(7, sampling, 5, 42, draw) ==
        fmt::format(R"({{"type":"token","request":7,"position":5,"token":42,"noise":{},"logprob":-1.5E0,)"
                    R"("processed_logprob":-5E-1,"support":3,"margin":2.5E-1}})",
                    noise));
  sampling.temperature = 0;
  const Draw alone = {-1.5f, 0, 1, std::numeric_limits<float>::infinity()};
  CHECK_THAT(token_line(7, sampling, 5, 42, alone),
             ContainsSubstring("\"noise\":null") && ContainsSubstring("\"margin\":null"));
}

TEST_CASE("the same engine draws every recorded token again") {
  const SampleTrace trace = parsed(record(requests()));
  Running run;
  const auto branches = replay(*run.engine, trace, {});
  REQUIRE(branches.ok());
  REQUIRE(branches->size() == trace.branches.size());
  for (size_t i = 0; i < branches->size(); ++i) {
    INFO("branch " << i);
    CHECK((*branches)[i].is_equal());
    CHECK((*branches)[i].num_drawn == trace.branches[i].draws.size());
    CHECK((*branches)[i].logprob_difference_max == 0);
  }
  CHECK(run.engine->stats().num_streaming == 0);
  CHECK(run.engine->stats().num_running == 0);
}

TEST_CASE("a replay draws under the same grammar, and tells other masks") {
  std::vector<Request> wanted(1);
  wanted[0].prompt = {5, 6, 7};
  wanted[0].max_tokens = 40;
  wanted[0].constraint = std::make_shared<FakeConstraint>(FakeConstraintConfig{.seed = 3, .end_one_in = 1000});
  wanted[0].sink = std::make_shared<Nothing>();
  const SampleTrace trace = parsed(record(wanted));
  const TracedBranch& traced = trace.branches.at(0);
  CHECK(traced.processors == std::vector<std::string>{"grammar"});
  REQUIRE(traced.draws.size() > 3);
  for (const TracedDraw& draw : traced.draws) CHECK((draw.draw.mask_allowed > 0 && draw.draw.mask_digest != 0));
  Running run;
  const auto equal = replay(*run.engine, trace, {}, [&](const TracedBranch&) { return wanted[0].constraint; });
  REQUIRE(equal.ok());
  CHECK(equal->at(0).is_equal());
  CHECK(equal->at(0).num_drawn == traced.draws.size());
  const auto without = replay(*run.engine, trace, {});
  REQUIRE(without.ok());
  REQUIRE(without->at(0).error);
  CHECK_THAT(without->at(0).error->message, ContainsSubstring("[grammar]"));
  SampleTrace other = trace;
  other.branches[0].draws[2].draw.mask_digest ^= 1;
  const auto changed = replay(*run.engine, other, {}, [&](const TracedBranch&) { return wanted[0].constraint; });
  REQUIRE(changed.ok());
  CHECK(changed->at(0).num_other_masks == 1);
  CHECK_FALSE(changed->at(0).is_equal());
}

TEST_CASE("a trace tells of drafts, and is replayed without") {
  Request wanted = requests()[3];
  const SampleTrace plain = parsed(record({wanted}));
  std::vector<int32_t> answer, known = wanted.begun;
  for (const TracedDraw& draw : plain.branches.at(0).draws) answer.push_back(draw.token);
  known.insert(known.end(), answer.begin(), answer.end());
  // Half of the drafts are right.
  wanted.speculation =
      Speculation{std::make_shared<ScriptedDrafts>(DraftScript{.seed = 5,
                                                               .right_of_16 = 8,
                                                               .always_as_many = true,
                                                               .vocab_size = static_cast<int32_t>(kFakeVocab),
                                                               .answers = {known}}),
                  3};
  const std::string text = record({wanted});
  const SampleTrace trace = parsed(text);
  const TracedBranch& traced = trace.branches.at(0);
  REQUIRE(traced.draws.size() == answer.size());
  uint64_t steps = 0;
  for (size_t i = 0; i < answer.size(); ++i) {
    CHECK(traced.draws[i].token == answer[i]);
    steps += traced.draws[i].draw.run_idx == 0;
  }
  CHECK(traced.num_accepted() == answer.size() - steps);
  CHECK(traced.num_accepted() > 3);
  CHECK(traced.num_proposed() > traced.num_accepted());
  CHECK(traced.num_proposed() <= 3 * steps);
  Running run;
  const auto branches = replay(*run.engine, trace, {});
  REQUIRE(branches.ok());
  CHECK(branches->at(0).is_equal());
  CHECK(branches->at(0).num_drawn == answer.size());

  const size_t run_at = text.find("\"run\":1");
  REQUIRE(run_at != std::string::npos);
  std::string hostile = text;
  hostile.replace(run_at, 7, "\"run\":2");
  REQUIRE_FALSE(parse_sample_trace(hostile).ok());
  CHECK_THAT(parse_sample_trace(hostile).error().message, ContainsSubstring("run: expected"));
}

TEST_CASE("a replay goes on behind a recorded token that would end the answer today") {
  std::vector<Request> wanted = {requests()[3]};
  SampleTrace trace = parsed(record(wanted));
  TracedBranch& branch = trace.branches.at(0);
  branch.request.stop.token_ids = {branch.draws[4].token};
  Running run;
  const auto branches = replay(*run.engine, trace, {});
  REQUIRE(branches.ok());
  CHECK(branches->at(0).is_equal());
  CHECK(branches->at(0).num_drawn == branch.draws.size());
  CHECK_FALSE(branches->at(0).error);
}

TEST_CASE("a replay waits where the queue has no room for all that was recorded") {
  std::vector<Request> wanted(5);
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].prompt.assign(60, static_cast<int32_t>(5 + i));
    wanted[i].max_tokens = 8;
    wanted[i].stop.ignore_eos = true;
    wanted[i].sink = std::make_shared<Nothing>();
  }
  const SampleTrace trace = parsed(record(wanted));
  Running run(100);
  const auto branches = replay(*run.engine, trace, {});
  REQUIRE(branches.ok());
  for (size_t i = 0; i < branches->size(); ++i) {
    INFO("branch " << i);
    CHECK((*branches)[i].is_equal());
    CHECK((*branches)[i].num_drawn == 8);
    CHECK_FALSE((*branches)[i].error);
  }
}

TEST_CASE("a replay names the first divergence and goes on behind the recorded token") {
  std::vector<Request> wanted = {requests()[3]};
  SampleTrace trace = parsed(record(wanted));
  TracedBranch& branch = trace.branches.at(0);
  branch.request.stop.ignore_eos = true;
  const int32_t drawn = branch.draws[4].token;
  branch.draws[4].token = (drawn + 1) % static_cast<int32_t>(kFakeVocab);
  branch.draws[4].draw.margin = 0.125f;
  Running run;
  const auto branches = replay(*run.engine, trace, {});
  REQUIRE(branches.ok());
  const ReplayedBranch& replayed = branches->at(0);
  CHECK_FALSE(replayed.is_equal());
  REQUIRE(replayed.first);
  CHECK(replayed.first->position == 3 + 4);  // behind what had begun
  CHECK(replayed.first->drawn == drawn);
  CHECK(replayed.first->recorded == branch.draws[4].token);
  CHECK(replayed.first->recorded_margin == 0.125f);
  // Everything behind it has another past than the recorded tokens were drawn in.
  CHECK(replayed.num_drawn == branch.draws.size());
  CHECK(replayed.num_diverged > 5);
  CHECK_FALSE(replayed.error);

  trace.branches[0].request.sampling.seed += 1;
  Running again;
  CHECK(replay(*again.engine, trace, {})->at(0).num_diverged > 5);
}

TEST_CASE("a processor that the program does not know is named, not skipped") {
  Request request = requests()[0];
  request.processors = {std::make_shared<LimitRuns>(1)};
  Running run;
  const auto branches = replay(*run.engine, parsed(record({request, requests()[1]})), {});
  REQUIRE(branches.ok());
  int num_refused = 0;
  for (const ReplayedBranch& branch : *branches) {
    if (!branch.error) continue;
    ++num_refused;
    CHECK_THAT(branch.error->message, ContainsSubstring("the trace has [limit_runs]"));
    CHECK_FALSE(branch.is_equal());
  }
  CHECK(num_refused == 1);
}

TEST_CASE("a broken trace is refused by line and field") {
  const auto refusal = [](const std::string& text) {
    const Result<SampleTrace> trace = parse_sample_trace(text);
    return trace.ok() ? "accepted" : trace.error().message;
  };
  const std::string header = header_line(kOrigin) + "\n";
  const std::string request = request_line(3, requests()[2]) + "\n";
  const std::string token = token_line(3, {}, 0, 5, {-1, -1, 2, 1}) + "\n";
  CHECK(refusal(header + request + token) == "accepted");
  CHECK(parsed(header + request + token + "{\"type\":\"tok").branches[0].draws.size() == 1);  // cut short
  CHECK(refusal("") == "sample trace: expected a header, found none");
  CHECK(refusal("[]\n") == "sample trace: line 1: expected a JSON object");
  CHECK(refusal(request) == "sample trace: line 1: expected a header, as of a sample trace");
  CHECK(refusal(header + header) == "sample trace: line 2: type: expected one header");
  CHECK(refusal(header + token) == "sample trace: line 2: request: expected one that the trace has");
  CHECK(refusal(header + request + request) == "sample trace: line 3: request: expected an id that is new");
  CHECK(refusal(header + request + token + token) == "sample trace: line 4: position: expected the one after the last");
  CHECK(refusal(header + request + "{\"type\":\"token\",\"request\":3,\"position\":0,\"token\":1e99}\n") ==
        "sample trace: line 3: token: expected an integer in range");
  CHECK(refusal(header + "{\"type\":\"request\",\"request\":-1}\n") ==
        "sample trace: line 2: request: expected an integer in range");
  CHECK(refusal(header + "{\"type\":\"riddle\"}\n") ==
        "sample trace: line 2: type: expected header, request, token or end");
  // Every cut and every changed byte ends in a trace or in an error.
  const std::string whole = header + request + token;
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 7)));
    refusal(changed);
    refusal(whole.substr(0, i) + "\n");
  }
}
