// Errors as values. Two kinds travel here: the client's or the file's fault, and the machine's (no memory, device
// lost). Our own faults do not: LLMRT_CHECK (check.h) stops the process (but for kInternal). A message has two parts,
// what then context, expected beside actual: "shape mismatch: layer 3 attn.q: expected [4096, 1024] f16, file has
// [4096, 512] q8_0".
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "core/base/check.h"

namespace llmrt {

enum class ErrorCode {
  kInvalidArgument,    // a value outside its documented range
  kNotFound,           // a file, a device, a model or a route that is not there
  kUnsupported,        // well formed, but this build or device does not do it
  kCorruptFile,        // a model file that breaks its format
  kContextLength,      // a prompt (plus output) longer than the context
  kNeverFits,          // a request that the KV pool could never hold
  kPoolExhausted,      // a lone running sequence outgrew the KV pool
  kNotFinite,          // logits with inf or NaN; ends that request alone
  kEmptySupport,       // no token left to draw after masks and filters
  kOutOfMemory,        // host or device memory
  kDeviceLost,         // the device stopped answering; everything in flight is lost
  kMissingFeature,     // the device lacks what the operation needs
  kOverloaded,         // a bounded queue is full; try again later
  kTimeout,            // a deadline passed
  kCancelled,          // the client went away or asked to stop
  kIo,                 // a system call failed
  kInternal,           // the engine's books do not balance: our own fault, told so that a server ends in order
  kUnsupportedSchema,  // a schema, a regular expression or a grammar that cannot be compiled exactly
  kGrammarTimeout,     // compiling a grammar took too long
  kGrammarTooComplex,  // a grammar or its masks over the limits of size or time
};

// Lower snake case, stable: it is the `code` of error bodies.
const char* error_code_name(ErrorCode code);

struct Error {
  ErrorCode code;
  std::string message;
  uint32_t retry_after_s = 0;  // of kOverloaded: when trying again makes sense; 0 = not known
  std::string detail = "";     // for the client alone, never for a log: it may quote what the client sent
};

template <typename... Args>
[[nodiscard]] Error make_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

// A value or an Error (std::expected is C++23).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & {
    LLMRT_CHECK(ok(), error().message);
    return std::get<0>(state_);
  }
  const T& value() const& {
    LLMRT_CHECK(ok(), error().message);
    return std::get<0>(state_);
  }
  T&& value() && {
    LLMRT_CHECK(ok(), error().message);
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  void value() const { LLMRT_CHECK(ok(), error_->message); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace llmrt
