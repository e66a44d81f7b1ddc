// Any dense decoder as op lists. The forward list takes T tokens from embedding to the hidden state behind the last
// layer's attention, with which the KV cache has all of them; the sample list takes R of those rows through the rest,
// that layer's feed-forward part, the final norm and the head, to drawn tokens. Of a prompt only its last token is such
// a row. Everything that differs between the architectures is data in the Model.
#pragma once

#include "core/backend/caps.h"
#include "core/model/model.h"
#include "core/ops/op_list.h"

namespace llmrt {

OpList build_forward(const Model& model, const Caps& caps, uint32_t num_tokens);
// Moves of blocks in each KV group: no tensors, no tokens.
OpList build_memory(uint32_t num_kv_groups);
OpList build_sample(const Model& model, const Caps& caps, uint32_t num_sampled);

}  // namespace llmrt
