#include "backends/cuda/choose.h"

namespace llmrt::cuda {

Status choose(const Step& step, const OpList& list, const CompileInputs& inputs, Launches* out) {
  return std::visit([&](const auto& what) { return choose(what, list, inputs, out); }, step.what);
}

Status choose(const PlainOp& step, const OpList& list, const CompileInputs& inputs, Launches* out) {
  return std::visit([&](const auto& op) { return choose(op, list, inputs, out); }, step.op);
}

Status choose(const RunningSum&, const OpList&, const CompileInputs&, Launches*) {
  return make_error(ErrorCode::kUnsupported, "running_sum: no kernel");
}

}  // namespace llmrt::cuda
