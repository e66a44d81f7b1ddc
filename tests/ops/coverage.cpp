#include "tests/ops/coverage.h"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "tests/ops/op_harness.h"
#include "tests/ops/test_devices.h"

namespace llmrt::optest {
namespace {

struct Count {
  uint32_t verdicts[3] = {};
};
// [op][variant][device]
std::map<std::string, std::map<std::string, std::map<std::string, Count>>>& table() {
  static std::map<std::string, std::map<std::string, std::map<std::string, Count>>> counts;
  return counts;
}

class CoveragePrinter final : public Catch::EventListenerBase {
 public:
  using Catch::EventListenerBase::EventListenerBase;
  void testRunEnded(const Catch::TestRunStats&) override {
    if (!std::getenv("LLMRT_TEST_COVERAGE")) return;
    fmt::print("\ncoverage: op, variant, then cases passed/failed/skipped by device\n");
    for (const auto& [op, variants] : table()) {
      for (const auto& [variant, devices] : variants) {
        fmt::print("{:<18}{:<10}", op, variant);
        for (const auto& [device, count] : devices)
          fmt::print(" {} {}/{}/{}", device, count.verdicts[0], count.verdicts[1], count.verdicts[2]);
        fmt::print("\n");
      }
    }
    for (int op = 0; op < kNumOps; ++op)
      if (!table().contains(op_name(op))) fmt::print("{:<18}not run\n", op_name(op));
    std::fflush(stdout);
  }
};
CATCH_REGISTER_LISTENER(CoveragePrinter)

}  // namespace

void record_coverage(const std::string& device, const Case& test_case, Verdict verdict) {
  std::set<std::string> ops;
  for (const Step& step : test_case.steps)
    for (const OpList* list : {&step.forward, &step.sample})
      for (const Op& op : list->ops)
        if (!std::holds_alternative<UpdateRows>(op) || !step.forward_inputs.row_updates.empty())
          ops.insert(op_name(op));
  for (const std::string& op : ops) ++table()[op][test_case.variant][device].verdicts[static_cast<int>(verdict)];
}

}  // namespace llmrt::optest

TEST_CASE("every known device is there", "[devices]") {
  const auto absent = llmrt::optest::absent_devices();
  std::string reasons;
  for (const std::string& reason : absent) reasons += reason + "\n";
  if (!absent.empty()) SKIP(reasons);
}
