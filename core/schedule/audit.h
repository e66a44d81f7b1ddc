// Whether the books balance: every block, slot and state is accounted for, in each owner and between them.
//
// Reads all, writes nothing. An error (kInternal) says what differs. O(blocks). The engine's thread.
#pragma once

#include "core/base/status.h"
#include "core/kv/kv_space.h"
#include "core/schedule/batches.h"
#include "core/schedule/branches.h"
#include "core/schedule/running.h"
#include "core/schedule/waiting.h"

namespace llmrt {

Status audit(const KvSpace& kv, const Branches& branches, const Waiting& waiting, const Running& running,
             const Batches& batches);

}  // namespace llmrt
