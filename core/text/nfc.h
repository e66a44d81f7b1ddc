// Unicode normalization form C as Hugging Face's `tokenizers` has it (data of Unicode 9), in time linear (times log)
// in the length, also for hostile runs of combining marks.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace llmrt {

// True where the text is surely NFC already (nothing from U+0300 on); false where it must be looked at.
bool is_trivially_nfc(std::string_view text);
// `text` is valid UTF-8. `is_enough`, where given, is asked now and then, at most as often as what came out has
// doubled; with true the rest of the text is left out.
std::string normalize_nfc(std::string_view text, const std::function<bool(std::string_view)>& is_enough = nullptr);

}  // namespace llmrt
