#include "server/fill_in_middle.h"

#include <algorithm>

#include "server/api_request.h"
#include "server/prompt_tokens.h"

namespace llmrt::server {
namespace {

// Where the vocabulary has no mark for files.
constexpr std::string_view kChunkBreak = "\n\n--- snippet ---\n\n";
// What models with a mark for repositories saw behind it: some name.
constexpr std::string_view kRepository = "repository\n", kThisFile = "file\n";

}  // namespace

bool check_fill_in(Fields& fields, const ServedModel& model, std::string_view name) {
  if (fields.failed()) return false;
  if (model.tokenizer && model.fim) return true;
  fields.fail(
      name,
      "this model's vocabulary has no fill-in-the-middle tokens (a prefix, a suffix and a middle mark): expected "
      "a model that was trained with them",
      "unsupported");
  return false;
}

std::vector<int32_t> fill_in_prompt(Fields& fields, const ServedModel& model, const ParseContext& context,
                                    std::string_view name, const FillIn& wanted, bool add_bos, bool* is_cut) {
  const FimTokens& fim = *model.fim;
  const Vocabulary& vocabulary = model.tokenizer->vocabulary();
  std::vector<int32_t> head;
  if (add_bos && vocabulary.add_bos && vocabulary.bos >= 0) head.push_back(vocabulary.bos);
  std::vector<int32_t> tail;
  const auto add = [&tail](int mark, const std::vector<int32_t>& tokens) {
    if (mark >= 0) tail.push_back(mark);
    tail.insert(tail.end(), tokens.begin(), tokens.end());
  };
  if (fim.suffix_first) add(fim.suffix, wanted.suffix);
  add(fim.prefix, wanted.prefix);
  if (!fim.suffix_first) add(fim.suffix, wanted.suffix);
  add(fim.middle, {});
  if (head.size() + tail.size() > model.context_max) {
    fields.fail(too_long(model, std::string(name), head.size() + tail.size(), /*at_least=*/false, 0));
    return {};
  }
  // From the last chunk to the first, while there is room.
  std::vector<std::vector<int32_t>> chunks;
  size_t used = head.size() + tail.size() + wanted.answer_tokens;
  const auto text = [&](std::string_view what) { return encode_plain(fields, model, context, name, what); };
  std::vector<int32_t> before_all, before_this;
  if (fim.repo >= 0 && !wanted.extra.empty()) {
    before_all = text(kRepository);
    before_all.insert(before_all.begin(), fim.repo);
  }
  if (fim.file >= 0 && !wanted.extra.empty()) {
    before_this = text(kThisFile);
    before_this.insert(before_this.begin(), fim.file);
  }
  used += before_all.size() + before_this.size();
  for (size_t i = wanted.extra.size(); i-- > 0 && !fields.failed();) {
    const SourceChunk& chunk = wanted.extra[i];
    const std::string file_name = std::string(chunk.file_name.empty() ? "file" : chunk.file_name) + "\n";
    std::vector<int32_t> tokens = text(fim.file >= 0 ? std::string_view(file_name) : kChunkBreak);
    if (fim.file >= 0) tokens.insert(tokens.begin(), fim.file);
    const size_t room = used < model.context_max ? model.context_max - used : 0;
    const std::vector<int32_t> body = encode_up_to(model, context, chunk.text, room);
    if (tokens.size() + body.size() > room) {
      *is_cut = true;
      break;
    }
    tokens.insert(tokens.end(), body.begin(), body.end());
    used += tokens.size();
    chunks.push_back(std::move(tokens));
  }
  if (context.is_cancelled()) fields.fail(client_has_gone());
  if (fields.failed()) return {};
  std::vector<int32_t> prompt = std::move(head);
  if (!chunks.empty()) prompt.insert(prompt.end(), before_all.begin(), before_all.end());
  for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk)
    prompt.insert(prompt.end(), chunk->begin(), chunk->end());
  if (!chunks.empty()) prompt.insert(prompt.end(), before_this.begin(), before_this.end());
  prompt.insert(prompt.end(), tail.begin(), tail.end());
  return prompt;
}

}  // namespace llmrt::server
