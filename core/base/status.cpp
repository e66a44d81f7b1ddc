#include "core/base/status.h"

#include <cstdio>
#include <cstdlib>

namespace llmrt {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kCorruptFile:
      return "corrupt_file";
    case ErrorCode::kContextLength:
      return "context_length_exceeded";
    case ErrorCode::kNeverFits:
      return "never_fits";
    case ErrorCode::kPoolExhausted:
      return "pool_exhausted";
    case ErrorCode::kNotFinite:
      return "not_finite_logits";
    case ErrorCode::kEmptySupport:
      return "empty_support";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    case ErrorCode::kDeviceLost:
      return "device_lost";
    case ErrorCode::kMissingFeature:
      return "missing_feature";
    case ErrorCode::kOverloaded:
      return "overloaded";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kIo:
      return "io_error";
    case ErrorCode::kInternal:
      return "internal_error";
    case ErrorCode::kUnsupportedSchema:
      return "unsupported_schema";
    case ErrorCode::kGrammarTimeout:
      return "grammar_timeout";
    case ErrorCode::kGrammarTooComplex:
      return "grammar_too_complex";
  }
  return "unknown";
}

void check_failed(const char* file, int line, const char* condition, std::string_view message) {
  std::fprintf(stderr, "llmrt: internal error at %s:%d: %s: %.*s\n", file, line, condition,
               static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace llmrt
