// llmrt-bench limits: what a device reaches with the simplest work there is, through the backend's own kernels:
//   copy    the scale op over tensors far larger than any cache, bytes read plus bytes written
//   read    a product of one row with a 2 GiB f16 matrix: nothing but reading
//   matrix  a product of 8192 rows with an 8192 x 8192 f16 matrix
// Best of several runs each, by device timestamps.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/json.hpp>
#include <cstring>
#include <fstream>

#include "backends/backends.h"
#include "core/base/checked_math.h"
#include "tools/llmrt_bench/commands.h"

namespace llmrt::bench {
namespace {

constexpr int kRuns = 10;  // after two that warm up

struct Options {
  std::vector<std::string> devices{"auto"};
  std::string json_path;
  uint32_t size = 8192;  // of the product; CPU devices: smaller
  uint64_t read_bytes = 2ull << 30;
};

// f16 numbers in [-0.06, 0.06], never zeros: chips run faster on those.
void random_halves(uint64_t byte_offset, std::span<std::byte> out) {
  for (size_t i = 0; i + 2 <= out.size(); i += 2) {
    const uint64_t h = (byte_offset + i) * 0x9e3779b97f4a7c15ull;
    const uint16_t half = static_cast<uint16_t>((h >> 48 & 0x83ffu) | (0x2400u + (h >> 33 & 0x0400u)));
    std::memcpy(out.data() + i, &half, 2);
  }
}

WeightTable matrices(std::span<const std::pair<uint64_t, uint64_t>> shapes) {
  WeightTable table;
  for (const auto& [rows, columns] : shapes) {
    const auto id = static_cast<WeightId>(table.tensors.size());
    table.tensors.push_back({fmt::format("matrix{}", id), Encoding::kF16, rows, columns, nullptr, random_halves});
    table.groups.push_back({fmt::format("matrix{}", id), {{id, 0, rows}}, -1, rows, columns});
  }
  return table;
}

struct Bench {
  Backend* backend;
  std::vector<uint32_t> words;

  // Best device time of a list of one op; inputs are random, written before.
  Result<double> best_ms(const OpList& list, std::span<const TensorId> inputs) {
    for (TensorId id : inputs) {
      std::vector<std::byte> bytes(list.bytes_of(id));
      random_halves(0, bytes);
      if (list.tensors[id].dtype == DType::kF32)  // as floats near 1
        for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
          const float value = 1.0f + static_cast<float>(i % 1021) * 1e-3f;
          std::memcpy(bytes.data() + i, &value, 4);
        }
      if (Status status = backend->write_tensor(list, id, bytes); !status) return status.error();
    }
    ForwardInputs step;
    step.tokens.assign(list.num_tokens, 0);
    step.token_rows.assign(list.num_tokens, 0);
    pack(step, &words);
    double best = 1e30;
    for (int run = 0; run < kRuns + 2; ++run) {
      Result<Ticket> ticket = backend->submit({.forward = &list, .forward_inputs = words});
      if (!ticket) return ticket.error();
      Result<StepOutput> output = backend->wait(*ticket);
      if (!output) return output.error();
      if (run >= 2) best = std::min(best, output->forward_ms);
    }
    return best;
  }
};

struct Limits {
  std::string device, name;
  double copy_gb_s = 0, read_gb_s = 0, matrix_tflop_s = 0;
};

Result<Limits> measure(const Options& options, const std::string& device) {
  Result<std::unique_ptr<Backend>> backend = open_device(device);
  if (!backend) return backend.error();
  const Caps& caps = (*backend)->caps();
  Limits limits;
  limits.device = caps.device_id;
  limits.name = caps.device_name;
  const uint32_t size = caps.is_cpu ? 512 : std::min(options.size, caps.step_tokens_max);
  const uint64_t range = std::min<uint64_t>(caps.range_bytes_max, caps.is_cpu ? 64ull << 20 : options.read_bytes);
  constexpr uint32_t kReadColumns = 8192;
  const std::pair<uint64_t, uint64_t> shapes[] = {{range / (kReadColumns * 2), kReadColumns}, {size, size}};
  const WeightTable weights = matrices(shapes);
  if (Status status = (*backend)->load_weights(weights, {}); !status) return status.error();

  OpList copy{"forward", size, 0, {}, {}};
  const uint32_t columns = static_cast<uint32_t>(std::min<uint64_t>(range / 4 / size, 32768) / 8 * 8);
  const TensorId copy_x = copy.add_tensor({"x", Rows::kTokens, columns, DType::kF32, Storage::kPinned});
  const TensorId copy_out = copy.add_tensor({"out", Rows::kTokens, columns, DType::kF32, Storage::kPinned});
  copy.ops.emplace_back(Scale{copy_x, 1.5f, copy_out});
  OpList read{"forward", 1, 0, {}, {}};
  const TensorId read_x = read.add_tensor({"x", Rows::kTokens, kReadColumns, caps.activation_dtype, Storage::kPinned});
  const TensorId read_out =
      read.add_tensor({"out", Rows::kTokens, static_cast<uint32_t>(shapes[0].first), DType::kF32, Storage::kPinned});
  read.ops.emplace_back(Matmul{read_x, 0, read_out});
  OpList matrix{"forward", size, 0, {}, {}};
  const TensorId matrix_x = matrix.add_tensor({"x", Rows::kTokens, size, caps.activation_dtype, Storage::kPinned});
  const TensorId matrix_out = matrix.add_tensor({"out", Rows::kTokens, size, DType::kF32, Storage::kPinned});
  matrix.ops.emplace_back(Matmul{matrix_x, 1, matrix_out});

  StateConfig state;
  state.step_tokens_max = size;
  state.sample_rows_max = 1;
  state.slots_max = 1;
  state.penalty_rows_max = 1;
  state.blocks_row_max = 1;
  state.partials_max = 1;
  state.heads_max = 1;
  state.head_dim_max = 64;
  state.hidden_columns = 64;
  state.vocab_size = 64;
  state.forward_words_max = kForwardHeaderWords + 64 + 2ull * size;
  state.sample_words_max = kSampleHeaderWords + 64;
  for (const OpList* list : {&copy, &read, &matrix})
    state.arena_bytes = std::max(state.arena_bytes, plan_arena(*list, 256).bytes);
  if (Status status = (*backend)->create_state(state); !status) return status.error();

  Bench bench{backend->get(), {}};
  Result<double> copy_ms = bench.best_ms(copy, {&copy_x, 1});
  if (!copy_ms) return copy_ms.error();
  Result<double> read_ms = bench.best_ms(read, {&read_x, 1});
  if (!read_ms) return read_ms.error();
  Result<double> matrix_ms = bench.best_ms(matrix, {&matrix_x, 1});
  if (!matrix_ms) return matrix_ms.error();
  limits.copy_gb_s = 2.0 * static_cast<double>(copy.bytes_of(copy_x)) / *copy_ms * 1e-6;
  limits.read_gb_s = static_cast<double>(weights.tensors[0].bytes()) / *read_ms * 1e-6;
  limits.matrix_tflop_s = 2.0 * size * size * size / *matrix_ms * 1e-9;
  return limits;
}

Status run(const Options& options) {
  boost::json::array rows;
  fmt::print("| {:<10} | {:<28} | {:>10} | {:>10} | {:>14} |\n", "device", "name", "copy GB/s", "read GB/s",
             "matrix TFLOP/s");
  for (const std::string& device : options.devices) {
    Result<Limits> limits = measure(options, device);
    if (!limits) return limits.error();
    fmt::print("| {:<10} | {:<28} | {:>10.0f} | {:>10.0f} | {:>14.2f} |\n", limits->device, limits->name,
               limits->copy_gb_s, limits->read_gb_s, limits->matrix_tflop_s);
    rows.push_back({{"device", limits->device},
                    {"name", limits->name},
                    {"copy_gb_s", limits->copy_gb_s},
                    {"read_gb_s", limits->read_gb_s},
                    {"matrix_tflop_s", limits->matrix_tflop_s}});
  }
  if (!options.json_path.empty())
    std::ofstream(options.json_path) << boost::json::serialize(
        boost::json::object{{"command", "limits"}, {"rows", std::move(rows)}});
  return {};
}

}  // namespace

void add_limits_command(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("limits", "Copy and read bandwidth and matrix rate of each device, measured");
  command->add_option("-d,--device", options->devices, "Devices to measure (repeat)")->capture_default_str();
  command->add_option("--json", options->json_path, "Also write the figures to this file");
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
