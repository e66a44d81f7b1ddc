// Hidden states on the host, for a layer of the model that drafts (core/model/draft_head.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/backend/backend.h"

namespace llmrt {

// Those of a branch at positions in a row, behind the final norm, until they are read. The engine's thread.
class HiddenRows {
 public:
  // The one at `position`: it follows the others, or those from there on are forgotten. Behind a gap all are, and so is
  // the older half of more than a few dozen.
  void put(uint32_t position, std::span<const float> row);
  void drop_before(uint32_t position);

  // Positions [begin, end) are there.
  uint32_t begin() const { return begin_; }
  uint32_t end() const { return begin_ + num_rows_; }
  std::span<const float> at(uint32_t position) const;

 private:
  std::vector<float> values_;
  uint32_t begin_ = 0, num_rows_ = 0;
};

// What the head of the last step read: a row for each sample, [R, D]. `sample`: the step's list, of a Lowering that
// keeps them; nothing was submitted behind it. Waits for the device.
Status read_final_hidden(const SealedList& sample, Backend* backend, std::vector<float>* rows);

}  // namespace llmrt
