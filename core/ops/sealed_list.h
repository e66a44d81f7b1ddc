// A list that is complete. Nothing can change it, so its key is computed once, and backends find by it what they made
// of the list, without a look at its ops. Equal lists have equal keys, wherever they were built, and share
// programs; a backend that dropped its programs finds nothing and makes a new one.
#pragma once

#include <cstdint>

#include "core/ops/op_list.h"

namespace llmrt {

struct SealedList {
  explicit SealedList(OpList complete);

  const OpList list;
  const uint64_t key;  // a hash of all of the list but its name

  operator const OpList&() const { return list; }  // NOLINT(google-explicit-constructor): it is one
};

}  // namespace llmrt
