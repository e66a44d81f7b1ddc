// A Backend that checks every op list and every step's inputs, then passes them on. For tests and debug builds: the
// backends below trust what they are handed. A violation is invalid_argument that names list, op and field; nothing has
// reached the device then.
//
// Checked: tensor ids, dtypes and shapes of each op, every tensor written before it is read, sizes against StateConfig
// and the device's range; rows, tokens, row updates, block ids, copies, KV places, attention items, sample records and
// bias entries against their limits and against each other; tickets in order. It mirrors flags and block tables of the
// row state to do so.
#pragma once

#include <memory>

#include "core/backend/backend.h"

namespace llmrt {

std::unique_ptr<Backend> make_validating(std::unique_ptr<Backend> inner);

}  // namespace llmrt
