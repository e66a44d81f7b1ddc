// A bound on the work that one schema may cause.
#pragma once

#include <cstdint>

#include "core/base/status.h"

namespace llmrt {

class SchemaWork {
 public:
  explicit SchemaWork(uint32_t units_max) : units_max_(units_max) {}
  Status spend(uint64_t units) {
    units_ += units;
    if (units_ <= units_max_) return {};
    return make_error(ErrorCode::kGrammarTooComplex, "schema too complex: expected at most {} steps of work",
                      units_max_);
  }

 private:
  uint64_t units_max_, units_ = 0;
};

}  // namespace llmrt
