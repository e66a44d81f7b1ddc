// Where drafts come from. A DraftSource is what a request is given, immutable and shared by its branches; a Drafter is
// what it keeps for one branch. A draft model is another kind of source, the engine's own, which drafts for all rows of
// a step at once (core/schedule/model_drafter.h). Drafts never change a text: the model draws each token itself, and a
// draft only says which token to compute beside it. A worked example: tests/fakes/scripted_drafts.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace llmrt {

// The engine's thread.
class Drafter {
 public:
  virtual ~Drafter() = default;

  // Appends at most `most` tokens that may follow `tokens`: the prompt and the answer so far, which only grow from call
  // to call. None is fine. Microseconds; each a token of the vocabulary.
  virtual void propose(std::span<const int32_t> tokens, uint32_t most, std::vector<int32_t>* drafts) = 0;
  // Whether it is likely to have something to propose once the token behind `tokens` is known: then the next step is
  // planned when that one is. A guess; false costs drafts, true a gap between two steps. Called as propose is, before
  // or in place of it.
  virtual bool expects_more(std::span<const int32_t> tokens) = 0;
};

// Any thread.
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // For one branch, whose prompt has so many tokens.
  virtual std::unique_ptr<Drafter> begin(uint32_t num_prompt) const = 0;
  virtual size_t held_bytes() const = 0;
};

inline constexpr uint32_t kDraftTokensDefault = 3;

// What a request wants of drafts.
struct Speculation {
  std::shared_ptr<const DraftSource> source = {};  // null: none
  uint32_t tokens_max = kDraftTokensDefault;       // in a step; at most kDraftTokensMax (step_inputs.h)
  bool by_model = false;                           // where the source proposes nothing, the engine's draft model does
};

// Who made a draft: what costs and gains are kept apart by.
enum class DraftOrigin : uint8_t { kText, kModel };
inline constexpr size_t kNumDraftOrigins = 2;

// What a draft model keeps of one branch, in use until it is destroyed. The engine's thread.
class DraftPlace {
 public:
  virtual ~DraftPlace() = default;
};

}  // namespace llmrt
