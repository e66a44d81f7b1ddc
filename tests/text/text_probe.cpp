// Drives the text room for the differential tests in Python: a command a line on stdin, one JSON line back.
//   text_probe tokenizer VOCABULARY.json    {"encode": hex, "special": bool, "bos": bool, "tokens_max": n}
//                                           -> {"ids": [...], "seconds": s}
//                                           {"decode": [...], "special": bool}            -> {"bytes": hex}
//   text_probe folder FOLDER                the same with the tokenizer.json of a Hugging Face folder
//   text_probe template                     {"template": source, "context": {...}, "strings": {...}}
//                                           -> {"pieces": [[text, from_template], ...]} or {"error": code, "message"}
#include <boost/json.hpp>

#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "core/model/read_metadata.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"
#include "core/weights/hf_folder.h"

namespace json = boost::json;
using namespace llmrt;

namespace {

std::string from_hex(std::string_view hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return out;
}

std::string to_hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return out;
}

template <typename T>
std::vector<T> list(const json::object& object, const char* key) {
  return object.contains(key) ? json::value_to<std::vector<T>>(object.at(key)) : std::vector<T>();
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

Result<Vocabulary> read_folder(const std::string& folder) {
  const auto text = [&](const char* name) -> std::optional<std::string> {
    std::string found = read_text(folder + "/" + name);
    return found.empty() ? std::nullopt : std::optional(std::move(found));
  };
  const auto source = read_hf_texts({read_text(folder + "/config.json"),
                                     text("tokenizer.json"),
                                     text("tokenizer_config.json"),
                                     text("generation_config.json"),
                                     {}});
  if (!source) return source.error();
  const auto architecture = source->metadata.string("general.architecture");
  if (!architecture) return architecture.error();
  const auto size = source->metadata.integer(std::string(*architecture) + ".vocab_size", 1, 1u << 24);
  if (!size) return size.error();
  auto vocabulary = llmrt::read_vocabulary(source->metadata, static_cast<uint32_t>(*size));
  if (!vocabulary) return vocabulary.error();
  if (!*vocabulary) return make_error(ErrorCode::kCorruptFile, "no tokenizer.json");
  return **std::move(vocabulary);
}

Vocabulary read_dump(const char* path) {
  const json::object dump = json::parse(read_text(path)).as_object();
  const auto id = [&](const char* key) { return dump.contains(key) ? dump.at(key).to_number<TokenId>() : -1; };
  const auto flag = [&](const char* key, bool otherwise) {
    return dump.contains(key) ? dump.at(key).as_bool() : otherwise;
  };
  Vocabulary vocabulary;
  vocabulary.model = json::value_to<std::string>(dump.at("model"));
  vocabulary.pre = dump.contains("pre") ? json::value_to<std::string>(dump.at("pre")) : "";
  vocabulary.tokens = list<std::string>(dump, "tokens");
  for (const int type : list<int>(dump, "types")) {
    vocabulary.types.push_back(static_cast<TokenType>(type));
  }
  vocabulary.scores = list<float>(dump, "scores");
  vocabulary.merges = list<std::string>(dump, "merges");
  vocabulary.bos = id("bos");
  vocabulary.eos = id("eos");
  vocabulary.unk = id("unk");
  vocabulary.add_bos = flag("add_bos", false);
  vocabulary.add_eos = flag("add_eos", false);
  vocabulary.add_space_prefix = flag("add_space_prefix", true);
  const std::string prefix =
      dump.contains("space_prefix") ? json::value_to<std::string>(dump.at("space_prefix")) : "every_piece";
  vocabulary.space_prefix = prefix == "unless_blank"         ? SpacePrefix::kUnlessBlank
                            : prefix == "first_unless_blank" ? SpacePrefix::kFirstUnlessBlank
                                                             : SpacePrefix::kEveryPiece;
  return vocabulary;
}

json::object answer(const Tokenizer& tokenizer, const json::object& request) {
  const bool special = request.contains("special") && request.at("special").as_bool();
  if (request.contains("decode")) {
    return {{"bytes", to_hex(tokenizer.decode(list<TokenId>(request, "decode"), special))}};
  }
  const bool add_bos = request.contains("bos") && request.at("bos").as_bool();
  const std::string text = from_hex(request.at("encode").as_string());
  const auto begin = std::chrono::steady_clock::now();
  const size_t tokens_max = request.contains("tokens_max") ? request.at("tokens_max").to_number<size_t>() : 0;
  const std::vector<TokenId> ids =
      tokenizer.encode(text, {.parse_special = special, .add_bos = add_bos, .tokens_max = tokens_max});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return {{"ids", json::value_from(ids)}, {"seconds", seconds.count()}};
}

json::object answer_template(const json::object& request) {
  const auto compiled = ChatTemplate::compile(json::value_to<std::string>(request.at("template")));
  const auto failed = [](const Error& error) {
    return json::object{{"error", error_code_name(error.code)}, {"message", error.message}};
  };
  if (!compiled) {
    return failed(compiled.error());
  }
  const auto pieces = (*compiled)->render(request.at("context").as_object(), request.at("strings").as_object());
  if (!pieces) {
    return failed(pieces.error());
  }
  json::array rendered;
  for (const TextPiece& piece : *pieces) {
    rendered.push_back(json::array{json::string(piece.text), piece.from_template});
  }
  return {{"pieces", rendered}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  std::unique_ptr<Tokenizer> tokenizer;
  if ((mode == "tokenizer" || mode == "folder") && argc > 2) {
    auto read = mode == "folder" ? read_folder(argv[2]) : Result<Vocabulary>(read_dump(argv[2]));
    auto made = read ? Tokenizer::create(*std::move(read)) : Result<std::unique_ptr<Tokenizer>>(read.error());
    if (!made) {
      std::cerr << made.error().message << "\n";
      return 1;
    }
    tokenizer = std::move(made).value();
  } else if (mode != "template") {
    std::cerr << "usage: text_probe tokenizer VOCABULARY.json | text_probe folder FOLDER | text_probe template\n";
    return 2;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const json::value request = json::parse(line);
    const json::object reply =
        tokenizer ? answer(*tokenizer, request.as_object()) : answer_template(request.as_object());
    std::cout << json::serialize(reply) << std::endl;
  }
}
