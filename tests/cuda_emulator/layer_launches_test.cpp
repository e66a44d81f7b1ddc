// The kernels of a layer of an 8B model, pinned for each architecture, encoding and bucket of rows: a change of a
// threshold, a pattern or a kernel's shape shows here.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "tests/cuda_emulator/list_text.h"

namespace llmrt::cuda {
namespace {

// All but the kernels between qkv and attention's output, with what tells variants apart. + adds to the residual, *
// goes through the activation, ~ is in f16 for an activation behind it.
std::string kernels_of(const Program& program) {
  std::string text;
  for (const Launch& launch : program.launches) {
    std::string name = launch.choice.kernel;
    const std::string& variant = launch.choice.variant;
    if (name.starts_with("attention_") || name == "qkv_heads") continue;
    if (name.starts_with("matmul_")) name = name.substr(std::strlen("matmul_"));
    for (const std::string part : {"x=", "by=", "rows="}) {
      const size_t at = variant.find(part);
      if (at == std::string::npos) continue;
      const size_t begin = at + part.size();
      name += ":" + variant.substr(begin, variant.find(' ', begin) - begin);
    }
    if (variant.ends_with("-> added")) name += "+";
    if (variant.ends_with("-> gated")) name += "*";
    if (variant.ends_with("-> f16")) name += "~";
    text += fmt::format("{}{}", text.empty() ? "" : " ", name);
  }
  return text;
}

struct Row {
  const char *device, *encoding;
  uint32_t rows;
  const char* kernels;
};
constexpr Row kRows[] = {
    {"h100", "f16", 1, "stream:normed stream:kept+ rms_norm stream:kept* stream:ahead+ stream:normed"},
    {"h100", "f16", 8, "rms_norm stream:kept stream:kept+ rms_norm stream:kept* stream:ahead+ rms_norm stream:kept"},
    {"h100", "f16", 16, "rms_norm cublas cublas rms_norm cublas gated_activation cublas rms_norm cublas"},
    {"h100", "f16", 32, "rms_norm cublas cublas rms_norm cublas gated_activation cublas rms_norm cublas"},
    {"h100", "f16", 64, "rms_norm cublas cublas rms_norm cublas gated_activation cublas rms_norm cublas"},
    {"h100", "f16", 128, "rms_norm cublas cublas+ rms_norm cublas~ gated_activation cublas+ rms_norm cublas"},
    {"h100", "f16", 256, "rms_norm cublas cublas+ rms_norm gated:256* cublas+ rms_norm cublas"},
    {"h100", "f16", 2048, "rms_norm cublas cublas+ rms_norm gated:256* cublas+ rms_norm cublas"},
    {"h100", "q4_0", 1, "stream:normed stream:one-kept+ rms_norm stream:one-kept* stream:one-shared+ stream:normed"},
    {"h100", "q4_0", 8,
     "rms_norm stream:more-kept stream:more-kept+ rms_norm stream:more-kept* stream:more-ahead+ rms_norm "
     "stream:more-kept"},
    {"h100", "q4_0", 16,
     "rms_norm stream:two-tiles batch:warps:16+ rms_norm stream:two-tiles* batch:warps:16+ rms_norm stream:two-tiles"},
    {"h100", "q4_0", 32,
     "rms_norm batch:warpgroups:32 batch:warpgroups:32+ rms_norm batch:warpgroups:32* batch:warpgroups:32+ rms_norm "
     "batch:warpgroups:32"},
    {"h100", "q4_0", 64,
     "rms_norm batch:warpgroups:64 batch:warpgroups:64+ rms_norm batch:warpgroups:64* batch:warpgroups:64+ rms_norm "
     "batch:warpgroups:64"},
    {"h100", "q4_0", 128,
     "rms_norm decoded:128 decoded:128+ rms_norm decoded:128~ gated_activation decoded:128+ rms_norm decoded:128"},
    {"h100", "q4_0", 256,
     "rms_norm decoded:256 decoded:256+ rms_norm decoded:256~ gated_activation decoded:256+ rms_norm decoded:256"},
    {"h100", "q4_0", 2048,
     "rms_norm dequantize cublas dequantize cublas+ rms_norm dequantize cublas~ dequantize cublas~ gated_activation "
     "dequantize cublas+ rms_norm dequantize cublas"},
    {"h100", "q4_k_m", 1,
     "rms_norm stream:one-kept stream:one-kept stream:one-kept+ rms_norm stream:one-kept* stream:one-shared+ rms_norm "
     "stream:one-kept stream:one-kept"},
    {"h100", "q4_k_m", 8,
     "rms_norm stream:more-kept stream:more-kept stream:more-kept+ rms_norm stream:more-kept* stream:more-ahead+ "
     "rms_norm stream:more-kept stream:more-kept"},
    {"h100", "q4_k_m", 16,
     "rms_norm stream:two-tiles batch:warps:16 batch:warps:16+ rms_norm stream:two-tiles* batch:warps:16+ rms_norm "
     "stream:two-tiles batch:warps:16"},
    {"h100", "q4_k_m", 32,
     "rms_norm batch:warpgroups:32 batch:warps:32 batch:warpgroups:32+ rms_norm batch:warpgroups:32* batch:warps:32+ "
     "rms_norm batch:warpgroups:32 batch:warps:32"},
    {"h100", "q4_k_m", 64,
     "rms_norm batch:warpgroups:64 batch:warpgroups:64 batch:warpgroups:64+ rms_norm batch:warpgroups:64* "
     "batch:warpgroups:64+ rms_norm batch:warpgroups:64 batch:warpgroups:64"},
    {"h100", "q4_k_m", 128,
     "rms_norm decoded:128 decoded:128 decoded:128+ rms_norm decoded:128~ gated_activation decoded:128+ rms_norm "
     "decoded:128 decoded:128"},
    {"h100", "q4_k_m", 256,
     "rms_norm decoded:256 decoded:256 decoded:256+ rms_norm decoded:256~ gated_activation decoded:256+ rms_norm "
     "decoded:256 decoded:256"},
    {"h100", "q4_k_m", 2048,
     "rms_norm dequantize cublas dequantize cublas dequantize cublas+ rms_norm dequantize cublas~ dequantize cublas~ "
     "gated_activation dequantize cublas+ rms_norm dequantize cublas dequantize cublas"},
    {"h100", "q8_0", 1, "stream:normed stream:one-kept+ rms_norm stream:one-kept* stream:one-shared+ stream:normed"},
    {"h100", "q8_0", 8,
     "rms_norm stream:more-kept stream:more-kept+ rms_norm stream:more-kept* stream:more-ahead+ rms_norm "
     "stream:more-kept"},
    {"h100", "q8_0", 16,
     "rms_norm stream:two-tiles batch:warps:16+ rms_norm stream:two-tiles* batch:warps:16+ rms_norm stream:two-tiles"},
    {"h100", "q8_0", 32,
     "rms_norm batch:warpgroups:32 batch:warpgroups:32+ rms_norm batch:warpgroups:32* batch:warpgroups:32+ rms_norm "
     "batch:warpgroups:32"},
    {"h100", "q8_0", 64,
     "rms_norm batch:warpgroups:64 batch:warpgroups:64+ rms_norm batch:warpgroups:64* batch:warpgroups:64+ rms_norm "
     "batch:warpgroups:64"},
    {"h100", "q8_0", 128,
     "rms_norm decoded:128 decoded:128+ rms_norm decoded:128~ gated_activation decoded:128+ rms_norm decoded:128"},
    {"h100", "q8_0", 256,
     "rms_norm decoded:256 decoded:256+ rms_norm decoded:256~ gated_activation decoded:256+ rms_norm decoded:256"},
    {"h100", "q8_0", 2048,
     "rms_norm dequantize cublas dequantize cublas+ rms_norm dequantize cublas~ dequantize cublas~ gated_activation "
     "dequantize cublas+ rms_norm dequantize cublas"},
    {"h100", "q6_k", 1, "stream:normed stream:one-kept+ rms_norm stream:one-kept* stream:one-shared+ stream:normed"},
    {"h100", "q6_k", 8,
     "rms_norm stream:more-kept stream:more-kept+ rms_norm stream:more-kept* stream:more-ahead+ rms_norm "
     "stream:more-kept"},
    {"h100", "q6_k", 16,
     "rms_norm batch:warps:16 batch:warps:16+ rms_norm batch:warps:16* batch:warps:16+ rms_norm batch:warps:16"},
    {"h100", "q6_k", 32,
     "rms_norm batch:warps:32 batch:warps:32+ rms_norm batch:warps:32* batch:warps:32+ rms_norm batch:warps:32"},
    {"h100", "q6_k", 64,
     "rms_norm batch:warpgroups:64 batch:warpgroups:64+ rms_norm batch:warpgroups:64* batch:warpgroups:64+ rms_norm "
     "batch:warpgroups:64"},
    {"h100", "q6_k", 128,
     "rms_norm decoded:128 decoded:128+ rms_norm decoded:128~ gated_activation decoded:128+ rms_norm decoded:128"},
    {"h100", "q6_k", 256,
     "rms_norm decoded:256 decoded:256+ rms_norm decoded:256~ gated_activation decoded:256+ rms_norm decoded:256"},
    {"h100", "q6_k", 2048,
     "rms_norm dequantize cublas dequantize cublas+ rms_norm dequantize cublas~ dequantize cublas~ gated_activation "
     "dequantize cublas+ rms_norm dequantize cublas"},
    {"h100_plain", "f16", 128,
     "rms_norm skinny:64 skinny:64 rms_norm skinny:64 gated_activation skinny:64 rms_norm skinny:64"},
    {"h100_plain", "f16", 512, "rms_norm skinny:64 skinny:64 rms_norm gated:256* skinny:64 rms_norm skinny:64"},
    {"b200", "f16", 1, "stream:normed stream:kept+ rms_norm stream:kept* stream:ahead+ stream:normed"},
    {"b200", "f16", 16, "rms_norm cublas cublas rms_norm cublas gated_activation cublas rms_norm cublas"},
    {"b200", "f16", 48, "rms_norm cublas cublas rms_norm cublas gated_activation cublas rms_norm cublas"},
    {"b200", "f16", 128, "rms_norm cublas cublas+ rms_norm cublas~ gated_activation cublas+ rms_norm cublas"},
    {"a100", "f16", 1, "rms_norm vector vector rms_norm vector gated_activation vector rms_norm vector"},
    {"a100", "f16", 32, "rms_norm cublas cublas rms_norm cublas gated_activation cublas rms_norm cublas"},
    {"a100", "f16", 128, "rms_norm cublas cublas+ rms_norm cublas~ gated_activation cublas+ rms_norm cublas"},
    {"t4", "f16", 1, "rms_norm vector vector rms_norm vector gated_activation vector rms_norm vector"},
    {"t4", "f16", 32, "rms_norm skinny:32 skinny:32 rms_norm skinny:32 gated_activation skinny:32 rms_norm skinny:32"},
    {"t4", "f16", 512, "rms_norm skinny:64 skinny:64 rms_norm skinny:64 gated_activation skinny:64 rms_norm skinny:64"},
    {"h100_plain", "q4_0", 128,
     "rms_norm decoded:128 decoded:128 rms_norm decoded:128 gated_activation decoded:128 rms_norm decoded:128"},
    {"h100_plain", "q4_0", 512,
     "rms_norm skinny:64 skinny:64 rms_norm skinny:64 gated_activation skinny:64 rms_norm skinny:64"},
    {"b200", "q4_0", 1, "stream:normed stream:one-kept+ rms_norm stream:one-kept* stream:one-shared+ stream:normed"},
    {"b200", "q4_0", 16,
     "rms_norm batch:warps:16 batch:warps:16+ rms_norm batch:warps:16* batch:warps:16+ rms_norm batch:warps:16"},
    {"b200", "q4_0", 48,
     "rms_norm batch:warps:48 batch:warps:48+ rms_norm batch:warps:48* batch:warps:48+ rms_norm batch:warps:48"},
    {"b200", "q4_0", 128,
     "rms_norm dequantize cublas dequantize cublas+ rms_norm dequantize cublas~ dequantize cublas~ gated_activation "
     "dequantize cublas+ rms_norm dequantize cublas"},
    {"a100", "q4_0", 1, "rms_norm vector vector rms_norm vector gated_activation vector rms_norm vector"},
    {"a100", "q4_0", 32,
     "rms_norm skinny:32 skinny:32 rms_norm skinny:32 gated_activation skinny:32 rms_norm skinny:32"},
    {"a100", "q4_0", 128,
     "rms_norm dequantize cublas dequantize cublas+ rms_norm dequantize cublas~ dequantize cublas~ gated_activation "
     "dequantize cublas+ rms_norm dequantize cublas"},
    {"t4", "q4_0", 1, "rms_norm vector vector rms_norm vector gated_activation vector rms_norm vector"},
    {"t4", "q4_0", 32, "rms_norm skinny:32 skinny:32 rms_norm skinny:32 gated_activation skinny:32 rms_norm skinny:32"},
    {"t4", "q4_0", 512,
     "rms_norm skinny:64 skinny:64 rms_norm skinny:64 gated_activation skinny:64 rms_norm skinny:64"},
};

}  // namespace

TEST_CASE("the launches of a layer are pinned", "[program]") {
  for (const Row& row : kRows) {
    const FakeWeights weights(row.encoding, {});
    const OpList list = parse_list(kLayer, weights, row.rows);
    INFO(row.device << " " << row.encoding << " " << row.rows);
    CHECK(kernels_of(compiled(list, weights.inputs(row.device))) == row.kernels);
  }
}

TEST_CASE("attention's launches are pinned", "[program]") {
  const auto attention_of = [](const char* device, uint32_t rows, bool decode_only, const TextShape& shape) {
    const FakeWeights weights("f16", shape);
    OpList list = parse_list("attend q -> a!\n", weights, rows);
    list.tensors[0].columns = (shape.heads + 2 * shape.kv_heads) * shape.dim;
    list.decode_only = decode_only;
    std::string text;
    for (const Launch& launch : compiled(list, weights.inputs(device)).launches)
      text += fmt::format("{} {}\n", launch.choice.kernel, launch.choice.variant);
    return text;
  };
  CHECK(attention_of("h100", 8, true, {}) == "attention_decode_ring f16 heads of 128 next-is-early\n");
  CHECK(attention_of("h100", 16, true, {}) == "attention_decode_ring f16 heads of 128\n");
  CHECK(attention_of("h100", 16, false, {}) ==
        "attention_prompt_warpgroups f16 heads of 128\nattention_decode_ring f16 heads of 128 next-is-early\n"
        "attention_merge f16 heads of 128 prompts-alone\n");
  CHECK(attention_of("a100", 16, true, {}) == "attention_decode f16 heads of 128\nattention_merge f16 heads of 128\n");
  const auto runs_of = [](const char* device) {
    const FakeWeights weights("f16", {});
    OpList list = parse_list("attend q -> a!\n", weights, 8);
    list.tensors[0].columns = 4096 + 2 * 1024;
    list.decode_only = list.has_runs = true;
    const Launch launch = compiled(list, weights.inputs(device)).launches.front();
    return fmt::format("{} {}", launch.choice.kernel, launch.choice.variant);
  };
  CHECK(runs_of("h100") == "attention_decode_ring f16 heads of 128 next-is-early runs");
  CHECK(runs_of("a100") == "attention_decode f16 heads of 128 runs");
  const TextShape long_heads{.width = 2304, .ffn = 9216, .heads = 8, .kv_heads = 4, .dim = 256};
  CHECK(attention_of("h100", 16, false, long_heads).starts_with("attention_prompt f16 heads of 256 keys=64\n"));
  CHECK(attention_of("a100", 16, false, long_heads).starts_with("attention_prompt f16 heads of 256 keys=16\n"));
}

TEST_CASE("copies in f16 and batch invariance choose other kernels", "[program]") {
  FakeWeights weights("q4_0", {});
  OpList list = parse_list(kLayer, weights, 512);
  const auto kernels = [&] { return kernels_of(compiled(list, weights.inputs("h100"))); };
  CHECK(kernels().find("dequantize cublas~") != std::string::npos);
  weights.add_f16_copies();
  CHECK(kernels().find("dequantize") == std::string::npos);
  CHECK(kernels().find("gated:256*") != std::string::npos);
  list.batch_invariant = true;
  CHECK(kernels() == "rms_norm skinny:64 skinny:64 rms_norm skinny:64 gated_activation skinny:64 rms_norm skinny:64");
}

}  // namespace llmrt::cuda
