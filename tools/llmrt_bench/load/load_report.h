// A load run as text, and as a row of the run's record.
#pragma once

#include <span>
#include <string>

#include "tools/llmrt_bench/load/outcome.h"
#include "tools/llmrt_bench/record/record.h"

namespace llmrt::bench {

std::string load_text(const Summary& summary, const LoadSlo& slo);
RecordRow load_row(std::string test, std::string device, const Summary& summary, std::span<const Outcome> outcomes,
                   const LoadSlo& slo);

}  // namespace llmrt::bench
