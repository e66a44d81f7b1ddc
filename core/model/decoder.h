// Any decoder as op lists: a loop over the layers that the model names (layer.h). The forward list takes T tokens from
// the embedding to the hidden state behind the last layer's attention; with it the KV cache has all of them. The sample
// list takes R of those rows through the rest, which is that layer's feed-forward part, the final norm and the head, to
// drawn tokens. A prompt has one such row, its last token.
#pragma once

#include "core/backend/caps.h"
#include "core/model/model.h"
#include "core/ops/op_list.h"

namespace llmrt {

// How rows of many tokens have latent attention in a list: see core/attention/expanded_rows.h.
struct Expansion {
  uint32_t kv_group = 0;  // that keys and values are expanded into
  uint32_t heads = 0;     // at a time; 0: all rows stay absorbed
};

// adapter_rank: the most that an adapter may have in a part of a weight group, in lists that run rows with adapters; 0:
// those of rows without. adapts_experts: with it, adapters may change experts too.
OpList build_forward(const Model& model, const Caps& caps, uint32_t num_tokens, uint32_t adapter_rank = 0,
                     Expansion expansion = {}, bool adapts_experts = false);
// Moves of blocks in each KV group: no tensors, no tokens.
OpList build_memory(uint32_t num_kv_groups);
// keeps_final: final_hidden may be read when the list has run.
OpList build_sample(const Model& model, const Caps& caps, uint32_t num_sampled, uint32_t adapter_rank = 0,
                    bool keeps_final = false, bool adapts_experts = false);

// What the head of a sample list reads, [R, D] in the activation dtype.
TensorId final_hidden(const OpList& list);
// In a forward list of a model that drafts: [T, D] f32, a hidden state for each token.
TensorId draft_hidden(const OpList& list);

}  // namespace llmrt
