#include "format_writer.h"

namespace llmrt::chat_test {
namespace {

namespace json = boost::json;

std::string text_of(const json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : json::serialize(value);
}

std::string python(const json::value& value) {
  if (value.is_bool()) return value.get_bool() ? "True" : "False";
  if (value.is_null()) return "None";
  if (value.is_array()) {
    std::string out = "[";
    for (const auto& item : value.get_array()) out += (out.size() > 1 ? ", " : "") + python(item);
    return out + "]";
  }
  if (value.is_object()) {
    std::string out = "{";
    for (const auto& [key, item] : value.get_object()) {
      out += (out.size() > 1 ? ", " : "") + python(json::value(key)) + ": " + python(item);
    }
    return out + "}";
  }
  return json::serialize(value);
}

std::string gemma(const json::value& value, const std::string& delimiter) {
  if (value.is_string()) return delimiter + std::string(value.get_string()) + delimiter;
  if (value.is_array()) {
    std::string out = "[";
    for (const auto& item : value.get_array()) out += (out.size() > 1 ? "," : "") + gemma(item, delimiter);
    return out + "]";
  }
  if (value.is_object()) {
    std::string out = "{";
    for (const auto& [key, item] : value.get_object()) {
      out += (out.size() > 1 ? "," : "") + std::string(key) + ":" + gemma(item, delimiter);
    }
    return out + "}";
  }
  return json::serialize(value);
}

std::string object_call(const WrittenCall& call, std::string_view args_key, std::string_view id = {}) {
  std::string out = "{\"name\": " + json::serialize(json::string(call.name)) + ", \"" + std::string(args_key) +
                    "\": " + json::serialize(call.args);
  if (!id.empty()) out += ", \"id\": \"" + std::string(id) + "\"";
  return out + "}";
}

std::string pythonic_call(const WrittenCall& call) {
  std::string args;
  for (const auto& [key, value] : call.args) {
    args += (args.empty() ? "" : ", ") + std::string(key) + "=" + python(value);
  }
  return call.name + "(" + args + ")";
}

template <typename Write>
std::string joined(const std::vector<WrittenCall>& calls, std::string_view between, Write write) {
  std::string out;
  for (size_t i = 0; i < calls.size(); ++i) out += (i == 0 ? "" : std::string(between)) + write(calls[i], i);
  return out;
}

std::string tagged_args(const WrittenCall& call, const std::string& open, const std::string& open_end,
                        const std::string& close) {
  std::string out;
  for (const auto& [key, value] : call.args) out += open + std::string(key) + open_end + text_of(value) + close;
  return out;
}

}  // namespace

std::string write_calls(std::string_view format, const std::vector<WrittenCall>& calls) {
  const auto args = [](const WrittenCall& call) { return json::serialize(call.args); };
  if (format == "hermes") {
    return joined(calls, "\n", [](const auto& c, size_t) {
      return "<tool_call>\n" + object_call(c, "arguments") + "\n</tool_call>";
    });
  }
  if (format == "llama3") {
    return joined(calls, "; ", [](const auto& c, size_t) { return object_call(c, "parameters"); });
  }
  if (format == "qwen-xml") {
    return joined(calls, "\n", [](const auto& c, size_t) {
      return "<tool_call>\n<function=" + c.name + ">\n" + tagged_args(c, "<parameter=", ">\n", "\n</parameter>\n") +
             "</function>\n</tool_call>";
    });
  }
  if (format == "minimax-m2") {
    return "<minimax:tool_call>\n" +
           joined(calls, "\n",
                  [](const auto& c, size_t) {
                    return "<invoke name=\"" + c.name + "\">\n" +
                           tagged_args(c, "<parameter name=\"", "\">", "</parameter>\n") + "</invoke>";
                  }) +
           "\n</minimax:tool_call>";
  }
  if (format == "deepseek-dsml") {
    return "<｜DSML｜function_calls>\n" +
           joined(calls, "\n",
                  [](const auto& c, size_t) {
                    std::string out = "<｜DSML｜invoke name=\"" + c.name + "\">\n";
                    for (const auto& [key, value] : c.args) {
                      out += "<｜DSML｜parameter name=\"" + std::string(key) + "\" string=\"" +
                             (value.is_string() ? "true" : "false") + "\">" + text_of(value) + "</｜DSML｜parameter>\n";
                    }
                    return out + "</｜DSML｜invoke>";
                  }) +
           "\n</｜DSML｜function_calls>";
  }
  if (format == "glm-4.5" || format == "glm-4.7") {
    const std::string space = format == "glm-4.5" ? "\n" : "";
    return joined(calls, space, [&](const auto& c, size_t) {
      return "<tool_call>" + c.name + space +
             tagged_args(c, "<arg_key>", "</arg_key>" + space + "<arg_value>", "</arg_value>" + space) + "</tool_call>";
    });
  }
  if (format == "mistral-old") {
    return "[TOOL_CALLS][" +
           joined(calls, ", ",
                  [](const auto& c, size_t i) { return object_call(c, "arguments", "abcdefgh" + std::to_string(i)); }) +
           "]";
  }
  if (format == "mistral-v11") {
    return joined(calls, "", [&](const auto& c, size_t i) {
      return "[TOOL_CALLS]" + c.name + "[CALL_ID]abcdefgh" + std::to_string(i) + "[ARGS]" + args(c);
    });
  }
  if (format == "mistral-v13") {
    return joined(calls, "", [&](const auto& c, size_t) { return "[TOOL_CALLS]" + c.name + "[ARGS]" + args(c); });
  }
  if (format == "harmony") {
    return joined(calls, "", [&](const auto& c, size_t i) {
      return std::string(i == 0 ? "" : "<|start|>assistant") + "<|channel|>commentary to=functions." + c.name +
             " <|constrain|>json<|message|>" + args(c) + "<|call|>";
    });
  }
  if (format == "gemma4" || format == "functiongemma") {
    const bool is_4 = format == "gemma4";
    return joined(calls, "", [&](const auto& c, size_t) {
      return std::string(is_4 ? "<|tool_call>" : "<start_function_call>") + "call:" + c.name +
             gemma(c.args, is_4 ? "<|\"|>" : "<escape>") + (is_4 ? "<tool_call|>" : "<end_function_call>");
    });
  }
  if (format == "deepseek-v3") {
    return "<｜tool▁calls▁begin｜>" +
           joined(calls, "\n",
                  [&](const auto& c, size_t) {
                    return "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + c.name + "\n```json\n" + args(c) +
                           "\n```<｜tool▁call▁end｜>";
                  }) +
           "<｜tool▁calls▁end｜>";
  }
  if (format == "deepseek-v3.1") {
    return "<｜tool▁calls▁begin｜>" +
           joined(calls, "",
                  [&](const auto& c, size_t) {
                    return "<｜tool▁call▁begin｜>" + c.name + "<｜tool▁sep｜>" + args(c) + "<｜tool▁call▁end｜>";
                  }) +
           "<｜tool▁calls▁end｜>";
  }
  if (format == "kimi-k2") {
    return "<|tool_calls_section_begin|>" +
           joined(calls, "",
                  [&](const auto& c, size_t i) {
                    return "<|tool_call_begin|>functions." + c.name + ":" + std::to_string(i) +
                           "<|tool_call_argument_begin|>" + args(c) + "<|tool_call_end|>";
                  }) +
           "<|tool_calls_section_end|>";
  }
  const auto pythonic = [](const auto& c, size_t) { return pythonic_call(c); };
  if (format == "lfm2") return "<|tool_call_start|>[" + joined(calls, ", ", pythonic) + "]<|tool_call_end|>";
  if (format == "llama4-pythonic") return "[" + joined(calls, ", ", pythonic) + "]";
  const auto object = [](const auto& c, size_t) { return object_call(c, "arguments"); };
  if (format == "phi4-mini") return "functools[" + joined(calls, ", ", object) + "]";
  if (format == "granite3") return "<|tool_call|>[" + joined(calls, ", ", object) + "]";
  return {};
}

bool writes_thoughts(std::string_view format) {
  for (const auto* name : {"llama3", "llama4-pythonic", "mistral-old", "mistral-v11", "functiongemma", "phi4-mini"}) {
    if (format == name) return false;
  }
  return true;
}

std::string write_thought(std::string_view format, std::string_view thought) {
  const std::string text(thought);
  if (format == "harmony") return "<|channel|>analysis<|message|>" + text + "<|end|><|start|>assistant";
  if (format == "gemma4") return "<|channel>thought\n" + text + "\n<channel|>";
  if (format == "mistral-v13") return "[THINK]" + text + "[/THINK]";
  return "<think>\n" + text + "\n</think>\n\n";
}

std::string write_text(std::string_view format, std::string_view text) {
  if (format == "harmony") return "<|channel|>commentary<|message|>" + std::string(text) + "<|end|><|start|>assistant";
  return std::string(text);
}

}  // namespace llmrt::chat_test
