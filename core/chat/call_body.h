// One call (or a list of calls) between its opening and its close, one reader per kind of arguments. The parser finds
// the marks that a body names and hands over marks and data in order; a body says to the sink what it read.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/chat/answer_counts.h"
#include "core/chat/mark_scanner.h"
#include "core/chat/tool_types.h"

namespace llmrt {

class CallSink {
 public:
  virtual ~CallSink() = default;
  // A call begins; `id` empty: it has none. False: there is no call of this name here, and the text is no call.
  virtual bool begin_call(std::string_view name, std::string_view id) = 0;
  virtual void args(std::string_view json) = 0;
  virtual void end_call(bool is_complete) = 0;
  virtual void count(Oddity oddity) = 0;
  virtual bool is_declared(std::string_view name) const = 0;
  virtual ValueTypes types_of(std::string_view tool, std::string_view parameter) const = 0;
};

class CallBody {
 public:
  enum class Step : uint8_t {
    kMore,
    kDone,        // with this unit
    kDoneBefore,  // this unit or mark is not part of it
    kClosed,      // with this mark, which closed the call
    kFailed,      // what was read since the last end of a call, and this unit, is no call
  };
  virtual ~CallBody() = default;
  virtual const LiveMarks& live() const = 0;
  // Data is text of an argument, not markup.
  virtual bool in_text() const { return false; }
  virtual Step data(Unit unit) = 0;
  virtual Step mark(const MarkScanner::Found& found) = 0;
  // The answer ends here; cut: at a limit. kDone or kFailed.
  virtual Step end(bool cut) = 0;
};

// What all bodies of a parser share.
struct BodyContext {
  const ResolvedFormat* format;
  CallSink* sink;
  LiveMarks ends;        // marks that end any call: close, the section's close, an opening
  bool is_bare = false;  // no mark opened it: it must be exact
  bool has_name_mark = false;
};

std::unique_ptr<CallBody> make_object_body(BodyContext context);  // kJsonInObject
// kJson; a name that is known already (from a header) may be given.
std::unique_ptr<CallBody> make_json_body(BodyContext context, std::string known_name);
std::unique_ptr<CallBody> make_tagged_body(BodyContext context);
std::unique_ptr<CallBody> make_pythonic_body(BodyContext context);
std::unique_ptr<CallBody> make_gemma_body(BodyContext context);

// A call's close and its like, outside of strings.
inline bool is_end_mark(Mark mark) {
  return mark == Mark::kCallClose || mark == Mark::kSectionClose || mark == Mark::kCallOpen ||
         mark == Mark::kSectionOpen || mark == Mark::kMessageEnd || mark == Mark::kHeaderStart ||
         mark == Mark::kChannel;
}
inline CallBody::Step step_at_end_mark(Mark mark) {
  return mark == Mark::kCallClose ? CallBody::Step::kClosed : CallBody::Step::kDoneBefore;
}
inline bool is_name_byte(Unit unit) {
  return (unit >= 'a' && unit <= 'z') || (unit >= 'A' && unit <= 'Z') || (unit >= '0' && unit <= '9') || unit == '_' ||
         unit == '-' || unit == '.' || unit == ':' || unit == '/' || (unit >= 0x80 && is_byte(unit));
}
inline constexpr size_t kNameBytesMax = 512;

}  // namespace llmrt
