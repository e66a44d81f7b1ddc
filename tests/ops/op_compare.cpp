// The judge: numbers within their bound, everything else bit for bit.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/ops/op_harness.h"
#include "tests/reference/number.h"

namespace llmrt::optest {
namespace {

struct Row {
  double difference = 0, norm = 0, worst = 0;
  uint32_t worst_column = 0;
  bool class_differs = false;  // NaN or an infinity on one side only
};

// One unit in the last place: what the result's own rounding may add to an error when the exact number lies near a tie.
double last_place(double number, DType dtype) {
  const int digits = dtype == DType::kF16 ? 10 : dtype == DType::kBF16 ? 7 : 0;
  return digits == 0 || number == 0 ? 0 : std::ldexp(1.0, std::ilogb(number) - digits);
}

Row compare_row(const std::byte* expected, const std::byte* actual, DType dtype, uint32_t columns) {
  Row row;
  for (uint32_t c = 0; c < columns; ++c) {
    const double want = reference::number_at(expected, dtype, c), got = reference::number_at(actual, dtype, c);
    if (want == got || (std::isnan(want) && std::isnan(got))) {
      if (std::isfinite(want)) row.norm += want * want;
      continue;
    }
    if (!std::isfinite(want) || !std::isfinite(got)) {
      row.class_differs = true;
      row.worst_column = c;
      row.worst = INFINITY;
      continue;
    }
    row.norm += want * want;
    row.difference += (want - got) * (want - got);
    const double error = std::abs(want - got) - last_place(std::max(std::abs(want), std::abs(got)), dtype);
    if (error > row.worst) {
      row.worst = error;
      row.worst_column = c;
    }
  }
  return row;
}

std::string describe(const TensorDesc& desc, uint32_t r, const Row& row, const std::byte* expected,
                     const std::byte* actual) {
  return fmt::format("{}[{}, {}]: expected {}, found {}", desc.name, r, row.worst_column,
                     reference::number_at(expected, desc.dtype, row.worst_column),
                     reference::number_at(actual, desc.dtype, row.worst_column));
}

Tolerance tolerance_of(const Output& output, DType math, uint32_t bucket, const Caps& caps) {
  const auto holds = [&](uint32_t rows_min) { return math == DType::kF16 && rows_min > 0 && bucket >= rows_min; };
  if (output.tolerance != Tolerance::kMatmul) return output.tolerance;
  if (output.of_quantized && holds(caps.byte_inputs_rows_min)) return Tolerance::kMatmulBytes;
  return holds(caps.half_sums_rows_min) ? Tolerance::kMatmulHalves : output.tolerance;
}

// The first row that is out of bounds, in words.
std::string compare_output(const TensorDesc& desc, const Output& output, uint32_t rows, uint32_t bucket,
                           const std::byte* expected, const std::byte* actual, const Caps& caps) {
  const DType math = output.tolerance == Tolerance::kAttention ? caps.activation_dtype : output.math;
  if (output.tolerance == Tolerance::kAnything) return "";
  Bound bound = bound_of(tolerance_of(output, math, bucket, caps), desc.dtype, math);
  // With sums of products in f16 matmuls round three times as much, so nearly twice as large are the errors of numbers
  // that lay between two narrow ones, 8-bit keys and values above all.
  const double slack = output.slack * (caps.half_sums_rows_min > 0 ? 2 : 1);
  bound.norm += slack;
  bound.max += slack * 5;
  const uint64_t row_bytes = static_cast<uint64_t>(desc.columns) * dtype_bytes(desc.dtype);
  // What recurrent layers add up may cancel to nearly nothing in a row (q and k of the first token): a share of all
  // rows' magnitude is the least unit.
  double least_unit = output.scale;
  if (output.tolerance == Tolerance::kRecurrent && rows > 0) {
    double squares = 0;
    for (uint32_t r = 0; r < rows; ++r)
      squares += compare_row(expected + r * row_bytes, expected + r * row_bytes, desc.dtype, desc.columns).norm;
    least_unit = std::max(least_unit, 0.3 * std::sqrt(squares / (static_cast<double>(rows) * desc.columns)));
  }
  for (uint32_t r = 0; r < rows; ++r, expected += row_bytes, actual += row_bytes) {
    if (std::memcmp(expected, actual, row_bytes) == 0) continue;
    const Row row = compare_row(expected, actual, desc.dtype, desc.columns);
    const std::string place = describe(desc, r, row, expected, actual);
    if (row.class_differs) return place;
    if (output.tolerance == Tolerance::kExact || desc.dtype == DType::kI32) {
      if (row.difference > 0) return place + ", must be equal";
      continue;
    }
    const double unit = std::max(std::sqrt(row.norm / desc.columns), least_unit);
    const double norm = std::sqrt(row.difference / desc.columns);
    // The bound is one for long rows; the rms of a few independent errors scatters by 1 / sqrt(2 n) about its mean, and
    // a run compares tens of thousands of rows: four deviations.
    const double norm_bound = bound.norm * unit * (1 + 4 / std::sqrt(2.0 * desc.columns));
    if (norm > norm_bound || row.worst > bound.max * unit)
      return fmt::format("{}; row: rms {:.3g}, rms error {:.3g} of {:.3g}, worst {:.3g} of {:.3g}", place, unit, norm,
                         norm_bound, row.worst, bound.max * unit);
  }
  return "";
}

// 8-bit numbers in their order, neighbours one apart.
int rank_of(KvDType dtype, std::byte bits) {
  if (kv_is_i8(dtype)) return static_cast<int8_t>(bits);
  const int magnitude = std::to_integer<int>(bits & std::byte{0x7f});
  return (bits & std::byte{0x80}) == std::byte{0} ? magnitude : -magnitude;
}

// Numbers that were not written, and all without a tolerance, bit for bit.
std::string compare_record(const KvGroup& group, double tolerance, const std::vector<std::byte>& before,
                           const std::vector<std::byte>& expected, const std::vector<std::byte>& actual) {
  if (expected == actual) return "";
  if (before == expected) return "written, must keep its bits";
  const auto same = [](const std::vector<std::byte>& a, const std::vector<std::byte>& b, uint32_t c) {
    return std::memcmp(a.data() + c * 4, b.data() + c * 4, 4) == 0;
  };
  double sum = 0;
  uint32_t written = 0;
  for (uint32_t c = 0; c < group.state_columns; ++c) {
    if (same(before, expected, c)) continue;
    const double number = reference::number_at(expected.data(), DType::kF32, c);
    sum += number * number;
    ++written;
  }
  const double bound = tolerance * std::sqrt(sum / written);
  for (uint32_t c = 0; c < group.state_columns; ++c) {
    if (same(expected, actual, c)) continue;
    const double want = reference::number_at(expected.data(), DType::kF32, c),
                 got = reference::number_at(actual.data(), DType::kF32, c);
    if (!same(before, expected, c) && std::abs(want - got) <= bound) continue;
    return fmt::format("number {}: expected {}, found {}, bound {:.3g}", c, want, got, bound);
  }
  return "";
}

// f16 and bf16 numbers within kv_tolerance (relative), 8-bit ones within one step, a vector (token, head) that the
// reference left alone with its old bits.
std::string compare_kv(const KvGroup& group, const Case& test_case, const std::vector<std::byte>& before,
                       const std::vector<std::byte>& expected, const std::vector<std::byte>& actual) {
  if (group.is_state()) return compare_record(group, test_case.state_tolerance, before, expected, actual);
  const uint64_t vectors = uint64_t{group.vectors_token()} * group.block_tokens;
  const uint64_t vector_bytes = static_cast<uint64_t>(group.head_dim) * kv_element_bytes(group.dtype);
  const uint32_t num_scales = group.scales_vector();
  const auto scale_of = [&](const std::vector<std::byte>& bytes, uint64_t v, uint32_t i) {
    float scale;
    std::memcpy(&scale, bytes.data() + vectors * vector_bytes + (v * num_scales + i) * 4, 4);
    return scale;
  };
  const auto same = [&](const auto& a, const auto& b, uint64_t v) {
    const uint64_t scale_bytes = num_scales * 4, scales = vectors * vector_bytes + v * scale_bytes;
    return std::memcmp(a.data() + v * vector_bytes, b.data() + v * vector_bytes, vector_bytes) == 0 &&
           std::memcmp(a.data() + scales, b.data() + scales, scale_bytes) == 0;
  };
  for (uint64_t v = 0; v < vectors; ++v) {
    if (same(expected, actual, v)) continue;
    const std::string place =
        fmt::format("{} head {} token {}", v / group.block_tokens >= group.num_kv_heads ? "v" : "k",
                    v / group.block_tokens % group.num_kv_heads, v % group.block_tokens);
    if (same(before, expected, v)) return place + ": written, must keep its bits";
    if (test_case.kv_exact) return place + ": must be equal";
    for (uint32_t i = 0; i < num_scales; ++i) {
      const float want = scale_of(expected, v, i), got = scale_of(actual, v, i);
      if (!(std::abs(want - got) <= 1e-6f * want))
        return fmt::format("{}: scale {}: expected {}, found {}", place, i, want, got);
    }
    uint32_t off_by_one = 0;
    for (uint32_t i = 0; i < group.head_dim; ++i) {
      const uint64_t at = v * group.head_dim + i;
      if (kv_element_bytes(group.dtype) == 1) {
        const int want = rank_of(group.dtype, expected[at]), got = rank_of(group.dtype, actual[at]);
        if (want != got) ++off_by_one;
        if (std::abs(want - got) > 1) return fmt::format("{} dim {}: expected {}, found {}", place, i, want, got);
        continue;
      }
      const DType dtype = group.dtype == KvDType::kF16 ? DType::kF16 : DType::kBF16;
      const double want = reference::number_at(expected.data(), dtype, at),
                   got = reference::number_at(actual.data(), dtype, at);
      // Numbers below the normal range of f16 may be flushed to zero.
      const bool tiny = dtype == DType::kF16 && std::abs(want) < 6.2e-5 && got == 0;
      if (!tiny && !(std::abs(want - got) <= test_case.kv_tolerance * std::abs(want) + test_case.kv_slack))
        return fmt::format("{} dim {}: expected {}, found {}", place, i, want, got);
    }
    // Ties of a rounded quotient may fall either way, and no more than ties.
    if (off_by_one > 1 + group.head_dim / 32)
      return fmt::format("{}: {} of {} numbers are one off", place, off_by_one, group.head_dim);
  }
  return "";
}

}  // namespace

std::vector<std::string> compare(const Case& test_case, const Outcome& expected, const Outcome& actual,
                                 const Caps& caps) {
  std::vector<std::string> failures;
  const auto note = [&](const std::string& where, const std::string& failure) {
    if (!failure.empty()) failures.push_back(where + failure);
  };
  for (size_t s = 0; s < test_case.steps.size(); ++s) {
    const Step& step = test_case.steps[s];
    const std::string where = test_case.steps.size() > 1 ? fmt::format("step {}: ", s) : "";
    for (const auto& [id, bytes] : actual.tensors[s]) {
      const TensorDesc& desc = step.tensor_list().tensors[static_cast<size_t>(id)];
      const auto output =
          std::find_if(step.outputs.begin(), step.outputs.end(), [&](auto& o) { return o.tensor == id; });
      if (output == step.outputs.end()) {
        if (desc.storage == Storage::kPinned && bytes != bytes_before(step, id))
          note(where, desc.name + ": changed, must keep its bits");
      } else if (!test_case.check_tensors) {
        const uint32_t bucket = step.tensor_list().rows_of(id);
        const uint32_t rows = output->with_padding ? bucket : step.live_rows(id);
        note(where, compare_output(desc, *output, rows, bucket, expected.tensors[s].at(id).data(), bytes.data(), caps));
      }
    }
  }
  for (size_t g = 0; g < actual.kv.size(); ++g)
    for (size_t layer = 0; layer < actual.kv[g].size(); ++layer)
      for (size_t block = 0; block < actual.kv[g][layer].size(); ++block)
        note(fmt::format("kv group {} layer {} block {} ", g, layer, block),
             compare_kv(test_case.groups[g], test_case, test_case.kv[g][layer][block], expected.kv[g][layer][block],
                        actual.kv[g][layer][block]));
  if (test_case.check_tensors)
    for (const std::string& failure : test_case.check_tensors(expected, actual)) note("", failure);
  if (test_case.check_results)
    for (const std::string& failure : test_case.check_results(expected.outputs, actual.outputs)) note("", failure);
  return failures;
}

}  // namespace llmrt::optest
