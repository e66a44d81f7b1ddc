// Records as one page that needs nothing but itself: no script, no font, no network; light or dark as the reader's
// system is.
#pragma once

#include <string>
#include <vector>

#include "tools/llmrt_bench/record/saved_record.h"

namespace llmrt::bench {

std::string report_page(const std::vector<SavedRecord>& records);

}  // namespace llmrt::bench
