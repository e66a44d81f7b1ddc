// causal_conv, gated_delta, selective_scan: rows of several texts that begin, go on from records of their own and of
// others, and are saved behind multiples of 64 tokens. The reference is held to rules that have no state
// (recurrent_rules.h), each device to the reference.
#include <catch2/catch_test_macros.hpp>

#include "core/backend/validating.h"
#include "tests/ops/recurrent_rules.h"
#include "tests/reference/backend.h"

namespace llmrt::optest {
namespace {

constexpr DeltaShape kDeltaSmall = {2, 6, 20, 12};
constexpr ScanShape kScanSmall = {6, 12, 2, 20};

const DeltaShape kDeltaShapes[] = {
    {1, 2, 128, 128},
    kDeltaSmall,
    {1, 1, 4, 4},
    {2, 4, 64, 36, KeyHeadOrder::kModulo},
    {2, 4, 12, 8, KeyHeadOrder::kDivided, true},
    {1, 3, 36, 256, KeyHeadOrder::kModulo, false, false},
    {1, 1, 132, 8},
    {1, 2, 36, 40, KeyHeadOrder::kDivided, false, true, false},
};
const ScanShape kScanShapes[] = {
    {1, 4, 1, 4},
    kScanSmall,
    {4, 64, 2, 128, true, 0.001f, 0.1f},
    {3, 80, 1, 16, false},
    {2, 36, 2, 256, false},
    {2, 36, 1, 72, true, 0, 1e30f, false},
};

// Whether compare() tells what a script expects under the faults from what it expects.
bool tells(const RecurrentScript& script, RowFault row_fault, RuleFault rule_fault) {
  return !compare(script.test_case(), script.expected(), script.expected(row_fault, rule_fault), Caps()).empty();
}

}  // namespace

TEST_CASE("causal_conv goes on from the last inputs of each row", "[causal_conv][recurrent]") {
  auto rng = test_rng("causal_conv");
  Suite suite;
  std::vector<RecurrentScript> scripts;
  for (const uint32_t channels : {5u, 33u, 128u, 260u})  // of few, a row may cancel and leave rounding alone
    for (const uint32_t width : {2u, 3u, 4u, kConvWidthMax})
      for (const bool gates : {false, true}) {
        const ConvShape shape{channels, width, width != 3, !gates, gates};
        scripts.push_back(mixed_script(conv_rule(shape, &suite, rng), width % 2 == 0, false, rng));
      }
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const uint32_t channels : {7u, 96u})
      scripts.push_back(
          mixed_script(conv_rule({channels, 3, false, false, true, dtype}, &suite, rng), false, false, rng));
  scripts.push_back(mixed_script(conv_rule({64, 4, true, true, false}, &suite, rng), true, true, rng));
  for (int i = 0; i < 4; ++i)
    scripts.push_back(cut_script(conv_rule({36, 4, false, true, false}, &suite, rng), 70, rng));
  check_scripts(std::move(suite), scripts);
}

TEST_CASE("gated_delta goes on from the state of each row", "[gated_delta][recurrent]") {
  auto rng = test_rng("gated_delta");
  Suite suite;
  std::vector<RecurrentScript> scripts;
  for (const DeltaShape& shape : kDeltaShapes)
    for (const bool packed : {false, true})
      scripts.push_back(mixed_script(delta_rule(shape, &suite, rng), packed, false, rng));
  scripts.push_back(mixed_script(delta_rule({1, 2, 64, 64}, &suite, rng), true, true, rng));
  for (int i = 0; i < 4; ++i) scripts.push_back(cut_script(delta_rule(kDeltaSmall, &suite, rng), 150, rng));
  check_scripts(std::move(suite), scripts);
}

TEST_CASE("selective_scan goes on from the state of each row", "[selective_scan][recurrent]") {
  auto rng = test_rng("selective_scan");
  Suite suite;
  std::vector<RecurrentScript> scripts;
  for (const ScanShape& shape : kScanShapes)
    for (const bool packed : {false, true})
      scripts.push_back(mixed_script(scan_rule(shape, &suite, rng), packed, false, rng));
  scripts.push_back(mixed_script(scan_rule({2, 64, 1, 128}, &suite, rng), true, true, rng));
  for (int i = 0; i < 4; ++i) scripts.push_back(cut_script(scan_rule(kScanSmall, &suite, rng), 150, rng));
  check_scripts(std::move(suite), scripts);
}

TEST_CASE("rows go on from a ring of any fill, and leave one", "[gated_delta][selective_scan][recurrent]") {
  auto rng = test_rng("recurrent rings");
  Suite suite;
  std::vector<RecurrentScript> scripts;
  for (const uint32_t num_tokens : {1u, 2u, 4u, 5u, 18u, 33u}) {
    scripts.push_back(ring_script(delta_rule({2, 4, 20, 12}, &suite, rng), num_tokens, rng));
    scripts.push_back(ring_script(scan_rule({4, 12, 2, 20}, &suite, rng), num_tokens, rng));
  }
  check_scripts(std::move(suite), scripts);
}

TEST_CASE("rows go on from where tokens were taken back", "[causal_conv][gated_delta][selective_scan][recurrent]") {
  auto rng = test_rng("recurrent back");
  Suite suite;
  std::vector<RecurrentScript> scripts;
  for (const uint32_t num_tokens : {1u, 4u, 19u}) {
    for (const uint32_t width : {2u, 4u, kConvWidthMax})
      scripts.push_back(
          back_script(conv_rule({width == 4 ? 20u : 33u, width, true, true, false}, &suite, rng), num_tokens, rng));
    scripts.push_back(back_script(delta_rule({2, 4, 20, 12}, &suite, rng), num_tokens, rng));
    scripts.push_back(back_script(scan_rule({4, 12, 2, 20}, &suite, rng), num_tokens, rng));
  }
  check_scripts(std::move(suite), scripts);
}

TEST_CASE("records of states move whole", "[recurrent][copy_blocks][store_blocks][load_blocks]") {
  auto rng = test_rng("recurrent moves");
  Suite suite;
  std::vector<RecurrentScript> scripts;
  for (const uint32_t channels : {5u, 1000u})
    scripts.push_back(moves_script(conv_rule({channels, 4, true, true, false}, &suite, rng), rng));
  scripts.push_back(moves_script(delta_rule(kDeltaSmall, &suite, rng), rng));
  check_scripts(std::move(suite), scripts);
}

TEST_CASE("faults of states and rules are told", "[recurrent]") {
  auto rng = test_rng("recurrent faults");
  Suite suite;
  const RecurrentScript conv = mixed_script(conv_rule({33, 4, true, true, false}, &suite, rng), false, false, rng);
  const RecurrentScript gated = mixed_script(conv_rule({33, 3, true, false, true}, &suite, rng), false, false, rng);
  const RecurrentScript delta = mixed_script(delta_rule(kDeltaSmall, &suite, rng), false, false, rng);
  const RecurrentScript scan = mixed_script(scan_rule(kScanSmall, &suite, rng), false, false, rng);
  for (const RecurrentScript* script : {&conv, &gated, &delta, &scan}) {
    INFO(script->test_case().name);
    CHECK_FALSE(tells(*script, RowFault::kNone, RuleFault::kNone));
    for (const RowFault fault :
         {RowFault::kOtherRowsState, RowFault::kStateLost, RowFault::kTailLost, RowFault::kPlaceOneTokenLate})
      CHECK(tells(*script, fault, RuleFault::kNone));
    CHECK(tells(*script, RowFault::kNone, RuleFault::kNoGate));
  }
  for (const RecurrentScript* script : {&delta, &scan}) CHECK(tells(*script, RowFault::kRingLost, RuleFault::kNone));
  for (const RecurrentScript* script : {&delta, &scan})
    for (const RuleFault fault : {RuleFault::kNoDecay, RuleFault::kDecayBehind, RuleFault::kOtherHead}) {
      INFO(script->test_case().name << " fault " << static_cast<int>(fault));
      CHECK(tells(*script, RowFault::kNone, fault));
    }
  CHECK(tells(delta, RowFault::kNone, RuleFault::kNoNorm));
  for (const RecurrentRule& rule :
       {conv_rule({33, 4, true, true, false}, &suite, rng), delta_rule(kDeltaSmall, &suite, rng)})
    CHECK(tells(back_script(rule, 4, rng), RowFault::kNotTakenBack, RuleFault::kNone));
}

}  // namespace llmrt::optest
