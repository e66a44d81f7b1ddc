// Behind which tokens the states of a row are kept as checkpoints. Positions are multiples of place_tokens:
//   the last one before the prompt's end, from which the same prompt goes on, as branches do;
//   where the sequence's path leaves one that the cache has (PrefixFound::split), from which a third one goes on;
//   every interval of a long prompt;
//   the last one in the answer, from which the next turn goes on. While a row decodes it is not known which is the
//   last: each one is kept until the next.
// A pure function of the sequence. No errors.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kv/checkpoints.h"
#include "core/request/sequence.h"

namespace llmrt {

class SavePoints {
 public:
  struct Point {
    uint32_t position;
    CheckpointKind kind;
    bool operator==(const Point&) const = default;
  };
  // place_tokens 0: none at all. The interval is rounded up to a multiple of it.
  SavePoints(uint32_t place_tokens, uint32_t interval);

  // Those behind `begin` and not behind `end`, ascending.
  void find(const Sequence& sequence, uint32_t begin, uint32_t end, std::vector<Point>* points) const;
  // The first one in the prompt behind `begin`; 0: there is none.
  uint32_t next_in_prompt(const Sequence& sequence, uint32_t begin) const;

 private:
  CheckpointKind kind_in_prompt(const Sequence& sequence, uint32_t at) const;

  const uint32_t place_tokens_, interval_;
};

}  // namespace llmrt
