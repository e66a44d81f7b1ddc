// Aim: the scaling rules give the frequencies that the models were trained with. Method: numbers computed with numpy
// from the published formulas (Hugging Face's llama3 and yarn), and the keys of files read into the right rule.

#include "core/model/rope_frequencies.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cmath>

#include "core/weights/weight_source.h"
#include "tests/weights/gguf_bytes.h"

using namespace llmrt;
using namespace llmrt::test;
using Catch::Approx;

namespace {

struct Expected {
  int pair;
  double frequency;
};

void check_frequencies(const std::vector<float>& found, std::initializer_list<Expected> expected) {
  for (const auto& [pair, frequency] : expected) {
    INFO("pair " << pair);
    CHECK(found.at(pair) == Approx(frequency).epsilon(3e-7));
  }
}

RopeParameters llama3() {
  RopeParameters parameters;
  parameters.rope_dim = 128;
  parameters.base = 500000;
  parameters.scaling = RopeScaling::kLlama3;
  parameters.factor = 8;
  parameters.original_context = 8192;
  return parameters;
}

Result<RopeParameters> read(const GgufBytes& file, uint32_t rope_dim = 128) {
  const std::string bytes = file.build();
  const auto source = parse_weight_source(as_span(bytes));
  if (!source) return source.error();
  return read_rope_parameters(source->metadata, "llama.", rope_dim, 32768);
}

}  // namespace

TEST_CASE("llama3 scaling") {
  const auto frequencies = rope_frequencies(llama3());
  CHECK(frequencies.size() == 64);
  check_frequencies(frequencies, {{0, 1.0},
                                  {1, 0.8146172},
                                  {20, 0.01656044},
                                  {28, 0.003211446},
                                  {30, 0.0013718936},
                                  {32, 0.00052484614},
                                  {34, 0.0001785078},
                                  {36, 7.7846555e-05},
                                  {63, 3.068926e-07}});
}

TEST_CASE("llama3 scaling by divisors is the same") {
  RopeParameters by_divisors = llama3();
  by_divisors.scaling = RopeScaling::kNone;
  by_divisors.divisors = llama3_divisors(llama3());
  const auto expected = rope_frequencies(llama3());
  const auto found = rope_frequencies(by_divisors);
  for (size_t i = 0; i < expected.size(); ++i) CHECK(found[i] == Approx(expected[i]).epsilon(3e-7));
}

TEST_CASE("YaRN scaling") {
  GgufBytes file;
  file.f32("llama.rope.freq_base", 1e6f);
  file.string("llama.rope.scaling.type", "yarn");
  file.f32("llama.rope.scaling.factor", 4.0f);
  file.u32("llama.rope.scaling.original_context_length", 32768);
  const auto parameters = read(file);
  REQUIRE(parameters.ok());
  CHECK(parameters->magnitude == Approx(1.138629436111989));
  check_frequencies(rope_frequencies(*parameters), {{0, 1.0},
                                                    {10, 0.115478195},
                                                    {20, 0.013335214},
                                                    {23, 0.006978306},
                                                    {25, 0.004131738},
                                                    {30, 0.001064361},
                                                    {35, 0.0002462584},
                                                    {39, 6.490394e-05},
                                                    {40, 4.4456985e-05},
                                                    {63, 3.1023444e-07}});

  file.f32("llama.rope.scaling.yarn_attn_factor", 1.25f);  // a file's own magnitude
  CHECK(read(file)->magnitude == Approx(1.25));
  file.f32("llama.rope.scaling.yarn_ext_factor", 0.5f);
  CHECK(read(file).error().code == ErrorCode::kUnsupported);
}

// gpt-oss: the ramp lies between pairs 8.09 and 17.40, and between 8 and 18 where it is rounded. Numbers from the
// formula in Python.
TEST_CASE("YaRN whose ramp is not rounded to whole pairs") {
  RopeParameters parameters{.rope_dim = 64, .base = 150000, .scaling = RopeScaling::kYarn, .factor = 32};
  parameters.original_context = 4096;
  const auto share = [&](uint32_t pair) {
    return rope_frequencies(parameters)[pair] / std::pow(150000.0, -2.0 * pair / 64);
  };
  CHECK(share(9) == Approx(1 - 0.1 * 31 / 32).epsilon(1e-6));
  parameters.truncates = false;
  CHECK(share(8) == Approx(1).epsilon(1e-6));
  CHECK(share(9) == Approx(0.9055510956).epsilon(1e-6));
  CHECK(share(17) == Approx(0.0726875140).epsilon(1e-6));
  CHECK(share(18) == Approx(1.0 / 32).epsilon(1e-6));

  GgufBytes file;
  file.string("llama.rope.scaling.type", "yarn");
  file.f32("llama.rope.scaling.factor", 4.0f);
  CHECK(read(file)->truncates);
  file.boolean("llmrt.rope_yarn_truncate", false);
  CHECK_FALSE(read(file)->truncates);
}

TEST_CASE("linear scaling, in each spelling, and none") {
  GgufBytes plain;
  CHECK(rope_frequencies(*read(plain, 4))[1] == Approx(0.01));
  GgufBytes linear;
  linear.string("llama.rope.scaling.type", "linear");
  linear.f32("llama.rope.scaling.factor", 4.0f);
  CHECK(rope_frequencies(*read(linear, 4))[1] == Approx(0.0025));
  GgufBytes without_type;
  without_type.f32("llama.rope.scaling.factor", 4.0f);
  CHECK(rope_frequencies(*read(without_type, 4))[0] == Approx(0.25));
  GgufBytes old;
  old.f32("llama.rope.scale_linear", 2.0f);
  CHECK(rope_frequencies(*read(old, 4))[0] == Approx(0.5));
  GgufBytes none;
  none.string("llama.rope.scaling.type", "none");
  none.f32("llama.rope.scaling.factor", 4.0f);
  CHECK(rope_frequencies(*read(none, 4))[0] == 1.0f);
}

TEST_CASE("llama3 by metadata, and bands that are upside down") {
  GgufBytes file;
  file.f32("llama.rope.freq_base", 500000.0f);
  file.string("llama.rope.scaling.type", "llama3");
  file.f32("llama.rope.scaling.factor", 8.0f);
  file.u32("llama.rope.scaling.original_context_length", 8192);
  CHECK(rope_frequencies(*read(file)) == rope_frequencies(llama3()));
  file.f32("llama.rope.scaling.low_freq_factor", 4.0f);
  CHECK_THAT(read(file).error().message, Catch::Matchers::ContainsSubstring("high_freq_factor: expected above"));
}
