#include "core/chat/format_table.h"

namespace llmrt {

using Kind = ArgsMarks::Kind;

void add_header_formats(std::vector<ChatFormat>* table) {
  table->push_back({
      .name = "harmony",
      .models = "gpt-oss",
      .detect = {{"<|channel|>", "<|message|>"}},
      .tokens = {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"},
      .turn = {.stop = {"<|return|>", "<|call|>"}, .boundary = {"<|end|>"}},
      .thought = {.calls_end_it = true, .switch_variable = "reasoning_effort"},
      .calls = {.max = 1, .after = CallMarks::After::kStop},
      .name_marks = {.from = NameMarks::From::kRecipient, .strip_prefix = "functions."},
      .args = {.kind = Kind::kJson},
      .header = {.start = "<|start|>",
                 .channel = "<|channel|>",
                 .constrain = "<|constrain|>",
                 .message = "<|message|>",
                 .end = "<|end|>",
                 .call = "<|call|>"},
      .result = {.before = "<|start|>functions.", .after = "<|end|>"},
  });
}

void add_object_formats(std::vector<ChatFormat>* table) {
  table->push_back({
      .name = "llama3",
      .models = "Llama 3.1, 3.2, 3.3",
      .detect = {{"<|start_header_id|>", "\"parameters\": "}, {"<|start_header_id|>", "<|python_tag|>"}},
      .tokens = {"<|python_tag|>", "<|eot_id|>", "<|eom_id|>", "<|start_header_id|>", "<|end_header_id|>"},
      .turn = {.stop = {"<|eot_id|>", "<|eom_id|>"}, .boundary = {"<|start_header_id|>"}},
      .calls = {.open = {{"<|python_tag|>"}}, .between = "; ", .bare = true, .max = 1},
      .name_marks = {.from = NameMarks::From::kKey},
      .args = {.kind = Kind::kJsonInObject, .keys = {"parameters", "arguments"}},
      .lenient = {.wrapper_object = true, .pythonic = true},
  });
  table->push_back({
      .name = "hermes",
      .models = "Qwen2.5, QwQ, Qwen3, Hermes 2 and 3, SmolLM3, Granite 4",
      .detect = {{"<tool_call>"}},
      .tokens = {"<tool_call>", "</tool_call>", "<think>", "</think>", "<|im_end|>", "<|endoftext|>", "<|end_of_text|>",
                 "<|im_start|>", "<|start_of_role|>", "<|end_of_role|>", "<tool_response>", "</tool_response>"},
      .turn = {.stop = {"<|im_end|>", "<|endoftext|>", "<|end_of_text|>"},
               .boundary = {"<|im_start|>", "<|start_of_role|>"}},
      .thought = {.open = "<think>", .close = "</think>", .calls_end_it = true, .switch_variable = "enable_thinking"},
      .calls = {.open = {{"<tool_call>"}}, .close = "</tool_call>", .space = "\n", .between = "\n"},
      .name_marks = {.from = NameMarks::From::kKey},
      .args = {.kind = Kind::kJsonInObject, .keys = {"arguments", "parameters"}},
      .result = {.before = "<tool_response>\n", .after = "\n</tool_response>"},
      .lenient = {.wrapper_object = true},
  });
  table->push_back({
      .name = "think",
      .models = "templates with thoughts and no tools",
      .detect = {{"<think>"}, {"</think>"}},
      .tokens = {"<think>", "</think>", "<|im_end|>", "<|endoftext|>", "<|im_start|>"},
      .turn = {.stop = {"<|im_end|>", "<|endoftext|>"}, .boundary = {"<|im_start|>"}},
      .thought = {.open = "<think>", .close = "</think>", .switch_variable = "enable_thinking"},
  });
}

std::vector<ChatFormat> make_format_table() {
  std::vector<ChatFormat> table;
  add_header_formats(&table);
  add_google_formats(&table);
  add_deepseek_formats(&table);
  add_tagged_formats(&table);
  add_mistral_formats(&table);
  add_list_formats(&table);
  add_object_formats(&table);
  table.push_back({.name = "plain", .models = "everything else: no tools, no thoughts"});
  return table;
}

}  // namespace llmrt
