#include "backends/cuda/executor.h"

#include <algorithm>

#include "backends/cuda/check.h"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kGraphTokensMax = 512;  // larger steps hide their launches behind their own length
constexpr size_t kEntriesMax = 320;        // all buckets of one model, and some

// What is executed as one from op `i` on: how many ops, and their status.
struct Ran {
  size_t num_ops;
  Status status;
};

template <class T>
const T* op_at(const OpList& list, size_t i) {
  return i < list.ops.size() ? std::get_if<T>(&list.ops[i]) : nullptr;
}

// Whether `tensor` is of no use behind op i.
bool ends_at(TensorId tensor, size_t i, const OpContext& at) {
  return at.plan->last_ops[tensor] == static_cast<int>(i);
}

// The norm that is op i, if the matmul before it, where there is one to wait for, makes the sum.
const RmsNorm* summed_norm_at(const OpList& list, size_t i, const OpContext& at) {
  const RmsNorm* norm = op_at<RmsNorm>(list, i);
  if (!norm || norm->delta == kNoTensor) return norm;
  const Matmul* before = i > 0 ? op_at<Matmul>(list, i - 1) : nullptr;
  return before && ends_at(before->out, i, at) && can_fuse(*before, *norm, at) ? norm : nullptr;
}

// The same if the matmul behind it makes the norm, and nothing else wants that.
const RmsNorm* handed_on_norm_at(const OpList& list, size_t i, const OpContext& at) {
  const RmsNorm* norm = summed_norm_at(list, i, at);
  const Matmul* next = op_at<Matmul>(list, i + 1);
  return norm && next && ends_at(norm->out, i + 1, at) && can_fuse(*norm, *next, at) ? norm : nullptr;
}

Ran run_matmul_at(const OpList& list, size_t i, const OpContext& base) {
  OpContext at = base;
  if (i > 0) at.norm = handed_on_norm_at(list, i - 1, base);
  const Matmul& matmul = std::get<Matmul>(list.ops[i]);
  const GatedActivation* activation = op_at<GatedActivation>(list, i + 1);
  if (activation && ends_at(matmul.out, i + 1, at) && can_fuse(matmul, *activation, at))
    return {2, run_fused(matmul, *activation, at)};
  if (const RmsNorm* norm = summed_norm_at(list, i + 1, at); norm && norm->delta == matmul.out)
    return {2, handed_on_norm_at(list, i + 1, at) ? run_added(matmul, *norm, at) : run_fused(matmul, *norm, at)};
  return {1, run(matmul, at)};
}

Ran run_at(const OpList& list, size_t i, const OpContext& at) {
  if (op_at<Matmul>(list, i)) return run_matmul_at(list, i, at);
  if (handed_on_norm_at(list, i, at)) return {1, {}};
  const QkNorm* norm = op_at<QkNorm>(list, i);
  const size_t next = norm ? i + 1 : i;
  const Rope* rope = op_at<Rope>(list, next);
  const KvWrite* write = op_at<KvWrite>(list, next + 1);
  if (rope && write && rope->qkv == write->qkv && (!norm || norm->qkv == rope->qkv))
    return {norm ? 3u : 2u, run_fused(norm, *rope, *write, at)};
  return {1, std::visit([&](const auto& op) { return run(op, at); }, list.ops[i])};
}

Status run_all(const OpList& list, const OpContext& at) {
  for (size_t i = 0; i < list.ops.size();) {
    Ran ran = run_at(list, i, at);
    if (!ran.status) return std::move(ran.status);
    i += ran.num_ops;
  }
  return {};
}

bool fits_graph(const OpList& list) {
  return list.num_tokens <= kGraphTokensMax;
}

OpContext context_of(const OpContext& base, const OpList& list, const ArenaPlan& plan) {
  OpContext at = base;
  at.list = &list;
  at.plan = &plan;
  return at;
}

}  // namespace

Result<Executor::Compiled*> Executor::compiled(const OpList& list, uint64_t arena_bytes) {
  const uint64_t key = list.key();
  auto it = entries_.find(key);
  if (it == entries_.end()) {
    if (Status status = refuse_routed_rows(list); !status) return status.error();
    ArenaPlan plan = plan_arena(list, kArenaAlignment);
    if (plan.bytes > arena_bytes)
      return make_error(ErrorCode::kOutOfMemory, "list {} of {} tokens: arena: needs {} bytes, has {}", list.name,
                        list.num_tokens, plan.bytes, arena_bytes);
    if (entries_.size() >= kEntriesMax) evict_oldest();
    it = entries_.emplace(key, Compiled{std::move(plan)}).first;
  }
  it->second.last_used = ++uses_;
  return &it->second;
}

Status Executor::capture(const OpList& list, const OpContext& at, cudaGraphExec_t* exec) {
  // Relaxed: a first launch loads code, which other modes forbid while capturing.
  CUDA_TRY(cudaStreamBeginCapture(at.stream, cudaStreamCaptureModeRelaxed), "begin capture");
  Status status = run_all(list, at);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(at.stream, &graph);
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

Status Executor::prepare(const OpList& list, const OpContext& base, uint64_t arena_bytes) {
  if (list.ops.empty()) return {};
  Result<Compiled*> entry = compiled(list, arena_bytes);
  if (!entry) return entry.error();
  if ((*entry)->graph || (*entry)->is_loaded) return {};
  const OpContext at = context_of(base, list, (*entry)->plan);
  if (fits_graph(list)) return capture(list, at, &(*entry)->graph);
  (*entry)->is_loaded = true;  // capturing loads the code of its kernels
  return capture(list, at, nullptr);
}

Status Executor::run(const OpList& list, const OpContext& base, uint64_t arena_bytes) {
  if (list.ops.empty()) return {};
  if (fits_graph(list))
    if (Status status = prepare(list, base, arena_bytes); !status) return status;
  Result<Compiled*> entry = compiled(list, arena_bytes);
  if (!entry) return entry.error();
  if (!(*entry)->graph) return run_all(list, context_of(base, list, (*entry)->plan));
  CUDA_TRY(cudaGraphLaunch((*entry)->graph, base.stream), "launch graph");
  return {};
}

Status Executor::profile(const OpList& list, const OpContext& base, uint64_t arena_bytes, std::vector<double>* op_ms) {
  Result<Compiled*> entry = compiled(list, arena_bytes);
  if (!entry) return entry.error();
  const OpContext at = context_of(base, list, (*entry)->plan);
  std::vector<cudaEvent_t> events(list.ops.size() + 1, nullptr);
  std::vector<size_t> first_ops;  // of what is run as one: its first op carries the time
  const auto time_ops = [&]() -> Status {
    for (cudaEvent_t& event : events) CUDA_TRY(cudaEventCreate(&event), "profile: event");
    CUDA_TRY(cudaEventRecord(events[0], at.stream), "profile: event");
    for (size_t i = 0; i < list.ops.size();) {
      Ran ran = run_at(list, i, at);
      if (!ran.status) return std::move(ran.status);
      first_ops.push_back(i);
      CUDA_TRY(cudaEventRecord(events[first_ops.size()], at.stream), "profile: event");
      i += ran.num_ops;
    }
    CUDA_TRY(cudaStreamSynchronize(at.stream), "profile: wait");
    const size_t num_before = op_ms->size();
    op_ms->resize(num_before + list.ops.size(), 0.0);
    for (size_t i = 0; i < first_ops.size(); ++i) {
      float ms = 0;
      CUDA_TRY(cudaEventElapsedTime(&ms, events[i], events[i + 1]), "profile: time");
      (*op_ms)[num_before + first_ops[i]] = std::max(ms, 1e-6f);
    }
    return {};
  };
  Status status = time_ops();
  for (cudaEvent_t event : events)
    if (event) cudaEventDestroy(event);
  return status;
}

void Executor::drop_graphs() {
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
