// The packed step inputs and the row state as kernels read them. Twins: core/ops/step_inputs.h, backends/vulkan/resources.h.

// Header words of the forward inputs. Attention is handed the header of its KV group.
const uint kFwdNumTokens = 0, kFwdNumRows = 1, kFwdNumUpdates = 2, kFwdNumCopies = 3, kFwdNumDecodeItems = 4,
           kFwdNumPromptItems = 5, kFwdNumMerges = 6, kFwdUpdates = 7, kFwdPayload = 8, kFwdCopies = 9, kFwdRows = 10,
           kFwdTokens = 11, kFwdTokenRows = 12, kFwdDecodeItems = 13, kFwdPromptItems = 14, kFwdMerges = 15, kFwdNumStores = 16,
           kFwdStores = 17, kFwdNumLoads = 18, kFwdLoads = 19, kFwdPlaces = 22, kFwdNumExpands = 26, kFwdExpands = 27;
// Header words of the sample inputs.
const uint kSmpNumRecords = 0, kSmpNumBias = 1, kSmpRecords = 2, kSmpBias = 3, kSmpNumMasks = 4, kSmpMasks = 5,
           kSmpMaskWords = 6;

// RowUpdate: kind, slot, arg0, arg1, payload_first, payload_words.
const uint kUpdateWords = 8, kKvGroupsMax = 4;
const uint kUpdateSet = 0, kUpdatePatchTable = 1, kUpdateCopySlot = 2, kUpdateRecount = 3, kUpdateCount = 4, kUpdateClear = 5;
// RowRecord: slot, start, num_tokens, token_first, adapter_id, places_first, num_places.
// StatePlace: kv_group, record, position.
const uint kRecordWords = 8, kPlaceWords = 4;
// AttentionItem: slot, token_first, num_tokens, position_first, key_begin, key_end, partial.
const uint kItemWords = 8;
// ExpandItem: slot, key_begin, num_keys, block.
const uint kExpandWords = 4, kExpandItemKeys = 64;
// MergeItem: token, partial_first, num_partials, is_prompt. BlockCopy: source, target, num_tokens, kv_group.
const uint kMergeWords = 4, kCopyWords = 4;
// SampleRecord: slot, token_idx, output_position, flags, forced_token, bias_first, num_bias, mask.
const uint kRecordSlot = 0, kRecordPosition = 2, kRecordFlags = 3, kRecordForced = 4, kRecordMask = 7;
// MaskRecord: kind, first, count.
const uint kSampleWords = 8, kMaskRecordWords = 4;
const uint kMaskBits = 0, kMaskList = 1;
const uint kSampleForced = 1, kSampleLogprobs = 2, kSampleProcessed = 4, kSampleVerify = 8, kSampleRunShift = 16;

// Row state of a slot: RowSampling, then the last token.
const uint kRowWords = 20;
const uint kRowFlags = 0, kRowTemperature = 1, kRowTopK = 2, kRowTopP = 3, kRowMinP = 4, kRowRepetition = 5,
           kRowPresence = 6, kRowFrequency = 7, kRowSeedLo = 8, kRowSeedHi = 9, kRowBranch = 10, kRowPenaltySlot = 11,
           kRowTopNSigma = 12, kRowLastToken = 16;
const uint kFlagPenalties = 1, kFlagBias = 2, kFlagProcessed = 3;
// A word of token counts: bit 31 = in the prompt; the rest = times in the output.
const uint kCountPrompt = 0x80000000u;

// FilterResult and SampleResult words.
const uint kKeptWords = 8;
const uint kKeptCutoff = 0, kKeptCutoffId = 1, kKeptMax = 2, kKeptLogSum = 3, kKeptSupport = 4, kKeptFlags = 5;
const uint kResultWords = 8, kLogprobWords = 40, kLogprobsMax = 20;
const uint kResultNotFinite = 1, kResultEmptySupport = 2;
