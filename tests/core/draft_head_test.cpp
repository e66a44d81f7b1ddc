// Aim: the layer of a model that drafts (MTP) gets the hidden states and tokens that belong together, and never changes
// an answer. Method: a model that says of each token which one follows, and heads made by hand: one that reads only the
// hidden state, or only the token, foresees every token if what it reads is what belongs there; others are always
// wrong. The float64 reference computes both. What real heads compute: tests/models/oracles/draft_heads_test.py.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/backend/validating.h"
#include "core/engine/engine.h"
#include "core/engine/hidden_rows.h"
#include "tests/fakes/sim_clock.h"
#include "tests/reference/backend.h"
#include "tests/weights/changed_file.h"

namespace llmrt::test {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr uint32_t kWidth = 32, kVocab = 8;
constexpr int32_t kNext[kVocab] = {3, 5, 0, 6, 2, 4, 1, 7};  // 7 ends an answer, and is never said

void put(GgufBytes& file, std::string_view name, uint64_t columns, uint64_t rows, auto value_at) {
  std::string data;
  for (uint64_t row = 0; row < rows; ++row)
    for (uint64_t column = 0; column < columns; ++column) data += raw<float>(value_at(row, column));
  std::erase_if(file.tensors, [&](const GgufBytes::Tensor& tensor) { return tensor.name == name; });
  file.tensors.push_back({std::string(name), {columns, rows}, 0, std::move(data), {}, {}});
}

// Layer `layer` adds nothing to the stream.
void add_idle_layer(GgufBytes& file, uint32_t layer) {
  const auto name = [layer](const char* part) { return fmt::format("blk.{}.{}.weight", layer, part); };
  const auto zeros = [](uint64_t, uint64_t) { return 0.0f; };
  for (const char* norm : {"attn_norm", "ffn_norm"}) {
    std::erase_if(file.tensors, [&](const GgufBytes::Tensor& tensor) { return tensor.name == name(norm); });
    file.tensor_f32(name(norm), {kWidth});
  }
  for (const auto& [part, columns, rows] : {std::tuple{"attn_q", 32, 32},
                                            {"attn_k", 32, 16},
                                            {"attn_v", 32, 16},
                                            {"attn_output", 32, 32},
                                            {"ffn_gate", 32, 48},
                                            {"ffn_up", 32, 48},
                                            {"ffn_down", 48, 32}})
    put(file, name(part), columns, rows, zeros);
}

// What a head goes by. kWrong: it says the token that is there already.
enum class Reads { kHidden, kToken, kWrong };

// Logits of the next token stand out by some 30, so that other seeds draw it too, or by some 2.
std::string model_bytes(Reads reads, float gain = 5) {
  GgufBytes file = tiny_model();
  replace_pair(file, "llama.block_count", [&] { file.u32("llama.block_count", 2); });
  replace_pair(file, "llama.context_length", [&] { file.u32("llama.context_length", 256); });
  file.u32("llama.nextn_predict_layers", 1);
  put(file, "token_embd.weight", kWidth, kVocab,
      [](uint64_t row, uint64_t column) { return row == column ? 4.f : 0.f; });
  put(file, "output.weight", kWidth, kVocab, [gain](uint64_t row, uint64_t column) {
    return column < kVocab && kNext[column] == static_cast<int32_t>(row) ? gain : 0;
  });
  add_idle_layer(file, 0);
  add_idle_layer(file, 1);
  for (const char* norm : {"blk.1.nextn.enorm.weight", "blk.1.nextn.hnorm.weight"}) file.tensor_f32(norm, {kWidth});
  // To the stream behind p it adds the token behind p: from that itself, or from the one at p, whose successor it is.
  put(file, "blk.1.nextn.eh_proj.weight", 2 * kWidth, kWidth, [reads](uint64_t row, uint64_t column) {
    const uint64_t token = column % kWidth;
    if ((column < kWidth) != (reads == Reads::kToken) || token >= kVocab) return 0.f;
    const auto next = static_cast<uint64_t>(kNext[token]);
    return row == (reads == Reads::kHidden ? next : token) ? 1.f : 0.f;
  });
  return file.build();
}

// The bytes outlive it.
std::shared_ptr<const Model> load_bytes(const std::string& bytes) {
  auto model = load(bytes);
  INFO((model ? "" : model.error().message));
  REQUIRE(model.ok());
  return *std::move(model);
}

struct Answer final : EventSink {
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      if (event.branch >= branches.size()) branches.resize(event.branch + 1);
      if (event.token >= 0 && !event.is_prompt) branches[event.branch].push_back(event.token);
    }
  }
  std::vector<std::vector<int32_t>> branches;
};

struct Told {
  std::vector<std::vector<std::vector<int32_t>>> answers;
  EngineStats stats;
};

EngineConfig config_of(uint64_t kv_blocks = 64) {
  EngineConfig config;
  config.context_max = 256;
  config.kv_tokens = kv_blocks * 16;
  config.sequences_max = 8;
  config.penalty_rows_max = 8;
  config.step_tokens_max = 32;
  config.audit_steps = 1;
  config.kv_dtype = KvDType::kF16;
  return config;
}

Request request_of(std::vector<int32_t> prompt, uint64_t seed, bool drafts) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = 40;
  request.stop.ignore_eos = true;
  request.sampling.seed = seed;
  if (drafts) request.speculation = Speculation{nullptr, kDraftTokensDefault, /*by_model=*/true};
  return request;
}

Told run(const std::string& bytes, std::vector<Request> requests, const EngineConfig& config = config_of()) {
  const std::shared_ptr<const Model> model = load_bytes(bytes);
  SimClock clock;
  auto engine = Engine::create(config, model, nullptr, make_validating(make_reference_backend()), &clock, {},
                               DraftParts{model->draft_head, make_validating(make_reference_backend())});
  INFO((engine ? "" : engine.error().message));
  REQUIRE(engine.ok());
  std::vector<std::shared_ptr<Answer>> sinks;
  for (Request& request : requests) {
    request.sink = sinks.emplace_back(std::make_shared<Answer>());
    REQUIRE((*engine)->submit(std::move(request)).ok());
  }
  for (bool worked = true; worked;) {
    const Result<bool> tick = (*engine)->tick();
    INFO((tick ? "" : tick.error().message));
    REQUIRE(tick.ok());
    worked = *tick;
  }
  Told told{{}, (*engine)->stats()};
  for (const auto& sink : sinks) told.answers.push_back(sink->branches);
  return told;
}

std::vector<Request> requests_of(float temperature, bool drafts) {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 5; ++i) {
    Request request = request_of({i, 3, 1, static_cast<int32_t>(i % 3)}, static_cast<uint64_t>(i), drafts);
    request.sampling.temperature = temperature;
    if (i == 1) request.n = 3;
    if (i == 2) request.sampling.presence_penalty = 0.5f;
    if (i == 3) request.prompt.assign(70, 2);  // several chunks
    if (i == 4) request.batch_invariant = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace

TEST_CASE("a head that goes by hidden states, or by tokens, foresees what the model says") {
  for (const Reads reads : {Reads::kHidden, Reads::kToken}) {
    const std::string bytes = model_bytes(reads);
    const Told told = run(bytes, {request_of({1, 4, 3}, 0, true)});
    REQUIRE(told.answers[0][0].size() == 40);
    int32_t last = 3;
    for (const int32_t token : told.answers[0][0]) {
      CHECK(token == kNext[last]);
      last = token;
    }
    const DraftStats& drafts = told.stats.drafts;
    CHECK(drafts.num_model_proposed >= 20);
    CHECK(drafts.num_model_accepted == drafts.num_model_proposed);
  }
}

TEST_CASE("drafts of a head change no answer, right or wrong, drawn at any temperature, however crowded") {
  for (const Reads reads : {Reads::kHidden, Reads::kToken, Reads::kWrong}) {
    const std::string bytes = model_bytes(reads, 0.5f);
    for (const float temperature : {0.0f, 0.8f, 1.5f}) {
      const Told without = run(bytes, requests_of(temperature, false));
      for (const uint64_t blocks : {64, 17}) {
        CAPTURE(static_cast<int>(reads), temperature, blocks);
        const Told with = run(bytes, requests_of(temperature, true), config_of(blocks));
        CHECK(with.answers == without.answers);
        CHECK(with.stats.drafts.num_model_proposed > 0);
      }
    }
  }
}

TEST_CASE("rows with and without drafts of a head run beside each other") {
  const std::string bytes = model_bytes(Reads::kHidden, 0.5f);
  std::vector<Request> mixed = requests_of(1.0f, true);
  for (size_t i = 0; i < mixed.size(); i += 2) mixed[i].speculation.reset();
  CHECK(run(bytes, std::move(mixed)).answers == run(bytes, requests_of(1.0f, false)).answers);
}

TEST_CASE("a head is asked for by name, and one that is missing is told") {
  const std::string foreseeing = model_bytes(Reads::kHidden), same = model_bytes(Reads::kToken),
                    plain = tiny_model().build();
  const auto with_head = load_bytes(foreseeing);
  auto head = load_draft_model(kOwnDraftHead, *with_head);
  REQUIRE(head.ok());
  CHECK((*head)->config.num_layers() == 1);
  CHECK_THAT(load_draft_model(kOwnDraftHead, *load_bytes(plain)).error().message,
             ContainsSubstring("--draft-model mtp: expected a model with a layer that drafts, found none"));
  // A part that it needs is not there: the model is used without.
  GgufBytes file = tiny_model();
  replace_pair(file, "llama.block_count", [&] { file.u32("llama.block_count", 2); });
  file.u32("llama.nextn_predict_layers", 1);
  add_idle_layer(file, 1);
  const std::string bytes = file.build();
  const auto lacking = load_bytes(bytes);
  CHECK(lacking->draft_head == nullptr);
  CHECK_THAT(load_draft_model(kOwnDraftHead, *lacking).error().message,
             ContainsSubstring("missing tensor: blk.1.nextn.enorm.weight"));
  // Another model's head is none.
  const auto other = load_bytes(same);
  SimClock clock;
  auto engine = Engine::create(config_of(), with_head, nullptr, make_reference_backend(), &clock, {},
                               DraftParts{other->draft_head, make_reference_backend()});
  REQUIRE_FALSE(engine.ok());
  CHECK_THAT(engine.error().message, ContainsSubstring("expected the model's own layer"));
}

TEST_CASE("hidden states are kept for positions in a row, and begin anew behind a gap") {
  HiddenRows rows;
  const auto put_at = [&](uint32_t position) {
    const float row[] = {static_cast<float>(position), -1.0f};
    rows.put(position, row);
  };
  const auto check = [&](uint32_t begin, uint32_t end) {
    CHECK(rows.begin() == begin);
    CHECK(rows.end() == end);
    for (uint32_t position = begin; position < end; ++position) CHECK(rows.at(position)[0] == position);
  };
  for (const uint32_t position : {7u, 8u, 9u}) put_at(position);
  check(7, 10);
  put_at(8);  // those behind are of a draft that was wrong
  check(7, 9);
  rows.drop_before(8);
  check(8, 9);
  put_at(12);
  check(12, 13);
  put_at(3);
  check(3, 4);
  rows.drop_before(100);
  CHECK(rows.begin() == rows.end());
  put_at(4);
  check(4, 5);
  for (uint32_t position = 5; position < 1000; ++position) put_at(position);
  CHECK(rows.end() == 1000);
  CHECK(rows.end() - rows.begin() <= 64);
  check(rows.begin(), rows.end());
}

}  // namespace llmrt::test
