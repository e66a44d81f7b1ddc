// The data of one step, beside the op lists that are its shape. Host code fills ForwardInputs and SampleInputs; `pack`
// lays each out as one run of 32-bit words behind a header, and that run is all that a backend uploads. Every record is
// a whole number of words with natural alignment, so C++, CUDA and GLSL read the same layout
// (twins: backends/cuda/step_inputs.cuh, shaders/step_inputs.glsl).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/ops/tensor.h"

namespace llmrt {

// ---- row state, kept by the backend per slot ----------------------------------------------------------------------

// Per-slot flag word. Data, never an axis of buckets.
enum RowFlags : uint32_t {
  kRowPenalties = 1u << 0,  // repetition, presence or frequency differ from neutral: penalty_slot is valid
  kRowBias = 1u << 1,       // the step may carry BiasEntries for the row
  kRowProcessed = kRowPenalties | kRowBias,  // any of these: later ops read `processed`
};

// Sampling parameters of a slot as the device keeps them.
struct RowSampling {
  uint32_t flags = 0;        // RowFlags
  float temperature = 1.0f;  // 0 = greedy
  uint32_t top_k = 0;        // 0 = all
  float top_p = 1.0f;        // 1 = all
  float min_p = 0.0f;        // 0 = all
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint32_t seed_lo = 0, seed_hi = 0;
  uint32_t branch = 0;        // which of n; part of the noise key
  int32_t penalty_slot = -1;  // row of the token counts, or -1
  float top_n_sigma = 0.0f;   // 0 = all
  uint32_t reserved[3] = {};
};
static_assert(sizeof(RowSampling) == 64);

enum class RowUpdateKind : uint32_t {
  kSet,  // payload: RowSampling (16 words); last token becomes -1
  // Payload: block ids for entries [arg0, arg0 + payload_words) of the table of KV group arg1; of a group of states the
  // one record, entry 0.
  kPatchTable,
  kCopySlot,  // everything of slot arg0, the tables of all groups too, except its penalty counts
  kRecount,   // counts of penalty slot arg0: payload = the prompt's tokens (arg1 of them), then the output's
  kCount,     // the same counts: payload = tokens of the output that come on top
  kClear,     // the slot is free, its tables are empty
};

struct RowUpdate {
  RowUpdateKind kind;
  uint32_t slot;
  uint32_t arg0, arg1;
  uint32_t payload_first;  // word index in the payload array
  uint32_t payload_words;
  uint32_t reserved[2] = {};
};
static_assert(sizeof(RowUpdate) == 32);

// ---- forward -------------------------------------------------------------------------------------------------------

inline constexpr int32_t kLastSampled = -1;  // a token of the step: "the one that you sampled last for this slot"

// One sequence in the step: tokens [token_first, token_first + num_tokens) at positions start, start + 1, ...
struct RowRecord {
  uint32_t slot;
  uint32_t start;  // absolute position of the first token
  uint32_t num_tokens;
  uint32_t token_first;                       // index among the step's T tokens
  uint32_t adapter_id = 0;                    // slot of the adapter pool + 1; 0 = none
  uint32_t places_first = 0, num_places = 0;  // in state_places
  uint32_t adapter_first = 0;                 // of its tokens: those before it have no adapter
};
static_assert(sizeof(RowRecord) == 32);

// A record beside the row's own in which a state of the row lies, that in front of its token at `position`. At the
// row's start the state is read from it, and the row's own record is only written: so a checkpoint, or what branches
// have in common, stays without a copy. Behind the start the state is written to it: a checkpoint. That is at multiples
// of kStatePlaceTokens, where kernels that take so many tokens at once hold the state; the last may be at the row's
// end. A row's places are in the order of their positions.
struct StatePlace {
  uint32_t kv_group, record, position;
  uint32_t reserved = 0;
};
static_assert(sizeof(StatePlace) == 16);
inline constexpr uint32_t kStatePlaceTokens = 64;

// Work of an attention kernel: query tokens [token_first, +num_tokens) of one row against keys [key_begin, key_end)
// (and causality), for every KV head. Decode items hold up to kDecodeItemTokens tokens, prompt items up to
// kPromptItemTokens; either may be one of several splits of the keys.
struct AttentionItem {
  uint32_t slot;
  uint32_t token_first;
  uint32_t num_tokens;
  uint32_t position_first;
  uint32_t key_begin, key_end;
  int32_t partial;  // index of the first token's partial result, or -1: writes the output itself
  union {
    uint32_t partial_stride = 1;  // of a prompt item: from one token's partial result to the next one's
    // A decode item with partial results names the merge item of its first token. The other tokens' merge items follow
    // it; each has as many partial results, which lie behind those of the token before.
    uint32_t merge_idx;
  };
};
static_assert(sizeof(AttentionItem) == 32);
// Several only in steps of lists that say so (OpList::has_runs).
inline constexpr uint32_t kDecodeItemTokens = 8;
inline constexpr uint32_t kPromptItemTokens = 64;
inline constexpr uint32_t kSplitPromptItemsMax = 128;  // of a step, that splitting may make

// Split results of one query token, merged by log-sum-exp in the order of the splits.
struct MergeItem {
  uint32_t token;
  uint32_t partial_first, num_partials;
  uint32_t is_prompt = 0;  // of prompt items
};
static_assert(sizeof(MergeItem) == 16);

// The rows that one adapter takes part in, at most kAdapterItemRows of them: [first, +num_rows) of the step's
// adapter_rows. In forward inputs rows are tokens, in sample inputs records. No row is in two items.
struct AdapterItem {
  uint32_t slot;  // of the adapter pool
  uint32_t first, num_rows;
  uint32_t reserved = 0;
};
static_assert(sizeof(AdapterItem) == 16);
inline constexpr uint32_t kAdapterItemRows = 64;
inline constexpr uint32_t kAdapterSlotsMax = 64;

struct AdapterRow {
  uint32_t row;
  float scale;  // the request's own factor on the adapter
};
static_assert(sizeof(AdapterRow) == 8);

// Between blocks of a group's pool; source and target of a load or a store are a host block and a block of the pool.
struct BlockCopy {
  uint32_t source, target;
  uint32_t num_tokens;  // the first of the block; of a load, a store or a record the group's block_tokens
  uint32_t kv_group = 0;
};
static_assert(sizeof(BlockCopy) == 16);

// Keys [key_begin, + num_keys) of the row at `slot`, whose latents ExpandLatent expands into block `block`, one of
// kExpandItemKeys tokens; the row's table of the expanded group says the same.
struct ExpandItem {
  uint32_t slot, key_begin, num_keys, block;
};
static_assert(sizeof(ExpandItem) == 16);
inline constexpr uint32_t kExpandItemKeys = 64;

// The work lists of attention over one KV group's blocks. Groups differ in windows and heads, so each has its own. The
// partial results of one attention op are merged before the next op runs, so all groups count them from 0.
struct AttentionWork {
  std::vector<AttentionItem> decode_items, prompt_items;
  std::vector<MergeItem> merge_items;
  std::vector<ExpandItem> expand_items;  // of a group whose keys are expanded latents
  uint32_t num_partials = 0;

  void clear();
};

struct ForwardInputs {
  std::vector<RowUpdate> row_updates;
  std::vector<uint32_t> row_payload;
  // In this order, each kind as a whole: what a store saves may be overwritten by a load, what a load brings be copied.
  std::vector<BlockCopy> block_stores, block_loads, block_copies;
  std::vector<RowRecord> rows;  // S
  std::vector<StatePlace> state_places;
  std::vector<int32_t> tokens;             // T: token id, or kLastSampled
  std::vector<uint32_t> token_rows;        // T: index into rows
  std::vector<AdapterItem> adapter_items;  // at most T, and kAdapterSlotsMax + T / kAdapterItemRows
  std::vector<AdapterRow> adapter_rows;
  std::array<AttentionWork, kKvGroupsMax> attention;  // by KV group
  // Tokens from here on are of rows whose latents are expanded: nobody reads what the absorbed form makes of them.
  uint32_t num_absorbed = ~0u;

  void clear();
};

// ---- sample --------------------------------------------------------------------------------------------------------

enum SampleFlags : uint32_t {
  kSampleForced = 1u << 0,     // score forced_token: nothing is drawn, no row state is written
  kSampleLogprobs = 1u << 1,   // Logprobs fills this row's LogprobRow
  kSampleProcessed = 1u << 2,  // with it: of the distribution that is drawn from
  kSampleVerify = 1u << 3,     // of a run, see below: drawn, but no row state is written
};

// A run verifies drafts of a row: records in a row, each for the token behind one more draft. forced_token is the draft
// that the drawn token should be, -1 in the last one. The flags' upper half says how many records of the run stand
// before this one; their drafts count as output tokens for its penalties. Which of the drawn tokens are taken is the
// host's to say: it tells the row's counts with kCount, and the row's next step gives all its tokens.
inline constexpr uint32_t kSampleRunShift = 16;
inline constexpr uint32_t kDraftTokensMax = 16;  // of a run

struct SampleRecord {
  uint32_t slot;
  uint32_t token_idx;                     // whose hidden state, among the step's T tokens
  uint32_t output_position;               // 0 for the first generated token; part of the noise key
  uint32_t flags = 0;                     // SampleFlags
  int32_t forced_token = -1;              // or the draft
  uint32_t bias_first = 0, num_bias = 0;  // in bias_entries
  int32_t mask = -1;                      // in mask_records; -1 = every token may be drawn
};
static_assert(sizeof(SampleRecord) == 32);

enum class MaskKind : uint32_t {
  kBits,  // one bit a token: bit v % 32 of word v / 32; tokens beyond the words are denied
  kList,  // the allowed tokens, ascending, a word each
};

// Which tokens a drawn sample may be. Rows of one grammar's state share one. To all that draws (Filter, Sample,
// processed log-probabilities) the logit of a denied token, processed or not, is -inf; raw log-probabilities are of the
// logits as they are. Samples that are forced have none.
struct MaskRecord {
  MaskKind kind;
  uint32_t first, count;  // in mask_words
  uint32_t reserved = 0;
};
static_assert(sizeof(MaskRecord) == 16);

struct BiasEntry {
  int32_t token;
  float bias;
};

struct SampleInputs {
  std::vector<SampleRecord> records;  // R
  std::vector<BiasEntry> bias_entries;
  std::vector<MaskRecord> mask_records;
  std::vector<uint32_t> mask_words;
  std::vector<AdapterItem> adapter_items;  // as in ForwardInputs
  std::vector<AdapterRow> adapter_rows;

  void clear();
};

// Filter's words per row.
struct FilterResult {
  float cutoff;  // kept: l > cutoff, or l == cutoff and id <= cutoff_id
  int32_t cutoff_id;
  float max_logit;  // of the row it read (before temperature)
  // Natural log of the sum of exp((l - max_logit) / temperature) over the kept (greedy: 0): small numbers, which keep
  // their digits at any temperature.
  float log_sum;
  uint32_t support;  // how many are kept
  uint32_t flags;    // ResultFlags
  uint32_t reserved[2];
};
static_assert(sizeof(FilterResult) == 32);

enum ResultFlags : uint32_t {
  // A NaN or +inf among the raw logits that the mask allows (among all, of a row whose raw log-probabilities are asked
  // for), or no finite one among all.
  kResultNotFinite = 1u << 0,
  kResultEmptySupport = 1u << 1,  // bans or the mask left nothing to draw
};

struct SampleResult {
  int32_t token;            // drawn or forced; -1 when flags name an error
  uint32_t flags;           // ResultFlags
  float logprob;            // raw log-softmax of the token; 0 unless kSampleLogprobs
  float processed_logprob;  // in the distribution that was drawn from
  uint32_t support;
  float margin;  // winner minus runner-up, noised scores (greedy: logits); +inf with one in support
  uint32_t reserved[2];
};
static_assert(sizeof(SampleResult) == 32);

inline constexpr uint32_t kLogprobsMax = 20;
struct LogprobRow {
  struct Entry {
    int32_t token;
    float logprob;
  } entries[kLogprobsMax];  // best first, ties by lower id
};
static_assert(sizeof(LogprobRow) == 160);

// ---- the packed form -----------------------------------------------------------------------------------------------

// Header words, each an offset (in words from the header's start) or a count. The array order is fixed.
//
// A run begins with one header for each of kKvGroupsMax groups. The first is whole. The others hold what attention
// reads: the counts and offsets of rows and tokens, and those of the group's own work lists. So a kernel that is handed
// the address of its group's header reads it as if there were no other group.
enum ForwardHeader : uint32_t {
  kFwdNumTokens,
  kFwdNumRows,
  kFwdNumUpdates,
  kFwdNumCopies,
  kFwdNumDecodeItems,
  kFwdNumPromptItems,
  kFwdNumMerges,
  kFwdUpdates,
  kFwdPayload,
  kFwdCopies,
  kFwdRows,
  kFwdTokens,
  kFwdTokenRows,
  kFwdDecodeItems,
  kFwdPromptItems,
  kFwdMerges,
  kFwdNumStores,
  kFwdStores,
  kFwdNumLoads,
  kFwdLoads,
  kFwdTotalWords,
  kFwdNumPlaces,
  kFwdPlaces,
  kFwdNumAdapterItems,
  kFwdAdapterItems,
  kFwdAdapterRows,
  kFwdNumExpands,
  kFwdExpands,
  kFwdNumAbsorbed,  // at most the tokens
  kForwardHeaderWords = 32,
  kForwardHeadersWords = kForwardHeaderWords * kKvGroupsMax,  // of all groups
};
enum SampleHeader : uint32_t {
  kSmpNumRecords,
  kSmpNumBias,
  kSmpRecords,
  kSmpBias,
  kSmpNumMasks,
  kSmpMasks,
  kSmpMaskWords,
  kSmpNumAdapterItems,
  kSmpAdapterItems,
  kSmpAdapterRows,
  kSmpTotalWords,
  kSampleHeaderWords = 32,
};

// Arrays start on 4-word boundaries. `out` keeps its capacity between calls: nothing is allocated in the steady state.
void pack(const ForwardInputs& inputs, std::vector<uint32_t>* out);
void pack(const SampleInputs& inputs, std::vector<uint32_t>* out);
// The way back, for checks and tests; invalid_argument when counts or offsets leave the run.
Result<ForwardInputs> unpack_forward(std::span<const uint32_t> words);
Result<SampleInputs> unpack_sample(std::span<const uint32_t> words);

}  // namespace llmrt
