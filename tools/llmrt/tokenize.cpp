#include <boost/json.hpp>

#include "core/base/utf8.h"
#include "tools/llmrt/program.h"
#include "tools/number_range.h"

namespace llmrt::cli {
namespace {

struct Options {
  ModelOptions model;
  std::string text, file;
  std::vector<int32_t> ids;
  bool has_text = false, plain = false, no_bos = false, json = false;
};

// As a JSON string; bytes that are no text alone are spelled out.
std::string quoted(std::string_view bytes) {
  if (is_valid_utf8(bytes)) return boost::json::serialize(boost::json::value(bytes));
  std::string text;
  for (unsigned char byte : bytes) text += fmt::format("\\x{:02x}", byte);
  return text;
}

void tokenize(const Options& options) {
  const OpenModel open = open_model(options.model);
  const Tokenizer* tokenizer = open.served.tokenizer.get();
  if (!tokenizer) fail(kUsage, "this model has no tokenizer");
  if (!options.ids.empty()) {
    for (int32_t id : options.ids)
      if (id < 0 || id >= tokenizer->vocab_size())
        fail(kUsage, fmt::format("--ids: expected ids in [0, {}), found {}", tokenizer->vocab_size(), id));
    const std::string text = replace_invalid_utf8(tokenizer->decode(options.ids, /*special=*/true));
    fmt::print("{}\n", options.json ? boost::json::serialize(boost::json::object{{"text", text}}) : text);
    return;
  }
  EncodeOptions encode;
  encode.parse_special = !options.plain;
  encode.add_bos = !options.no_bos;
  if (!options.has_text && options.file.empty() && !has_piped_input())
    fail(kUsage, "text: expected a text (as an argument, with --file, or piped in) or --ids, found nothing");
  const std::string text =
      options.has_text ? checked_text(options.text, "text") : read_text(options.file.empty() ? "-" : options.file);
  const std::vector<TokenId> ids = tokenizer->encode(text, encode);
  if (options.json) {
    boost::json::array strings;
    for (TokenId id : ids) strings.emplace_back(replace_invalid_utf8(tokenizer->token_bytes(id, true)));
    fmt::print("{}\n",
               boost::json::serialize(boost::json::object{{"tokens", boost::json::array(ids.begin(), ids.end())},
                                                          {"token_strs", std::move(strings)}}));
    return;
  }
  for (TokenId id : ids) fmt::print("{:>8}  {}\n", id, quoted(tokenizer->token_bytes(id, true)));
  fmt::print("{} tokens\n", ids.size());
}

}  // namespace

void add_tokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids, or back; needs no device");
  const auto options = std::make_shared<Options>();
  add_model_options(*command, options->model);
  CLI::Option* text =
      command->add_option("text", options->text, "text to tokenise; without it, --file or --ids: what is piped in")
          ->type_name("TEXT");
  CLI::Option* file = command->add_option("--file", options->file, "read the text from a file, - for standard input")
                          ->type_name("PATH")
                          ->excludes(text);
  CLI::Option* plain =
      command->add_flag("--plain", options->plain, "do not read special tokens such as <|im_end|> in the text");
  CLI::Option* no_bos =
      command->add_flag("--no-bos", options->no_bos, "do not add the beginning-of-text token that the model asks for");
  command->add_option("--ids", options->ids, "token ids to turn into text")
      ->delimiter(',')
      ->check(any_number<int32_t>())
      ->type_name("ID,...")
      ->excludes(text, file, plain, no_bos);
  command->add_flag("--json", options->json, "print JSON");
  command->callback([options, text] {
    options->has_text = text->count() > 0;
    tokenize(*options);
  });
}

}  // namespace llmrt::cli
