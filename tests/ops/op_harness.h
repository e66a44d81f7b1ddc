// One table of cases serves every op test. A Suite is a set of weights and a list of Cases; a Case is one or more steps
// on one backend; run() executes each case on the float64 reference and on every device that is there and compares.
// Inputs are fresh random numbers (seed: Catch's --rng-seed, printed on failure); outputs and padding rows are poisoned
// with NaN before a step; inputs, guard tensors behind each output and KV blocks that nothing wrote must keep their
// bits.
//
// Devices: all that list_devices() calls usable, or LLMRT_TEST_DEVICES=vulkan:0,cuda:0 ("reference" = the reference
// itself, "none"). A device that is absent, or lacks an op, is a counted skip with its reason.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "tests/reference/tolerance.h"

namespace llmrt::optest {

// The unit of the bounds is at least Output::scale.
using reference::Bound;
using reference::bound_of;
using reference::Tolerance;

struct Fill {
  TensorId tensor;
  std::vector<double> values;  // of the live rows, row-major
};
struct Output {
  TensorId tensor;
  Tolerance tolerance;
  DType math = DType::kF32;
  double scale = 0;           // expected magnitude; for sums that may cancel to nothing
  bool with_padding = false;  // the op defines its padding rows too
  double slack = 0;           // added to the bound: an error that grows with the data, such as a position
  bool of_quantized = false;  // what a matmul of quantised weights gave
};

// One submission. Tensors that are filled or compared are pinned; only one of the two lists may have any, as both lie
// in one arena.
struct Step {
  OpList memory{"memory", 0, 0, {}, {}};
  OpList forward{"forward", 0, 0, {}, {}};
  OpList sample{"sample", 0, 0, {}, {}};
  ForwardInputs forward_inputs;
  SampleInputs sample_inputs;
  bool want_logprobs = false;
  std::vector<Fill> fills;
  std::vector<Output> outputs;
  std::vector<TensorId> guards;

  const OpList& tensor_list() const { return forward.tensors.empty() ? sample : forward; }
  OpList& tensor_list() { return forward.tensors.empty() && !sample.ops.empty() ? sample : forward; }
  uint32_t live_rows(TensorId id) const;

  // `rows` decides the list: kTokens adds to forward, kSampled to sample.
  TensorId input(Rows rows, std::string name, uint32_t columns, DType dtype, std::vector<double> values);
  TensorId output(Rows rows, std::string name, uint32_t columns, DType dtype, Tolerance tolerance,
                  DType math = DType::kF32, double scale = 0);
  TensorId inout(Rows rows, std::string name, uint32_t columns, DType dtype, std::vector<double> values,
                 Tolerance tolerance);
  // The same in a list that the caller names, for tensors of routed rows.
  TensorId input_in(OpList& list, Rows rows, std::string name, uint32_t columns, DType dtype,
                    std::vector<double> values);
  TensorId output_in(OpList& list, Rows rows, std::string name, uint32_t columns, DType dtype, Tolerance tolerance,
                     DType math = DType::kF32, double scale = 0);
  Output& last_output() { return outputs.back(); }

  // A row of `num_tokens` at positions start, start + 1, ... and its tokens (token ids, or zeros). Returns its index.
  uint32_t add_row(uint32_t slot, uint32_t start, uint32_t num_tokens, const std::vector<int32_t>& tokens = {});
  // T of the list, at least the live tokens; R likewise.
  void set_bucket(uint32_t num_tokens, uint32_t num_sampled = 0);

  // So many live rows of one kind, kTokens or kSampled, in a list of that size, which is returned.
  OpList& set_rows(Rows rows, uint32_t live, uint32_t bucket);

  void set_sampling(uint32_t slot, const RowSampling& sampling);
  void patch_table(uint32_t slot, uint32_t first, const std::vector<uint32_t>& blocks, uint32_t kv_group = 0);
  void add_update(RowUpdateKind kind, uint32_t slot, uint32_t arg0, uint32_t arg1,
                  const std::vector<uint32_t>& payload = {});
  // Work items of row `row_idx`: decode items with splits of `split_keys` keys (counted from position 0) and their
  // merges, or prompt tiles of kPromptItemTokens. A window drops the splits that it hides. With `item_tokens` above 1
  // so many tokens are one decode item; in a batch-invariant list only those that have the same splits and the same
  // first tile of keys.
  void add_decode_items(uint32_t row_idx, uint32_t split_keys, uint32_t window = 0, uint32_t kv_group = 0,
                        uint32_t item_tokens = 1);
  void add_prompt_items(uint32_t row_idx, uint32_t window = 0, uint32_t splits = 1, uint32_t kv_group = 0);
};

// What an adapter of a slot adds to a weight group; a part for each of its segments, rank 0 where it adds nothing.
struct AdapterPart {
  uint32_t rank = 0, num_rows = 0;
  std::vector<double> a, b;  // [rank, K], [num_rows, rank]
  float scale = 1;
};
struct AdapterOf {
  uint32_t slot;
  WeightGroupId group;
  std::vector<AdapterPart> parts;
  // On a stack the parts are an expert's; a and b have those of num_experts experts from expert_first on, one behind
  // the other, or one for all.
  uint32_t expert_first = 0, num_experts = 0;
  bool shares_a = false, shares_b = false;
};

using KvBytes = std::vector<std::vector<std::vector<std::byte>>>;  // [layer][block]: write_kv's bytes

struct Case {
  std::string name;
  std::string variant;  // for the coverage table: an encoding, a KV dtype, ...
  std::vector<Step> steps;
  std::vector<KvGroup> groups;      // one pool each; empty = the suite's pools stay
  std::vector<KvBytes> kv;          // contents before the first step, by group; empty = zeros
  std::vector<AdapterOf> adapters;  // all that the pool holds
  double kv_tolerance = 0;          // of f16 and bf16 numbers written, relative; int8 may round a tie the other way
  double kv_slack = 0;              // the same, absolute: of numbers that may cancel to nothing
  bool kv_exact = false;            // not even that: KV is moved, not computed
  double state_tolerance = 0;       // of numbers of records: of the root mean square of those that were written
  // Looks at results that tensors do not show (StepOutput of each step); returns what is wrong.
  std::function<std::vector<std::string>(const std::vector<StepOutput>& expected,
                                         const std::vector<StepOutput>& actual)>
      check_results;
  // Instead of the plain comparison of `outputs`: gets every tensor's bytes by step.
  std::function<std::vector<std::string>(const struct Outcome& expected, const struct Outcome& actual)> check_tensors;
};

struct Outcome {
  std::vector<StepOutput> outputs;                                  // by step
  std::vector<std::map<TensorId, std::vector<std::byte>>> tensors;  // by step
  std::vector<KvBytes> kv;                                          // by group, after the last step
};

struct Suite {
  WeightTable weights;
  std::vector<Case> cases;
  uint64_t f16_copies_max = 0;  // bytes
  // What no list shows; the rest is computed from the cases.
  uint32_t slots_max = 16, penalty_rows_max = 4, vocab_size = 1;

  // A tensor of random numbers of about the given standard deviation, as random encoded bits.
  WeightId add_weight(Encoding encoding, uint64_t rows, uint64_t columns, std::mt19937_64& rng, double deviation = 1);
  WeightId add_f32(const std::vector<float>& row);
  // A group of whole tensors; with a random bias when asked.
  WeightGroupId add_group(const std::vector<WeightId>& tensors, bool bias, std::mt19937_64& rng);
};

// What a tensor holds before the step: the fill in its live rows, poison elsewhere.
std::vector<std::byte> bytes_before(const Step& step, TensorId id);
StateConfig state_config(const Suite& suite, const Backend& backend);
// num_groups: of the weights that the backend has.
Result<Outcome> execute(Backend& backend, const Case& test_case, size_t num_groups = 0);
// The pool of a case's adapters, as it lies on a device whose numbers are of that type.
struct AdapterPoolBytes {
  AdapterPoolConfig config;
  std::vector<std::byte> bytes;
};
AdapterPoolBytes adapter_pool(const std::vector<AdapterOf>& adapters, size_t num_groups, DType dtype);
// The same on the reference alone, for tests that look at what it gave.
Outcome reference_outcome(const Suite& suite, const Case& test_case);
// Everything that differs by more than its bound, in words; empty = equal.
std::vector<std::string> compare(const Case& test_case, const Outcome& expected, const Outcome& actual,
                                 const Caps& caps);

// The test: every case on every device.
void run(const Suite& suite);

std::mt19937_64 test_rng(const std::string& name);  // from Catch's seed and the name
std::vector<double> random_normal(std::mt19937_64& rng, size_t count, double deviation = 1, DType dtype = DType::kF32);
KvBytes random_kv(const KvGroup& group, std::mt19937_64& rng);
std::vector<float> rope_frequencies(uint32_t rope_dim);  // of base 10,000
// Distinct block ids in random order.
std::vector<uint32_t> random_blocks(uint32_t num_blocks, uint32_t count, std::mt19937_64& rng);
std::vector<Encoding> all_encodings();

}  // namespace llmrt::optest
