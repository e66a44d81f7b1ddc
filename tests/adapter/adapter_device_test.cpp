// From an adapter's file to a device: two adapters go through the pool's books into the reference backend, and its ops
// give each row the products of its own adapter.
#include <cmath>

#include "core/adapter/adapter_pool.h"
#include "core/backend/validating.h"
#include "tests/adapter/adapter_bytes.h"
#include "tests/reference/backend.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

// q and k of the tiny llama, as the rows of its group; v is not changed.
std::vector<double> expected_rows(const std::vector<TestLora>& loras, double scale, const float* x) {
  std::vector<double> out;
  for (const TestLora& lora : {loras[0], loras[1]}) {
    const TestMatrix b = neighbours(lora.b, lora.heads);
    for (uint64_t row = 0; row < b.rows; ++row) {
      double sum = 0;
      for (uint64_t j = 0; j < lora.a.rows; ++j)
        for (uint64_t k = 0; k < lora.a.columns; ++k) sum += double{b.at(row, j)} * lora.a.at(j, k) * x[k];
      out.push_back(scale * sum);
    }
  }
  out.resize(64, 0);
  return out;
}

AdapterTicket hold(AdapterPool& pool, Backend& backend, const Adapter& adapter, DType dtype) {
  auto image = make_image(adapter, dtype);
  REQUIRE(image.ok());
  const auto ticket = pool.want(std::make_shared<AdapterImage>(*std::move(image)), 0);
  REQUIRE(ticket.ok());
  for (int call = 0; call < 1000 && !*pool.try_hold(*ticket, 0); ++call)
    for (const AdapterWrite& write : pool.next_writes(1000, 0))
      REQUIRE(backend.write_adapter_pool(write.pool_offset, write.bytes).ok());
  REQUIRE(*pool.try_hold(*ticket, 0));
  return *ticket;
}

}  // namespace

TEST_CASE("each row of a step gets the products of its own adapter") {
  const auto model = tiny_llama();
  const auto few = usual_loras(4), many = usual_loras(13);
  const auto a = expect_ok(read_peft(peft_config(), peft_tensors(few), *model));
  const auto b = expect_ok(read_peft(peft_config("", 13), peft_tensors(many), *model));
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    CAPTURE(dtype_name(dtype));
    const auto backend = make_validating(std::make_unique<ReferenceBackend>(ReferenceConfig{dtype, 1}));
    REQUIRE(backend->load_weights(model->weights, {}).ok());
    StateConfig state;
    state.step_tokens_max = state.slots_max = 4;
    state.sample_rows_max = state.penalty_rows_max = state.blocks_row_max = state.heads_max = 1;
    state.head_dim_max = state.hidden_columns = 1;
    state.vocab_size = 8;
    state.forward_words_max = state.sample_words_max = 4096;
    state.arena_bytes = 1u << 20;
    REQUIRE(backend->create_state(state).ok());
    AdapterPoolLimits limits;
    limits.slots_max = 3;
    limits.num_groups = static_cast<uint32_t>(model->weights.groups.size());
    limits.bytes = 16 * kAdapterPageBytes;
    REQUIRE(backend->create_adapter_pool({limits.bytes, limits.slots_max}).ok());
    AdapterPool pool(limits);
    const AdapterTicket of_a = hold(pool, *backend, *a, dtype), of_b = hold(pool, *backend, *b, dtype);

    OpList list;
    list.name = "forward";
    list.num_tokens = 4;
    const TensorId x = list.add_tensor({"x", Rows::kTokens, 32, dtype, Storage::kPinned});
    const TensorId y = list.add_tensor({"y", Rows::kTokens, 32, DType::kF32});
    const TensorId out = list.add_tensor({"out", Rows::kTokens, 64, DType::kF32, Storage::kPinned});
    list.ops = {AdapterShrink{x, model->layers[0].qkv, y}, AdapterExpand{y, model->layers[0].qkv, out}};
    const SealedList sealed(list);
    const TestMatrix matrix = test_matrix(4, 32, 50);
    const std::vector<float>& rows = matrix.numbers;
    const std::string x_bytes = bytes_of(matrix, dtype == DType::kF32 ? "F32" : dtype == DType::kF16 ? "F16" : "BF16");
    const std::vector<float> before(4 * 64, 1);
    REQUIRE(backend->write_tensor(sealed, x, as_span(x_bytes)).ok());
    REQUIRE(backend->write_tensor(sealed, out, std::as_bytes(std::span(before))).ok());
    ForwardInputs inputs;
    for (uint32_t row = 0; row < 3; ++row) {
      inputs.rows.push_back({row, 0, 1, row});
      inputs.tokens.push_back(0);
      inputs.token_rows.push_back(row);
    }
    const uint32_t slot_a = pool.slot_of(of_a), slot_b = pool.slot_of(of_b);
    inputs.rows[0].adapter_id = slot_b + 1;
    inputs.rows[2].adapter_id = slot_a + 1;
    inputs.adapter_items = {{slot_a, 0, 1}, {slot_b, 1, 1}};
    inputs.adapter_rows = {{2, 1.0f}, {0, 0.5f}};
    std::vector<uint32_t> words;
    pack(inputs, &words);
    StepSubmission step;
    step.forward = &sealed;
    step.forward_inputs = words;
    const auto submitted = backend->submit(step);
    INFO((submitted.ok() ? "" : submitted.error().message));
    REQUIRE(submitted.ok());
    REQUIRE(backend->wait(*submitted).ok());
    std::vector<float> found(4 * 64);
    REQUIRE(backend->read_tensor(sealed, out, std::as_writable_bytes(std::span(found))).ok());
    const auto expected_a = expected_rows(few, 2, rows.data() + 2 * 32);
    const auto expected_b = expected_rows(many, 0.5 * static_cast<float>(8.0 / 13), rows.data());
    for (size_t n = 0; n < 64; ++n) {
      CHECK(std::abs(found[n] - 1 - expected_b[n]) <= 1e-4 * (1 + std::abs(expected_b[n])));
      CHECK(found[64 + n] == 1);
      CHECK(std::abs(found[2 * 64 + n] - 1 - expected_a[n]) <= 1e-4 * (1 + std::abs(expected_a[n])));
    }
  }
}
