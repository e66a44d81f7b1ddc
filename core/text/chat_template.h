// Chat turns to one prompt: a real subset of Jinja2 as chat templates use it, without any way to reach the system.
// A template in a model file is hostile input, and so is what a client brings for it: compile once, render under limits
// (render_limits.h), whose end is an invalid_argument error that names the limit. Output keeps the origin of each
// piece, so that text from a message can never become a special token. Immutable after compile; render may be called
// from any thread.
#pragma once

#include <boost/json.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/jinja/render_limits.h"
#include "core/text/tokenizer.h"

namespace llmrt {

class ChatTemplate {
 public:
  // Errors name line and column: unsupported (a feature by name), corrupt_file (a syntax error).
  static Result<std::unique_ptr<ChatTemplate>> compile(std::string source);
  ~ChatTemplate();

  // `context`: the variables (messages, tools, add_generation_prompt, bos_token, ... as JSON). Strings inside it are
  // data; string literals and text of the template itself are template text. bos_token, eos_token and the like passed
  // under `template_strings` count as template text. raise_exception in the template = invalid_argument with its text
  // as the error's detail. `cancelled` ends a rendering under way soon after it turns true: kCancelled.
  Result<std::vector<TextPiece>> render(const boost::json::object& context, const boost::json::object& template_strings,
                                        const RenderLimits& limits = {},
                                        const std::atomic<bool>* cancelled = nullptr) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace llmrt
