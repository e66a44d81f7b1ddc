// Puts a model's weight table together: which tensors each layer has, their shapes, the groups that matmul reads. One
// walk for files and for synthetic models; where the tensors come from is a TensorSource.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/model/architectures.h"
#include "core/model/model.h"

namespace llmrt {

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual bool has(const std::string& name) const = 0;
  // The tensor with exactly this shape; `is_vector`: one row, f32, one dimension. An Error names tensor, expected,
  // found.
  virtual Result<WeightTensor> take(const std::string& name, uint64_t rows, uint64_t columns, bool is_vector) = 0;
  // A stack of `count` matrices of so many rows each, as one of count * rows rows.
  virtual Result<WeightTensor> take_stack(const std::string& name, uint64_t count, uint64_t rows, uint64_t columns) = 0;
};

// What WeightTable::storage keeps alive.
struct ModelStorage {
  std::shared_ptr<const void> source;      // WeightSource::owner
  std::deque<std::vector<float>> vectors;  // made at load: RoPE frequencies, joined biases

  // An f32 tensor of one row over `values`, which are kept here.
  WeightTensor own(std::string name, std::vector<float> values);
};

// From model->config (with vocab_size and rope_freqs) and `source`: fills weights, embedding, norms, head and layers.
Status assemble_weights(const Architecture& architecture, TensorSource& source,
                        const std::shared_ptr<ModelStorage>& storage, Model* model);

// The encoding that most bytes of the table are stored in.
std::string main_encoding(const WeightTable& weights);

}  // namespace llmrt
