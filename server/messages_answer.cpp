#include "server/messages_answer.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "core/grammar/json_spelling.h"
#include "server/answer_json.h"
#include "server/json_reader.h"
#include "server/messages_request.h"
#include "server/process_mac.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;
using Part = AnswerPart::Kind;

// Clients expect one beside a thought, and send it back; thoughts that come back are taken whatever it says.
constexpr std::string_view kSignature = "signature of a thought";

enum class BlockKind : uint8_t { kNone, kText, kThought, kCall };

BlockKind block_of(Part part) {
  if (part == Part::kContent) return BlockKind::kText;
  return part == Part::kThought ? BlockKind::kThought : BlockKind::kCall;
}

std::string escaped(std::string_view text) {
  std::string out;
  append_escaped(text, out);
  return out;
}

bool is_object_text(std::string_view text) {
  const auto value = read_json(text);
  return value && value->is_object();
}

// One block of a whole answer.
struct MessageBlock {
  BlockKind kind = BlockKind::kNone;
  TextPieces text = {};              // inside the quotes
  std::string id = {}, name = {};    // of a call
  std::string input = {};            // of a call, as the model wrote it
  ProcessMac signature{kSignature};  // of a thought
};

class MessagesWriter final : public AnswerWriter {
 public:
  MessagesWriter(const ServedModel& model, const AnswerForm& form, AnswerHead head)
      : model_(model), form_(static_cast<const MessagesForm&>(*form.own)), head_(std::move(head)) {}

  void add(size_t, const ChoiceDelta& delta) override {
    for_each_part(delta, [&](const AnswerPart& part) { add_part(part); });
    note_end(delta);
  }
  size_t held_bytes() const override {
    size_t bytes = 0;
    for (const MessageBlock& block : blocks_)
      bytes += sizeof(block) + block.text.held_bytes() + block.id.size() + block.name.size() + block.input.capacity();
    return bytes;
  }
  TextPieces whole(const std::vector<Choice>& choices) override;

  void chunk(size_t, const ChoiceDelta& delta, const std::vector<Choice>& choices, bool is_last,
             std::string& out) override {
    static_cast<void>(is_last);
    begin(choices, out);
    for_each_part(delta, [&](const AnswerPart& part) { part_event(part, out); });
    note_end(delta);
  }
  void end(const std::vector<Choice>& choices, std::string& out) override;
  void fail(const ApiError& error, std::string& out) override {
    event("error", json::serialize(error_body(error, {ErrorForm::kMessages, head_.request_id})), out);
  }
  void keep_alive(std::string& out) override { event("ping", "{\"type\":\"ping\"}", out); }

 private:
  template <typename Visit>
  void for_each_part(const ChoiceDelta& delta, Visit visit) const {
    if (form_.shows_nothing) return;
    if (!delta.text.empty()) visit(AnswerPart{.kind = Part::kContent, .text = delta.text});
    for (const AnswerPart& part : delta.parts) visit(part);
  }
  void note_end(const ChoiceDelta& delta) {
    if (delta.finish == FinishReason::kNone) return;
    finish_ = delta.finish;
    ends_in_calls_ = delta.ends_in_calls;
    stop_text_ = delta.stop_text;
  }
  // A call that is whole counts more than a stop string behind it, a limit more than both.
  std::string_view stop_reason(bool has_calls) const {
    if (finish_ == FinishReason::kLength) return form_.is_cut ? "model_context_window_exceeded" : "max_tokens";
    if (finish_ == FinishReason::kPolicy) return "refusal";
    if (has_calls) return "tool_use";
    return stop_text_.empty() ? "end_turn" : "stop_sequence";
  }
  std::string stop_members(bool has_calls) const {
    const std::string_view reason = stop_reason(has_calls);
    return fmt::format("\"stop_reason\":\"{}\",\"stop_sequence\":{}", reason,
                       reason == "stop_sequence" ? json_string_text(stop_text_) : "null");
  }
  std::string usage(const std::vector<Choice>& choices, bool is_begin) const {
    const Choice& choice = choices[0];
    const size_t prompt = choice.prompt_tokens().size(), cached = std::min(prompt, choice.num_cached());
    const size_t generated = is_begin || form_.shows_nothing ? 0 : choice.num_generated();
    std::string text = fmt::format(
        "{{\"input_tokens\":{},\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":{},\"output_tokens\":{}",
        prompt - cached, cached, generated);
    if (!is_begin)
      text += fmt::format(",\"output_tokens_details\":{{\"thinking_tokens\":{}}}", choice.num_thought_tokens());
    return text + "}";
  }
  std::string head() const {
    return fmt::format("\"id\":{},\"type\":\"message\",\"role\":\"assistant\",\"model\":{}", json_string_text(head_.id),
                       json_string_text(model_.id));
  }

  // ---- a whole answer
  void add_part(const AnswerPart& part) {
    const BlockKind kind = block_of(part.kind);
    if (blocks_.empty() || blocks_.back().kind != kind || part.kind == Part::kCallHead)
      blocks_.push_back({.kind = kind, .id = part.id, .name = part.name});
    MessageBlock& block = blocks_.back();
    if (kind == BlockKind::kThought) block.signature.add(part.text);
    if (kind == BlockKind::kCall)
      block.input += part.text;
    else if (kind == BlockKind::kText || !form_.hides_thoughts)
      block.text.append(escaped(part.text));
  }
  bool append_block(MessageBlock&& block, TextPieces& body) const;

  // ---- a stream
  static void event(std::string_view name, std::string_view data, std::string& out) {
    fmt::format_to(std::back_inserter(out), "event: {}\ndata: {}\n\n", name, data);
  }
  void begin(const std::vector<Choice>& choices, std::string& out) {
    if (std::exchange(has_begun_, true)) return;
    event("message_start",
          fmt::format("{{\"type\":\"message_start\",\"message\":{{{},\"content\":[],\"stop_reason\":null,"
                      "\"stop_sequence\":null,\"usage\":{}}}}}",
                      head(), usage(choices, /*is_begin=*/true)),
          out);
  }
  void open(BlockKind kind, const AnswerPart& part, std::string& out);
  void close(std::string& out);
  void delta_event(std::string_view type, std::string_view field, std::string_view text, std::string& out) const {
    event("content_block_delta",
          fmt::format("{{\"type\":\"content_block_delta\",\"index\":{},\"delta\":{{\"type\":\"{}\",\"{}\":{}}}}}",
                      index_, type, field, json_string_text(text)),
          out);
  }
  void part_event(const AnswerPart& part, std::string& out);

  const ServedModel& model_;
  const MessagesForm form_;
  const AnswerHead head_;
  std::vector<MessageBlock> blocks_;  // of a whole answer
  FinishReason finish_ = FinishReason::kNone;
  bool ends_in_calls_ = false;
  std::string stop_text_;

  // Of a stream:
  bool has_begun_ = false;
  BlockKind open_ = BlockKind::kNone;
  size_t index_ = 0;  // of the block that is open, else of the next one
  ProcessMac signature_{kSignature};
};

// ---- a whole answer ------------------------------------------------------------------------------------------------

// Whether it is a call that a client can run. One whose arguments are no JSON object becomes a text, as `input` must be
// one.
bool MessagesWriter::append_block(MessageBlock&& block, TextPieces& body) const {
  if (block.kind == BlockKind::kText || block.kind == BlockKind::kThought) {
    const bool is_text = block.kind == BlockKind::kText;
    body.append(is_text ? "{\"type\":\"text\",\"text\":\"" : "{\"type\":\"thinking\",\"thinking\":\"");
    body.append(std::move(block.text));
    body.append(is_text ? "\"}" : fmt::format("\",\"signature\":\"{}\"}}", to_hex(block.signature.take())));
    return false;
  }
  if (block.input.empty()) block.input = "{}";
  if (is_object_text(block.input)) {
    body.append(fmt::format("{{\"type\":\"tool_use\",\"id\":{},\"name\":{},\"input\":", json_string_text(block.id),
                            json_string_text(block.name)));
    body.append(block.input);
    body.append("}");
    return true;
  }
  body.append("{\"type\":\"text\",\"text\":");
  body.append(
      json_string_text(fmt::format("{{\"name\": {}, \"arguments\": {}}}", json_string_text(block.name), block.input)));
  body.append("}");
  return false;
}

TextPieces MessagesWriter::whole(const std::vector<Choice>& choices) {
  TextPieces body;
  body.append("{" + head() + ",\"content\":[");
  bool has_calls = false, is_first = true;
  // Clients read content[0].
  if (blocks_.empty() && !form_.shows_nothing) blocks_.push_back({.kind = BlockKind::kText});
  for (MessageBlock& block : blocks_) {
    if (!std::exchange(is_first, false)) body.append(",");
    has_calls |= append_block(std::move(block), body);
  }
  blocks_.clear();
  body.append(fmt::format("],{},\"usage\":{}}}", stop_members(has_calls), usage(choices, /*is_begin=*/false)));
  return body;
}

// ---- a stream ------------------------------------------------------------------------------------------------------

void MessagesWriter::open(BlockKind kind, const AnswerPart& part, std::string& out) {
  close(out);
  open_ = kind;
  std::string block = "{\"type\":\"text\",\"text\":\"\"}";
  if (kind == BlockKind::kThought) block = "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}";
  if (kind == BlockKind::kCall)
    block = fmt::format("{{\"type\":\"tool_use\",\"id\":{},\"name\":{},\"input\":{{}}}}", json_string_text(part.id),
                        json_string_text(part.name));
  event("content_block_start",
        fmt::format("{{\"type\":\"content_block_start\",\"index\":{},\"content_block\":{}}}", index_, block), out);
}

void MessagesWriter::close(std::string& out) {
  if (open_ == BlockKind::kNone) return;
  if (open_ == BlockKind::kThought) delta_event("signature_delta", "signature", to_hex(signature_.take()), out);
  event("content_block_stop", fmt::format("{{\"type\":\"content_block_stop\",\"index\":{}}}", index_), out);
  open_ = BlockKind::kNone;
  ++index_;
}

void MessagesWriter::part_event(const AnswerPart& part, std::string& out) {
  const BlockKind kind = block_of(part.kind);
  if (open_ != kind || part.kind == Part::kCallHead) open(kind, part, out);
  if (part.text.empty()) return;
  if (kind == BlockKind::kThought) signature_.add(part.text);
  if (kind == BlockKind::kText)
    delta_event("text_delta", "text", part.text, out);
  else if (kind == BlockKind::kCall)
    delta_event("input_json_delta", "partial_json", part.text, out);
  else if (!form_.hides_thoughts)
    delta_event("thinking_delta", "thinking", part.text, out);
}

void MessagesWriter::end(const std::vector<Choice>& choices, std::string& out) {
  begin(choices, out);
  if (index_ == 0 && open_ == BlockKind::kNone && !form_.shows_nothing)
    open(BlockKind::kText, AnswerPart{.kind = Part::kContent}, out);
  close(out);
  event("message_delta",
        fmt::format("{{\"type\":\"message_delta\",\"delta\":{{{}}},\"usage\":{}}}", stop_members(ends_in_calls_),
                    usage(choices, /*is_begin=*/false)),
        out);
  event("message_stop", "{\"type\":\"message_stop\"}", out);
}

}  // namespace

std::unique_ptr<AnswerWriter> make_messages_writer(const ServedModel& model, const AnswerForm& form, AnswerHead head) {
  return std::make_unique<MessagesWriter>(model, form, std::move(head));
}

}  // namespace llmrt::server
