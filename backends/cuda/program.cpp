#include "backends/cuda/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "backends/cuda/check.h"
#include "backends/cuda/choose.h"
#include "backends/cuda/op_context.h"

namespace llmrt::cuda {
namespace {

OpContext context_of(const Program& program, const OpContext& base) {
  OpContext at = base;
  at.list = &program.list;
  at.plan = &program.arena;
  return at;
}

Status start(const Program& program, size_t begin, size_t end, const OpContext& at) {
  for (size_t i = begin; i < end; ++i)
    if (Status status = program.launches[i].start(at); !status) return status;
  return {};
}

std::string ops_of(const Step& step) {
  std::string text;
  for (uint32_t op : step.ops) text += fmt::format("{}{}", text.empty() ? "" : "+", op);
  return text;
}

}  // namespace

Result<Program> compile(const OpList& list, const CompileInputs& inputs) {
  if (Status status = refuse_routed_rows(list); !status) return status.error();
  FusedList fused = fuse(list, inputs);
  Program program{list,
                  plan_arena(list),
                  std::move(fused.steps),
                  {},
                  {},
                  std::move(fused.unfused)};
  for (const Step& step : program.steps) {
    if (Status status = choose(step, list, inputs, &program.launches); !status) return status.error();
    program.step_ends.push_back(program.launches.size());
  }
  return program;
}

std::string print(const Program& program) {
  const OpList& list = program.list;
  std::string text =
      fmt::format("{} T={} R={} ops={} steps={} launches={} arena={}\n", list.name, list.num_tokens, list.num_sampled,
                  list.ops.size(), program.steps.size(), program.launches.size(), program.arena.bytes);
  size_t launch = 0;
  for (size_t i = 0; i < program.steps.size(); ++i)
    for (; launch < program.step_ends[i]; ++launch)
      text += fmt::format("{} {}: {}\n", ops_of(program.steps[i]), step_name(program.steps[i]),
                          print(program.launches[launch].choice));
  std::map<std::string, uint32_t> without_kernel;  // a layer's patterns come back in every layer
  for (const Unfused& unfused : program.unfused) {
    if (unfused.is_lost)
      text += fmt::format("lost: {} of ops {} and {}: {}\n", unfused.pattern, unfused.producer, unfused.consumer,
                          unfused.reason);
    else
      ++without_kernel[fmt::format("{}: {}", unfused.pattern, unfused.reason)];
  }
  for (const auto& [what, count] : without_kernel) text += fmt::format("not taken: {} ({}x)\n", what, count);
  return text;
}

Status run(const Program& program, const OpContext& base) {
  return start(program, 0, program.launches.size(), context_of(program, base));
}

Status capture(const Program& program, const OpContext& base, cudaGraphExec_t* exec) {
  // Relaxed: a first launch loads code, which other modes forbid while capturing.
  CUDA_TRY(cudaStreamBeginCapture(base.stream, cudaStreamCaptureModeRelaxed), "begin capture");
  Status status = run(program, base);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(base.stream, &graph);
  if (status && ended == cudaSuccess) {
    if (exec)
      if (const cudaError_t code = cudaGraphInstantiate(exec, graph, 0); code != cudaSuccess)
        status = cuda_error(code, "instantiate graph");
  } else if (status) {
    status = cuda_error(ended, "end capture");
  }
  if (graph) cudaGraphDestroy(graph);
  return status;
}

Status time(const Program& program, const OpContext& base, std::vector<double>* op_ms) {
  const OpContext at = context_of(program, base);
  std::vector<cudaEvent_t> events(program.steps.size() + 1, nullptr);
  const auto time_steps = [&]() -> Status {
    for (cudaEvent_t& event : events) CUDA_TRY(cudaEventCreate(&event), "profile: event");
    CUDA_TRY(cudaEventRecord(events[0], at.stream), "profile: event");
    for (size_t i = 0; i < program.steps.size(); ++i) {
      const size_t begin = i > 0 ? program.step_ends[i - 1] : 0;
      if (Status status = start(program, begin, program.step_ends[i], at); !status) return status;
      CUDA_TRY(cudaEventRecord(events[i + 1], at.stream), "profile: event");
    }
    CUDA_TRY(cudaStreamSynchronize(at.stream), "profile: wait");
    const size_t num_before = op_ms->size();
    op_ms->resize(num_before + program.list.ops.size(), 0.0);
    for (size_t i = 0; i < program.steps.size(); ++i) {
      float ms = 0;
      CUDA_TRY(cudaEventElapsedTime(&ms, events[i], events[i + 1]), "profile: time");
      (*op_ms)[num_before + program.steps[i].ops.front()] = std::max(ms, 1e-6f);  // 0 is for ops of a step before
    }
    return {};
  };
  Status status = time_steps();
  for (cudaEvent_t event : events)
    if (event) cudaEventDestroy(event);
  return status;
}

}  // namespace llmrt::cuda
