// Which marks count in which state of an answer.
#include "core/chat/answer_parser.h"

namespace llmrt {
namespace {

void add_all(LiveMarks* to, const LiveMarks& from) {
  for (const auto& entry : from.entries()) to->add(entry.units, entry.mark, entry.index);
}

// Marks that end a message with a header, or begin the next one.
LiveMarks message_marks(const ResolvedFormat& resolved) {
  const HeaderMarks& header = resolved.format->header;
  LiveMarks marks;
  marks.add(resolved.units(header.start), Mark::kHeaderStart);
  marks.add(resolved.units(header.channel), Mark::kChannel);
  marks.add(resolved.units(header.end), Mark::kMessageEnd);
  for (const std::string& stop : resolved.format->turn.stop) {
    if (stop != header.call) marks.add(resolved.units(stop), Mark::kStop);
  }
  return marks;
}

}  // namespace

void AnswerParser::make_live_marks() {
  const CallMarks& calls = format_.calls;
  LiveMarks openings, line_openings;  // of calls: anywhere, and where a line begins
  if (options_.reads_calls && format_.has_calls()) {
    openings.add(resolved_.units(calls.section_open), Mark::kSectionOpen);
    const bool needs_section = !calls.section_open.empty() && !calls.section_optional;
    for (size_t i = 0; i < calls.open.size(); ++i) {
      const Units units = resolved_.units(calls.open[i].text);
      LiveMarks& marks = calls.open[i].at_line_start ? line_openings : openings;
      if (!needs_section) marks.add(units, Mark::kCallOpen, static_cast<uint8_t>(i));
      section_live_.add(units, Mark::kCallOpen, static_cast<uint8_t>(i));
    }
  }
  LiveMarks messages;
  if (format_.header.used()) messages = message_marks(resolved_);
  make_call_marks(messages);
  make_text_marks(openings, line_openings, messages);
  if (!format_.header.used()) return;
  header_live_ = messages;
  header_live_.add(resolved_.units(format_.header.message), Mark::kMessage);
  header_live_.add(resolved_.units(format_.header.constrain), Mark::kConstrain);
  header_live_.add(resolved_.units(format_.header.call), Mark::kStop);
}

void AnswerParser::make_call_marks(const LiveMarks& messages) {
  const CallMarks& calls = format_.calls;
  body_ends_.add(resolved_.units(format_.header.call), Mark::kCallClose);
  body_ends_.add(resolved_.units(calls.close), Mark::kCallClose);
  body_ends_.add(resolved_.units(calls.section_close), Mark::kSectionClose);
  add_all(&body_ends_, messages);
  for (const CallOpening& opening : calls.open) {
    // A bare opening is text that may stand in arguments too.
    if (!opening.at_line_start) body_ends_.add(resolved_.units(opening.text), Mark::kCallOpen);
  }
  section_live_.add(resolved_.units(calls.section_close), Mark::kSectionClose);
  section_live_.add(resolved_.units(calls.close), Mark::kHidden);
}

void AnswerParser::make_text_marks(const LiveMarks& openings, const LiveMarks& line_openings,
                                   const LiveMarks& messages) {
  const CallMarks& calls = format_.calls;
  const Units thought_open = resolved_.units(format_.thought.open),
              thought_close = resolved_.units(format_.thought.close);
  const bool has_token = resolved_.has_token(format_.thought.open);
  add_all(&broken_live_, openings);
  add_all(&broken_live_, line_openings);
  broken_live_.add(resolved_.units(calls.section_close.empty() ? calls.close : calls.section_close), Mark::kCallClose);
  broken_live_.add(thought_close, Mark::kThoughtClose);
  for (const bool segment : {false, true}) {
    for (const bool line : {false, true}) {
      LiveMarks& live = text_live_[segment][line];
      add_all(&live, openings);
      if (line) add_all(&live, line_openings);
      if (segment || has_token) live.add(thought_open, Mark::kThoughtOpen);
      if (segment) live.add(thought_close, Mark::kHidden);
      if (segment && options_.reads_calls) {
        live.add(resolved_.units(calls.close), Mark::kHidden);
        live.add(resolved_.units(calls.section_close), Mark::kHidden);
      }
      for (const std::string& hidden : format_.turn.hide) live.add(resolved_.units(hidden), Mark::kHidden);
      // A call's end that is a stop of its own ends any message.
      add_all(&live, messages);
      live.add(resolved_.units(format_.header.call), Mark::kStop);
    }
  }
  for (const bool is_empty : {false, true}) {
    LiveMarks& live = thought_live_[is_empty];
    live.add(thought_close, Mark::kThoughtClose);
    if (is_empty || has_token) live.add(thought_open, Mark::kThoughtOpen);
    if (format_.thought.calls_end_it) {
      add_all(&live, openings);
      add_all(&live, line_openings);
    }
    add_all(&live, messages);
    live.add(resolved_.units(format_.header.call), Mark::kStop);
  }
}

}  // namespace llmrt
