// Formats with marks around each argument, and Google's.
#include "core/chat/format_table.h"

namespace llmrt {
namespace {

using Kind = ArgsMarks::Kind;

ChatFormat glm(std::string name, std::string models, std::vector<std::vector<std::string>> detect, std::string space) {
  return {
      .name = std::move(name),
      .models = std::move(models),
      .detect = std::move(detect),
      .tokens = {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<think>",
                 "</think>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>", "<|system|>"},
      .turn = {.stop = {"<|user|>", "<|observation|>", "<|endoftext|>"}, .boundary = {"<|assistant|>", "<|user|>"}},
      .thought = {.open = "<think>", .close = "</think>", .calls_end_it = true, .switch_variable = "enable_thinking"},
      .calls = {.open = {{.text = "<tool_call>", .only_declared = true}}, .close = "</tool_call>", .between = space},
      .name_marks = {.after = "\n"},
      .args = {.kind = Kind::kTagged,
               .key_before = "<arg_key>",
               .key_after = "</arg_key>",
               .value_before = "<arg_value>",
               .value_after = "</arg_value>",
               .space = space},
      .result = {.before = "<tool_response>\n", .after = "\n</tool_response>"},
  };
}

}  // namespace

void add_tagged_formats(std::vector<ChatFormat>* table) {
  table->push_back({
      .name = "minimax-m2",
      .models = "MiniMax M2",
      .detect = {{"<minimax:tool_call>"}},
      .tokens = {"<minimax:tool_call>", "</minimax:tool_call>", "<think>", "</think>", "]~b]", "[e~["},
      .turn = {.stop = {"[e~["}, .boundary = {"]~b]"}},
      .thought = {.open = "<think>", .close = "</think>", .calls_end_it = true},
      .calls = {.section_open = "<minimax:tool_call>",
                .section_close = "</minimax:tool_call>",
                .open = {{"<invoke name="}},
                .close = "</invoke>",
                .space = "\n",
                .between = "\n"},
      .name_marks = {.after = ">", .quoted = true},
      .args = {.kind = Kind::kTagged,
               .key_before = "<parameter name=",
               .key_after = ">",
               .value_after = "</parameter>",
               .space = "\n"},
      .result = {.before = "<response>", .after = "</response>"},
  });
  table->push_back({
      .name = "qwen-xml",
      .models = "Qwen3-Coder, Qwen3.5 and later, Nemotron 3, Step 3.5, MiMo",
      .detect = {{"<function=", "<parameter="}},
      .tokens = {"<tool_call>", "</tool_call>", "<think>", "</think>", "<|im_end|>", "<|endoftext|>", "<|im_start|>",
                 "<tool_response>", "</tool_response>"},
      .turn = {.stop = {"<|im_end|>", "<|endoftext|>"}, .boundary = {"<|im_start|>"}},
      .thought = {.open = "<think>", .close = "</think>", .calls_end_it = true, .switch_variable = "enable_thinking"},
      .calls = {.open = {{.text = "<tool_call>"},
                         {.text = "<function=", .only_declared = true, .at_line_start = true, .has_name_mark = true}},
                .close = "</tool_call>",
                .space = "\n",
                .between = "\n"},
      .name_marks = {.before = "<function=", .after = ">"},
      .args = {.kind = Kind::kTagged,
               .key_before = "<parameter=",
               .key_after = ">",
               .value_after = "</parameter>",
               .end = "</function>",
               .space = "\n",
               .newline_around_value = true},
      .result = {.before = "<tool_response>\n", .after = "\n</tool_response>"},
  });
  table->push_back(glm("glm-4.7", "GLM-4.7, GLM-5", {{"<arg_key>", "</arg_key><arg_value>"}}, ""));
  table->push_back(glm("glm-4.5", "GLM-4.5, GLM-4.6", {{"<arg_key>"}}, "\n"));
}

void add_google_formats(std::vector<ChatFormat>* table) {
  table->push_back({
      .name = "gemma4",
      .models = "Gemma 4",
      .detect = {{"<|tool_call>", "call:"}},
      .tokens = {"<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|tool>", "<tool|>",
                 "<|channel>", "<channel|>", "<|\"|>", "<|turn>", "<turn|>", "<|think|>", "<eos>"},
      .turn = {.stop = {"<turn|>", "<eos>", "<|tool_response>"}, .boundary = {"<|turn>"}},
      .thought = {.open = "<|channel>thought",
                  .close = "<channel|>",
                  .calls_end_it = true,
                  .switch_variable = "enable_thinking",
                  .switch_default = false},
      .calls = {.open = {{"<|tool_call>"}}, .close = "<tool_call|>"},
      .name_marks = {.before = "call:", .after = "{"},
      .args = {.kind = Kind::kGemma, .delimiter = "<|\"|>"},
      .result = {.before = "<|tool_response>", .after = "<tool_response|>", .same_turn = true},
  });
  table->push_back({
      .name = "functiongemma",
      .models = "FunctionGemma",
      .detect = {{"<start_function_call>"}},
      .tokens = {"<start_function_call>", "<end_function_call>", "<start_function_response>", "<escape>",
                 "<end_of_turn>", "<start_of_turn>", "<eos>"},
      .turn = {.stop = {"<end_of_turn>", "<eos>", "<start_function_response>"}, .boundary = {"<start_of_turn>"}},
      .calls = {.open = {{"<start_function_call>"}}, .close = "<end_function_call>"},
      .name_marks = {.before = "call:", .after = "{"},
      .args = {.kind = Kind::kGemma, .delimiter = "<escape>"},
      .result = {.before = "<start_function_response>", .after = "<end_function_response>"},
  });
  table->push_back({
      .name = "gemma3",
      .models = "Gemma 2 and 3 (no tools)",
      .detect = {{"<start_of_turn>"}},
      .tokens = {"<end_of_turn>", "<start_of_turn>", "<eos>"},
      .turn = {.stop = {"<end_of_turn>", "<eos>"}, .boundary = {"<start_of_turn>"}},
  });
}

}  // namespace llmrt
