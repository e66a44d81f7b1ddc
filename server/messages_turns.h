// The messages of Anthropic's form as those of a chat: blocks become parts, calls and turns of tools. Pure.
#pragma once

#include <boost/json.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "server/fields.h"

namespace llmrt::server {

struct TurnRules {
  bool strict = false;                // unknown members of messages and blocks are refused
  bool keeps_client_headers = false;  // a first system text that begins as kBillingHeader stays
  bool shows_inline_system = false;   // the template shows system messages where they stand
};

// Agents send it with a part that is new in every call: the prefix cache would find nothing behind it.
inline constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

class TurnBuilder {
 public:
  TurnBuilder(const TurnRules& rules, std::vector<std::string>& ignored) : rules_(rules), ignored_(ignored) {}

  // The field `system`: a string or text blocks.
  void add_system(Fields& fields);
  // One of `messages`; outer.failed() on error.
  void add_message(Fields& outer, const boost::json::value& value, size_t index);

  // What was added, as a chat's messages, and the client's index of each (kSystem of the system text).
  boost::json::array take() { return std::move(messages_); }
  const std::vector<size_t>& origins() const { return origins_; }
  bool empty() const { return messages_.empty(); }
  size_t size() const { return messages_.size(); }
  // Of the last message.
  bool ends_with_assistant() const;
  bool last_has_calls() const;
  bool last_has_text() const;
  void drop_last();

 private:
  struct Blocks;
  void read_blocks(Fields& message, const std::string& place, const boost::json::value& content, Blocks* out);
  void read_block(Fields& block, Blocks* out);
  void add_text(Fields& block, Blocks* out);
  void add_document(Fields& block, Blocks* out);
  void add_search_result(Fields& block, Blocks* out);
  void add_call(Fields& block, Blocks* out);
  void add_result(Fields& block, Blocks* out);
  void read_texts(Fields& block, std::string_view name, std::string* text);
  void refuse_or_drop(Fields& block, std::string_view type, Blocks* out);
  void finish(Fields& block);
  boost::json::object& turn_of(std::string_view role, size_t index);
  void add_turn(boost::json::object message, size_t index);

  TurnRules rules_;
  std::vector<std::string>& ignored_;
  boost::json::array messages_;
  std::vector<size_t> origins_;
};

}  // namespace llmrt::server
