// Which running sequence yields first when another needs a KV block, or a lane its rows.
//
// The lowest lane yields first. In it a sequence that has yielded often is spared: the order is by how often it has
// yielded beyond the first time, then the newest first. So no sequence runs in circles, and when all are spared the one
// that yielded least yields again.
//
// Pure functions of what is given; nothing is owned or changed.
#pragma once

#include <span>
#include <vector>

#include "core/request/sequence.h"

namespace llmrt {

bool yields_before(const Sequence* a, const Sequence* b);

// The first to yield. `running` is not empty.
Sequence& pick_victim(std::span<Sequence* const> running);

// All of them, the first to yield first.
std::vector<Sequence*> yield_order(std::span<Sequence* const> running);

}  // namespace llmrt
