#include "core/study/compatibility.h"

#include <fmt/format.h>

namespace llmrt {
namespace {

using enum Sharing;

constexpr Compatibility kTable[] = {
    {"sampling parameters", kOneStep, "each row has its own in its row state"},
    {"penalties", kOneStep, "rows that want them have token counts; they wait while all counts are taken"},
    {"logit masks", kOneStep, "bias, bans and processors are entries of the step, each for one row"},
    {"stop conditions", kOneStep, "the host judges each row's tokens by its own"},
    {"log-probabilities", kOneStep, "a step that holds a row with them makes them; others are not told"},
    {"prompt log-probabilities", kOneStep, "positions that are scored are sampled rows that draw nothing"},
    {"context length", kOneStep, "each row has its own table of KV blocks; chunk and single token are one kind of row"},
    {"request class", kOneStep, "it decides the order, not what is computed"},
    {"batch-invariant mode", kOneStep,
     "a step that holds such a row runs the invariant kernels for all; their KV blocks stay apart"},
    {"branches (n)", kOneStep, "each branch is a row; they share blocks of the prompt"},
    {"beam search", kOneStep, "each beam is a row that draws nothing"},
    {"cache salt", kOneStep, "it keeps KV blocks apart, not rows"},
    {"grammar", kOneStep, "each row has a mask of its own or none; rows in one state share one"},
    {"adapter", kOneStep,
     "each row reads its own, or none; a step without any runs what it would run anyway; KV blocks stay apart"},
    {"drafts", kOneStep,
     "a row with drafts has more tokens and sampled rows in the step; a grammar masks each of them"},
    {"model", kOtherEngine, "an engine holds the weights of one, and its KV blocks mean nothing to another"},
    {"tokenizer", kOtherEngine, "token ids, stop strings and ends of answers are the engine's"},
    {"quantization", kOtherEngine, "the weights of one encoding are another model's weights"},
    {"KV dtype", kOtherEngine, "the pool has one layout"},
    {"device", kOtherEngine, "an engine has one device and its queue; groups of devices are not there yet"},
    {"draft model", kOtherEngine, "an engine has one beside its own at most; whether a request uses it is its own"},
};

const char* sharing_text(Sharing sharing) {
  switch (sharing) {
    case kOneStep:
      return "one step";
    case kOtherEngine:
      return "another engine";
  }
  return "";
}

}  // namespace

std::span<const Compatibility> compatibility_table() {
  return kTable;
}

std::string print_compatibility() {
  std::string text = "| Requests that differ in | Run in | Because |\n| --- | --- | --- |\n";
  for (const Compatibility& line : kTable)
    text += fmt::format("| {} | {} | {} |\n", line.name, sharing_text(line.sharing), line.reason);
  return text;
}

}  // namespace llmrt
