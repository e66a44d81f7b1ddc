// One step of a beam search among the branches of its request. A beam runs like any branch, but draws nothing: the
// device tells what may follow, and when all beams of the request have heard, BeamSearch decides. A beam that goes on
// in one way keeps its place. Where it goes on in several, the places of beams that were dropped take over its tokens.
//
// Functions of the beams that are given, which are all branches of one request; they write BeamPlace and `tokens`, and
// know neither blocks nor queues. No errors.
#pragma once

#include <span>
#include <vector>

#include "core/request/sequence.h"

namespace llmrt {

// False while a beam has not heard. Else the search goes one step further.
bool advance_search(std::span<Sequence* const> beams);

struct BeamRound {
  // The places of dropped beams, and the beam behind whose tokens each begins again.
  struct Restart {
    Sequence* beam;
    const Sequence* parent;
  };
  std::vector<Restart> restarts;
  std::vector<Sequence*> by_rank;  // from now on
};
// Which beam goes on where, by the steps of their search.
BeamRound divide_beams(std::span<Sequence* const> beams);
// Each beam gets its rank and its next token; those that begin again have their parent's tokens by now.
void extend_beams(const BeamRound& round);

}  // namespace llmrt
