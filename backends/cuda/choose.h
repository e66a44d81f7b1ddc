// A step -> its launches: which kernels, in which variants, on which grids, from shapes, facts of the device and
// tuning. Needs no device. The decisions are in choose_matmul.cpp and choose_attention.cpp; an op that has one kernel
// has its choose() at the foot of the kernel's file. Errors: unsupported and invalid_argument, for shapes that no
// kernel takes.
#pragma once

#include "backends/cuda/fuse.h"
#include "backends/cuda/launches.h"

namespace llmrt::cuda {

Status choose(const Step& step, const OpList& list, const CompileInputs& inputs, Launches* out);

// Whether there are kernels that do both at once, for the rows of the list.
bool has_gated_kernel(const Matmul& matmul, const GatedActivation& activation, const OpList& list,
                      const CompileInputs& inputs);
bool has_added_kernel(const Matmul& matmul, const RmsNorm& norm, const OpList& list, const CompileInputs& inputs);
bool has_normed_kernel(const RmsNorm& norm, const Matmul& matmul, const OpList& list, const CompileInputs& inputs);

// Ops by themselves.
Status choose(const PlainOp& step, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const UpdateRows& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const PrepareRows& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const Embed& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const RmsNorm& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const Matmul& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const QkNorm& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const JoinedQkNorm& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const Rope& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const KvWrite& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const PagedAttention& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const LatentRows& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const HeadMatmul& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const LatentAttention& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const ExpandLatent& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const AdapterShrink& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const AdapterExpand& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const ExpertShrink& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const ExpertTerm& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const ExpertExpand& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const RunningSum& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const CausalConv& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const GatedDelta& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const SelectiveScan& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const GatedNorm& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const GatedActivation& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const RouteExperts& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const ExpertGateUp& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const ExpertDown& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const Add& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const Scale& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const SoftCap& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const SigmoidGate& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const GatherRows& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const ApplyPenalties& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const ApplyBias& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const Filter& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const Sample& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const Logprobs& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const CopyBlocks& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const StoreBlocks& op, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const LoadBlocks& op, const OpList& list, const CompileInputs& inputs, Launches* out);

// Fused ones.
Status choose(const NormedMatmul& step, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const GatedMatmul& step, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const AddedMatmul& step, const OpList& list, const CompileInputs& inputs, Launches* out);
Status choose(const QkvHeads& step, const OpList& list, const CompileInputs& inputs, Launches* out);
// The activation of an x that was written in f16.
Status choose_from_f16(const GatedActivation& op, const OpList& list, const CompileInputs& inputs, Launches* out);

// The most that Filter needs of the workspace.
uint64_t filter_workspace_bytes(uint32_t rows_max, uint32_t num_sms);
// Numbers of a head that prompts' kernels take, with so much shared memory a block.
uint32_t attention_head_dim_max(uint32_t shared_bytes_max);
// Numbers of a token in the cache that latent attention takes; 0: none.
uint32_t latent_row_max(uint32_t shared_bytes_max);

}  // namespace llmrt::cuda
