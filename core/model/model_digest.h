// What tells one model from another, wherever its file lies: SHA-256 over the configuration and every tensor's name,
// shape, encoding and first, middle and last 4 KiB. Not the whole of 16 GB: that would take longer than the start.
#pragma once

#include "core/base/sha256.h"
#include "core/model/model.h"

namespace llmrt {

Digest model_digest(const Model& model);

}  // namespace llmrt
