// What an answer needs of a dialect: how the whole body looks, and the bytes of a stream from its first to its last.
// One writer for each answer; it is given either to add() and whole(), or to chunk() and end(). Pure: it knows no
// socket. One caller at a time, on whatever thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/choice.h"
#include "server/text_pieces.h"

namespace llmrt::server {

struct AnswerHead {
  std::string id;       // one for the whole answer: "chatcmpl-...", "resp_..."
  int64_t created = 0;  // seconds since 1970
  std::string request_id = {};
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // What the writer keeps of the answer so far.
  virtual size_t held_bytes() const = 0;
  // Each event of the engine, before its choice takes it: for dialects that tell times.
  virtual void note(const TokenEvent& event) { static_cast<void>(event); }

  // ---- a whole answer

  // What a delta adds to choice `choice`.
  virtual void add(size_t choice, const ChoiceDelta& delta) = 0;
  // The body, once every choice has ended. `choices`: form.best_of of each prompt in a row.
  virtual TextPieces whole(const std::vector<Choice>& choices) = 0;

  // ---- a stream: each appends whole events, or nothing, to `out`

  // A delta, which may be empty. The first of a choice begins it; the first of all begins the answer. is_last: no other
  // delta follows.
  virtual void chunk(size_t choice, const ChoiceDelta& delta, const std::vector<Choice>& choices, bool is_last,
                     std::string& out) = 0;
  // Behind the last delta of an answer that ended well.
  virtual void end(const std::vector<Choice>& choices, std::string& out) = 0;
  // The last event of an answer that did not.
  virtual void fail(const ApiError& error, std::string& out) = 0;
  // When there has been nothing to say for a while. It must not change what the client reads.
  virtual void keep_alive(std::string& out) { out += ": waiting\n\n"; }
};

}  // namespace llmrt::server
