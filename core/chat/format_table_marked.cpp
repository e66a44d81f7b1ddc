// Formats with marks around name and arguments, and those whose calls are a list.
#include "core/chat/format_table.h"

namespace llmrt {
namespace {

using Kind = ArgsMarks::Kind;

ChatFormat deepseek(std::string name, std::string models, std::vector<std::vector<std::string>> detect) {
  return {
      .name = std::move(name),
      .models = std::move(models),
      .detect = std::move(detect),
      .tokens = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>",
                 "<｜tool▁sep｜>", "<think>", "</think>", "<｜end▁of▁sentence｜>", "<｜Assistant｜>", "<｜User｜>",
                 "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>",
                 "<｜tool▁output▁end｜>"},
      .turn = {.stop = {"<｜end▁of▁sentence｜>"}, .boundary = {"<｜Assistant｜>", "<｜User｜>"}},
      .thought = {.open = "<think>", .close = "</think>", .calls_end_it = true, .switch_variable = "thinking"},
      .calls = {.section_open = "<｜tool▁calls▁begin｜>",
                .section_close = "<｜tool▁calls▁end｜>",
                .section_optional = true,
                .open = {{"<｜tool▁call▁begin｜>"}},
                .close = "<｜tool▁call▁end｜>"},
      .args = {.kind = Kind::kJson},
      .result = {.before = "<｜tool▁output▁begin｜>", .after = "<｜tool▁output▁end｜>"},
  };
}

ChatFormat mistral(std::string name, std::string models, std::vector<std::vector<std::string>> detect) {
  return {
      .name = std::move(name),
      .models = std::move(models),
      .detect = std::move(detect),
      .tokens = {"[TOOL_CALLS]", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
                 "[/TOOL_RESULTS]", "</s>"},
      .turn = {.stop = {"</s>"}, .boundary = {"[/INST]", "[/TOOL_RESULTS]"}},
      .calls = {.open = {{"[TOOL_CALLS]"}}},
      .result = {.before = "[TOOL_RESULTS]", .after = "[/TOOL_RESULTS]"},
  };
}

}  // namespace

void add_deepseek_formats(std::vector<ChatFormat>* table) {
  table->push_back({
      .name = "deepseek-dsml",
      .models = "DeepSeek V3.2",
      .detect = {{"｜DSML｜", "function_calls"}},
      .tokens = {"｜DSML｜", "<think>", "</think>", "<｜end▁of▁sentence｜>", "<｜Assistant｜>", "<｜User｜>"},
      .turn = {.stop = {"<｜end▁of▁sentence｜>"}, .boundary = {"<｜Assistant｜>", "<｜User｜>"}},
      .thought = {.open = "<think>", .close = "</think>", .calls_end_it = true, .switch_variable = "thinking"},
      .calls = {.section_open = "<｜DSML｜function_calls>",
                .section_close = "</｜DSML｜function_calls>",
                .open = {{"<｜DSML｜invoke name="}},
                .close = "</｜DSML｜invoke>",
                .space = "\n",
                .between = "\n"},
      .name_marks = {.after = ">", .quoted = true},
      .args = {.kind = Kind::kTagged,
               .key_before = "<｜DSML｜parameter name=",
               .key_after = ">",
               .value_after = "</｜DSML｜parameter>",
               .space = "\n",
               .typed = true},
  });
  ChatFormat v3 = deepseek("deepseek-v3", "DeepSeek V3, R1 and its distillates", {{"<｜tool▁sep｜>", "```json"}});
  v3.name_marks = {.before = "function<｜tool▁sep｜>", .after = "\n"};
  v3.args.fenced = true;
  v3.calls.between = "\n";
  v3.thought.calls_end_it = false;
  table->push_back(std::move(v3));
  ChatFormat v31 = deepseek("deepseek-v3.1", "DeepSeek V3.1", {{"<｜tool▁sep｜>"}});
  v31.name_marks = {.after = "<｜tool▁sep｜>"};
  v31.thought.switch_default = false;
  v31.result.same_turn = true;
  table->push_back(std::move(v31));
  table->push_back({
      .name = "kimi-k2",
      .models = "Kimi K2, K2-Thinking",
      .detect = {{"<|tool_calls_section_begin|>"}},
      .tokens = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
                 "<|tool_call_end|>", "<|tool_call_argument_begin|>", "<think>", "</think>", "<|im_end|>",
                 "<|im_middle|>", "<|im_assistant|>", "<|im_user|>", "<|im_system|>", "[EOS]"},
      .turn = {.stop = {"<|im_end|>", "[EOS]"}, .boundary = {"<|im_middle|>"}},
      .thought = {.open = "<think>", .close = "</think>", .calls_end_it = true, .switch_variable = "thinking"},
      .calls = {.section_open = "<|tool_calls_section_begin|>",
                .section_close = "<|tool_calls_section_end|>",
                .section_optional = true,
                .open = {{"<|tool_call_begin|>"}},
                .close = "<|tool_call_end|>"},
      .name_marks = {.after = "<|tool_call_argument_begin|>", .strip_prefix = "functions."},
      .call_id = {.from = CallIdMarks::From::kName},
      .args = {.kind = Kind::kJson},
      .result = {.before = "## Return of ", .needs_id = true},
  });
}

void add_mistral_formats(std::vector<ChatFormat>* table) {
  ChatFormat v11 = mistral("mistral-v11", "Mistral Small 3.2, Devstral", {{"[TOOL_CALLS]", "[CALL_ID]"}});
  v11.tokens.insert(v11.tokens.end(), {"[CALL_ID]", "[ARGS]", "[TOOL_CONTENT]"});
  v11.call_id = {.from = CallIdMarks::From::kMark, .mark = "[CALL_ID]", .length = 9};
  v11.args = {.kind = Kind::kJson, .before = "[ARGS]"};
  v11.result.needs_id = true;
  table->push_back(std::move(v11));
  ChatFormat v13 = mistral("mistral-v13", "Ministral 3, Magistral 2509, Mistral Large 3", {{"[TOOL_CALLS]", "[ARGS]"}});
  v13.tokens.insert(v13.tokens.end(), {"[ARGS]", "[THINK]", "[/THINK]"});
  v13.thought = {.open = "[THINK]", .close = "[/THINK]"};
  v13.args = {.kind = Kind::kJson, .before = "[ARGS]"};
  table->push_back(std::move(v13));
  ChatFormat old = mistral("mistral-old", "Mistral 7B v0.3, Nemo, Large 2", {{"[TOOL_CALLS]"}});
  old.calls.list = true;
  old.name_marks.from = NameMarks::From::kKey;
  old.call_id = {.from = CallIdMarks::From::kKey, .mark = "id", .length = 9};
  old.args = {.kind = Kind::kJsonInObject, .keys = {"arguments"}};
  old.result.needs_id = true;
  table->push_back(std::move(old));
}

void add_list_formats(std::vector<ChatFormat>* table) {
  table->push_back({
      .name = "lfm2",
      .models = "LFM2, LFM2.5",
      .detect = {{"<|tool_call_start|>"}, {"<|tool_list_start|>"}, {"List of tools: ", "<|im_start|>"}},
      .tokens = {"<|tool_call_start|>", "<|tool_call_end|>", "<|tool_list_start|>", "<|tool_list_end|>",
                 "<|tool_response_start|>", "<|tool_response_end|>", "<think>", "</think>", "<|im_end|>",
                 "<|im_start|>"},
      .turn = {.stop = {"<|im_end|>"}, .boundary = {"<|im_start|>"}},
      .thought = {.open = "<think>", .close = "</think>", .calls_end_it = true},
      .calls = {.open = {{"<|tool_call_start|>"}},
                .close = "<|tool_call_end|>",
                .list = true,
                .after = CallMarks::After::kDropEcho},
      .args = {.kind = Kind::kPythonic},
      .result = {.before = "<|tool_response_start|>", .after = "<|tool_response_end|>"},
  });
  table->push_back({
      .name = "llama4-pythonic",
      .models = "Llama 4",
      .detect = {{"<|header_start|>"}, {"<|python_start|>"}},
      .tokens = {"<|python_start|>", "<|python_end|>", "<|eot|>", "<|eom|>", "<|header_start|>", "<|header_end|>"},
      .turn = {.stop = {"<|eot|>", "<|eom|>"}, .boundary = {"<|header_start|>"}},
      .calls = {.open = {{"<|python_start|>"}}, .close = "<|python_end|>", .bare = true, .list = true},
      .args = {.kind = Kind::kPythonic},
  });
  table->push_back({
      .name = "phi4-mini",
      .models = "Phi-4-mini",
      .detect = {{"<|tool|>", "<|/tool|>"}},
      .tokens = {"<|tool|>", "<|/tool|>", "<|tool_call|>", "<|/tool_call|>", "<|end|>", "<|endoftext|>",
                 "<|assistant|>"},
      .turn = {.stop = {"<|end|>", "<|endoftext|>"}, .boundary = {"<|assistant|>"}},
      .calls = {.open = {{"functools"}, {"<|tool_call|>"}}, .list = true},
      .name_marks = {.from = NameMarks::From::kKey},
      .args = {.kind = Kind::kJsonInObject, .keys = {"arguments", "parameters"}},
  });
  table->push_back({
      .name = "granite3",
      .models = "Granite 3.x",
      .detect = {{"<|tool_call|>", "<|start_of_role|>"}},
      .tokens = {"<|tool_call|>", "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
      .turn = {.stop = {"<|end_of_text|>"}, .boundary = {"<|start_of_role|>"}, .hide = {"<response>", "</response>"}},
      .thought = {.open = "<think>", .close = "</think>", .switch_variable = "thinking", .switch_default = false},
      .calls = {.open = {{"<|tool_call|>"}}, .list = true},
      .name_marks = {.from = NameMarks::From::kKey},
      .args = {.kind = Kind::kJsonInObject, .keys = {"arguments", "parameters"}},
  });
}

}  // namespace llmrt
