// Cuts plain text into the pieces inside which byte-level BPE merges, by the regular expressions of the models'
// tokenizer.json. Immutable after create; split may run on any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace llmrt {

class PreTokenizer {
 public:
  // `name` as GGUF's tokenizer.ggml.pre spells it; empty = gpt-2. An unknown name is kUnsupported.
  static Result<std::unique_ptr<PreTokenizer>> create(std::string_view name);
  // Whether files with this name begin texts with bos where they do not say: Llama 3's and those that share its rules.
  static bool usually_adds_bos(std::string_view name);
  ~PreTokenizer();

  // Whether a piece that is itself a token stays whole, whatever the merges say (Llama 3).
  bool ignore_merges() const { return ignore_merges_; }
  // Whether the text is brought to Unicode NFC first (Qwen 2).
  bool normalizes_nfc() const { return nfc_; }

  using Visit = std::function<bool(std::string_view)>;
  // Calls `visit` with each piece in order, until it returns false; the pieces cover the text. `text` is valid UTF-8.
  void split(std::string_view text, const Visit& visit) const;

 private:
  struct Regex;
  struct Match;
  explicit PreTokenizer(std::vector<std::unique_ptr<Regex>> passes);
  static std::unique_ptr<Regex> compile(const std::string& pattern);
  // By that pass and those behind it. False when `visit` returned it. Of several passes, what one does not match is a
  // piece as well.
  bool split(std::string_view text, size_t pass, const Visit& visit, const Match& match) const;

  std::vector<std::unique_ptr<Regex>> passes_;  // each cuts the pieces of the one before
  bool ignore_merges_ = false;
  bool nfc_ = false;
};

}  // namespace llmrt
