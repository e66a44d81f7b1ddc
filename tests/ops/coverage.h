// What ran where: every case leaves a mark here, and a table is printed at the end of the run when LLMRT_TEST_COVERAGE
// is set.
#pragma once

#include <string>

namespace llmrt::optest {

struct Case;
enum class Verdict { kPassed, kFailed, kSkipped };

void record_coverage(const std::string& device, const Case& test_case, Verdict verdict);

}  // namespace llmrt::optest
