// The layer behind a model's own that drafts tokens (MTP, "nextn"), as a model of its own with one layer.
//
// At position p it takes the token behind p and the model's hidden state at p, behind the final norm: both normed, side
// by side, through one matrix; then a layer of the model's kind, a norm and the head. Its logits are those of the token
// two behind p, and its own hidden state behind that norm takes the place of the model's for one draft more. Where the
// file has no embedding, norm or head for it, it has those of the model. (DeepSeek-V3, arXiv 2412.19437, section 2.2.)
//
// Lists of it are those of any model (decoder.h) but for one tensor: draft_hidden, which whoever submits them writes.
#pragma once

#include <memory>

#include "core/base/status.h"
#include "core/model/architectures.h"
#include "core/model/assemble.h"
#include "core/model/model.h"

namespace llmrt {

// `source`: the tensors that `trunk` was assembled from. unsupported or corrupt_file where the file lacks something.
Result<std::shared_ptr<const Model>> assemble_draft_head(const Architecture& architecture, TensorSource& source,
                                                         const std::shared_ptr<ModelStorage>& storage,
                                                         const Model& trunk);

}  // namespace llmrt
