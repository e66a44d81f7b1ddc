// A streamed answer in OpenAI's protocol (server-sent events of completions or chat completions), read as its bytes
// come. Pure: the time of each piece of bytes is a parameter. What a server sends cannot make it keep more than a line,
// an event and the times of a few chunks for each token that was asked for, and of an answer with structure so much as
// kAnswerBytesMax says.
#pragma once

#include <boost/json.hpp>

#include <string>
#include <string_view>

#include "tools/llmrt_bench/load/outcome.h"

namespace llmrt::bench {

inline constexpr size_t kStreamLineBytesMax = 1 << 20;

class AnswerStream {
 public:
  // Times, counts and a failure go to `outcome`, which lives as long.
  explicit AnswerStream(Outcome* outcome) : outcome_(outcome) {}

  // False: nothing more is wanted, as the answer is over or has failed.
  bool feed(std::string_view bytes, TimeNs now_ns);
  // The bytes have ended. Whether the answer had, and had tokens.
  void end(TimeNs now_ns);

 private:
  void take_line(std::string_view line, TimeNs now_ns);
  void take_event(TimeNs now_ns);
  void keep_text(const boost::json::object& choice);
  bool is_over() const { return is_done_ || outcome_->failure; }

  Outcome* outcome_;
  std::string line_, data_;
  bool has_finish_reason_ = false, is_done_ = false;
  size_t kept_bytes_ = 0;
};

}  // namespace llmrt::bench
