// A model that drafts on the device, for all rows of a step at once, as the scheduler asks it of the engine
// (core/engine/draft_model.h).
//
// It has keys and values of its own, under books of its own, and computes what it lacks of a row before it drafts: of a
// row whose prompt it has not read it reads a part at each call. Each draft is drawn with the noise of the place that
// it is for, so it is what the model draws wherever the two distributions agree. The engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/sha256.h"
#include "core/ops/step_inputs.h"
#include "core/speculate/drafter.h"

namespace llmrt {

class ModelDrafter {
 public:
  struct Row {
    DraftPlace* place;                // from begin(), the branch's own
    std::span<const int32_t> tokens;  // prompt and answer so far, which only grow from call to call
    RowSampling sampling;             // plain_sampling(): nothing changes the draft model's logits
    uint32_t output_position;         // of the first draft; part of its noise
    uint32_t most;                    // drafts, at least 1
    std::vector<int32_t>* drafts;     // appended to: as many, or none while it lacks something of the row
  };
  // Milliseconds: of the passes that drafted, and of what it lacked of the rows' text.
  struct Took {
    double draft_ms = 0, read_ms = 0;
  };

  virtual ~ModelDrafter() = default;

  // For a branch. Branches of equal identity may begin with what others have left (KvOrigin::identity; zeros: none
  // does).
  virtual std::unique_ptr<DraftPlace> begin(const Digest& identity) = 0;
  // Waits for the device. A failed device gives no drafts: the engine asks for its error.
  virtual Took propose(std::span<Row> rows) = 0;
  // What one more draft for each of so many rows takes; 0 = not known yet.
  virtual double pass_ms(size_t num_rows) const = 0;
};

}  // namespace llmrt
