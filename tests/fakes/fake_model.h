// A language model made of hashes, and what it answers to a request that runs alone. Like a decoder of two layers: what
// a position stores in layer 0 depends on its token, position and adapter, in layer 1 on everything before it; the next
// token depends on both sums over the whole context and on every sampling parameter. So one wrong key, position, slot,
// seed or count changes the text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/model.h"
#include "core/ops/step_inputs.h"
#include "core/request/request.h"
#include "core/sample/token_mask.h"
#include "core/text/tokenizer.h"

namespace llmrt::test {

inline constexpr uint32_t kFakeVocab = 64;
inline constexpr uint32_t kFakeContextMax = 4096;
inline const std::vector<int32_t> kFakeEnds = {0, 1};

inline uint64_t mix(uint64_t a, uint64_t b) {  // the finaliser of splitmix64
  uint64_t x = a * 0x9e3779b97f4a7c15ull + b + 0x632be59bd9b4e019ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// What a position stores in the KV pool.
struct FakeCell {
  uint64_t layer0 = 0, layer1 = 0;
};
uint64_t fake_layer0(int32_t token, uint32_t position, uint32_t adapter_id);
// That of the request at a position; 0 = none.
uint32_t adapter_at(const Request& request, uint32_t position);
// `sum0`: over the cells of all positions up to and including this one (read_cell of each).
uint64_t fake_layer1(uint64_t layer0, uint64_t sum0);
uint64_t fake_hidden(uint64_t sum0, uint64_t sum1, uint32_t position);
inline uint64_t read_cell(uint64_t stored) {  // what attention adds up
  return mix(stored, 17);
}
// A running sum over tokens in their order: what a record of a group of states holds.
uint64_t fake_state(uint64_t before, uint64_t layer0);

// A KV group of the model: two layers of attention with a window, or one with a state. What the groups make of a token
// is mixed.
struct FakeGroup {
  bool is_state = false;
  uint32_t window = 0;  // 0 = all
};

// The model, token by token, from its meaning.
class FakeReader {
 public:
  // `request` outlives it.
  FakeReader(std::span<const FakeGroup> groups, const Request& request);
  uint64_t read(int32_t token);  // the hidden state behind it

 private:
  struct Sums {
    FakeGroup group;
    uint64_t sum0 = 0, sum1 = 0, state = 0;
    std::vector<FakeCell> cells;  // by position
  };
  uint64_t read(Sums& sums, uint64_t layer0);

  std::vector<Sums> sums_;
  const Request* request_;
  uint32_t position_ = 0;
};
uint64_t mix_groups(uint64_t of_former, uint64_t hidden, uint32_t group);

// Token counts of a row with penalties.
struct FakeCounts {
  uint64_t prompt = 0, output = 0;
  void add_prompt(int32_t token) { prompt += mix(static_cast<uint64_t>(token), 11); }
  void add_output(int32_t token) { output += mix(static_cast<uint64_t>(token), 12); }
};
// The draw. `poison`: one hidden state in so many is not finite (0 = none).
SampleResult fake_draw(uint64_t hidden, const RowSampling& row, const FakeCounts& counts, uint32_t output_position,
                       std::span<const BiasEntry> bias, uint32_t poison, const TokenMask* mask = nullptr);
float fake_logprob(uint64_t hidden, int32_t token);
SampleResult fake_score(uint64_t hidden, int32_t token, uint32_t poison);

inline constexpr FakeGroup kOneFakeGroup[1] = {};

// What a client gets to see.
struct FakeAnswer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;         // of the sampled tokens, when asked for
  std::vector<float> prompt_logprobs;  // of prompt tokens 1.., when asked for
  std::string text;
  FinishReason finish = FinishReason::kNone;
};
// The request alone, from its meaning: no blocks, no slots, no batches. It knows nothing of cancels and deadlines.
FakeAnswer answer_alone(const Request& request, const Tokenizer& tokenizer, uint32_t poison,
                        std::span<const FakeGroup> groups = kOneFakeGroup);

// The same with beam search: the answer of each branch.
std::vector<FakeAnswer> beams_alone(const Request& request, const Tokenizer& tokenizer, uint32_t poison,
                                    std::span<const FakeGroup> groups = kOneFakeGroup);

// One layer, or one of attention and one with a state (FakeGroup by FakeGroup: kFakeHybrid); no weights.
std::shared_ptr<const Model> make_fake_model(bool is_hybrid = false);
inline const std::vector<FakeGroup> kFakeHybrid = {{}, {.is_state = true}};
// Bytes "a", "b", "ab" or none for each token; ends: kFakeEnds.
std::shared_ptr<const Tokenizer> make_fake_tokenizer();

}  // namespace llmrt::test
