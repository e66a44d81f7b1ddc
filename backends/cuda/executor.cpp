#include "backends/cuda/executor.h"

#include <algorithm>

#include "backends/cuda/check.h"

namespace llmrt::cuda {
namespace {

bool fits_graph(const OpList& list, const Executor::Setting& setting) {
  return list.num_tokens <= setting.inputs->tuning.graph_tokens_max;
}

}  // namespace

Result<Executor::Entry*> Executor::entry_of(const SealedList& sealed, const Setting& setting) {
  const OpList& list = sealed;
  auto it = entries_.find(sealed.key);
  if (it == entries_.end()) {
    Result<Program> program = compile(list, *setting.inputs);
    if (!program) return program.error();
    if (program->arena.bytes > setting.arena_bytes)
      return make_error(ErrorCode::kOutOfMemory, "list {} of {} tokens: arena: needs {} bytes, has {}", list.name,
                        list.num_tokens, program->arena.bytes, setting.arena_bytes);
    if (entries_.size() >= setting.inputs->tuning.programs_max) evict_oldest();
    it = entries_.emplace(sealed.key, Entry{*std::move(program)}).first;
  }
  it->second.last_used = ++uses_;
  return &it->second;
}

Status Executor::prepare(Entry* entry, const Setting& setting) {
  if (entry->graph || entry->is_loaded) return {};
  if (fits_graph(entry->program.list, setting)) return capture(entry->program, *setting.context, &entry->graph);
  entry->is_loaded = true;  // capturing loads the code of its kernels
  return capture(entry->program, *setting.context, nullptr);
}

Status Executor::prepare(const SealedList& sealed, const Setting& setting) {
  if (sealed.list.ops.empty()) return {};
  Result<Entry*> entry = entry_of(sealed, setting);
  if (!entry) return entry.error();
  return prepare(*entry, setting);
}

Status Executor::run(const SealedList& sealed, const Setting& setting) {
  if (sealed.list.ops.empty()) return {};
  Result<Entry*> entry = entry_of(sealed, setting);
  if (!entry) return entry.error();
  if (!fits_graph(sealed, setting)) return cuda::run((*entry)->program, *setting.context);
  if (Status status = prepare(*entry, setting); !status) return status;
  CUDA_TRY(cudaGraphLaunch((*entry)->graph, setting.context->stream), "launch graph");
  return {};
}

Status Executor::profile(const SealedList& list, const Setting& setting, std::vector<double>* op_ms) {
  Result<Entry*> entry = entry_of(list, setting);
  if (!entry) return entry.error();
  return time((*entry)->program, *setting.context, op_ms);
}

Result<const Program*> Executor::program(const SealedList& list, const Setting& setting) {
  Result<Entry*> entry = entry_of(list, setting);
  if (!entry) return entry.error();
  return &(*entry)->program;
}

void Executor::drop() {
  for (auto& [key, entry] : entries_)
    if (entry.graph) cudaGraphExecDestroy(entry.graph);
  entries_.clear();
}

void Executor::evict_oldest() {
  auto oldest = std::min_element(entries_.begin(), entries_.end(),
                                 [](const auto& a, const auto& b) { return a.second.last_used < b.second.last_used; });
  if (oldest->second.graph) cudaGraphExecDestroy(oldest->second.graph);  // a launch under way is completed first
  entries_.erase(oldest);
}

}  // namespace llmrt::cuda
