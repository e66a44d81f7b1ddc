// Launches as values: what starts, in which order, for which step of a program.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "backends/cuda/kernel_choice.h"
#include "core/base/status.h"

namespace llmrt::cuda {

struct OpContext;

struct Launch {
  KernelChoice choice;
  std::function<Status(const OpContext&)> start;
};
using Launches = std::vector<Launch>;

// start(choice, at) launches what `choice`, a KernelChoice or more than one, says.
template <class Choice, class Start>
void add_launch(Launches* out, Choice choice, Start start) {
  KernelChoice printed = choice;
  out->push_back({std::move(printed), [choice = std::move(choice), start = std::move(start)](const OpContext& at) {
                    return start(choice, at);
                  }});
}

}  // namespace llmrt::cuda
