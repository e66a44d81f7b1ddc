#include "core/grammar/mask_maker.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/platform/thread_clock.h"

namespace llmrt {
namespace {

constexpr uint32_t kStepsPerLook = 2048;  // between two looks at the clock
constexpr size_t kPairsMax = 1000;        // looked at to tell whether a terminal takes a slice

void clear_bit(std::vector<uint32_t>* bits, int32_t token) {
  (*bits)[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
}

}  // namespace

MaskMaker::MaskMaker(const TokenVocabulary* vocabulary, ParseStates* states)
    : vocabulary_(*vocabulary), states_(*states), path_(vocabulary->trie().depth_max() + 1) {
  RegexPool& regexes = states_.regexes();
  const CodePointRange plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x10ffff}};
  const RegexId character = regexes.code_points(plain);
  for (const uint32_t most : TokenVocabulary::kSliceChars) {
    slice_regexes_.push_back(regexes.repeat(character, 1, most == UINT32_MAX ? RegexPool::kUnbounded : most));
  }
}

// Every beginning of every text of `texts` leaves something of `regex`.
bool MaskMaker::takes(RegexId regex, RegexId texts) {
  RegexPool& regexes = states_.regexes();
  std::set<std::pair<RegexId, RegexId>> seen = {{regex, texts}};
  std::vector<std::pair<RegexId, RegexId>> open(seen.begin(), seen.end());
  while (!open.empty()) {
    const auto [r, t] = open.back();
    open.pop_back();
    RegexId r_before = RegexPool::kNothing, t_before = RegexPool::kNothing;  // of the byte before: most bytes are alike
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const RegexId t_next = regexes.after(t, static_cast<uint8_t>(byte));
      if (t_next == RegexPool::kNothing) continue;
      const RegexId r_next = regexes.after(r, static_cast<uint8_t>(byte));
      if (r_next == r_before && t_next == t_before) continue;
      if (!states_.is_alive(r_next)) return false;
      r_before = r_next;
      t_before = t_next;
      if (!seen.emplace(r_next, t_next).second) continue;
      if (seen.size() > kPairsMax) return false;
      open.emplace_back(r_next, t_next);
    }
  }
  return true;
}

MaskMaker::Plain MaskMaker::plain_text_of(RegexId regex) {
  if (regex == RegexPool::kAnything) return Plain::kAllText;
  const auto [it, is_new] = plain_.try_emplace(regex, Plain::kNone);
  if (!is_new) return it->second;
  Plain found = Plain::kNone;
  if (takes(regex, RegexPool::kAnything)) {
    found = Plain::kAllText;
  } else {
    for (size_t i = 0; i < slice_regexes_.size() && found == Plain::kNone; ++i) {
      if (takes(regex, slice_regexes_[i])) found = static_cast<Plain>(i);
    }
  }
  return plain_[regex] = found;
}

Result<TokenMaskPtr> MaskMaker::make(ParseStates::StateId state, double cpu_ms_max,
                                     const std::function<void()>& let_others) {
  const Time time{thread_cpu_ms(), cpu_ms_max};
  Plain plain = Plain::kNone;
  const size_t num_scans = states_.scans(state).size();
  for (size_t i = 0; i < num_scans; ++i) {
    const uint32_t terminal = states_.scans(state)[i].terminal;
    if (!ParseStates::is_token(terminal)) plain = std::min(plain, plain_text_of(terminal));
  }
  std::vector<uint32_t> bits;
  Status walked;
  if (plain == Plain::kAllText) {
    bits = vocabulary_.text_tokens();
  } else if (plain == Plain::kNone) {
    bits.assign(vocabulary_.num_words(), 0);
    walked = walk(vocabulary_.trie(), state, time, let_others, &bits);
  } else {
    const auto& slice = vocabulary_.slice(static_cast<size_t>(plain));
    bits = slice.bits;
    walked = walk(slice.rest, state, time, let_others, &bits);
  }
  if (!walked) return walked.error();
  if (states_.failed()) {
    return make_error(ErrorCode::kGrammarTooComplex, "the grammar's states: expected less to be open at once");
  }
  set_named_tokens(state, &bits);
  if (std::ranges::all_of(bits, [](uint32_t word) { return word == 0; })) {
    return make_error(ErrorCode::kEmptySupport, "no token of the vocabulary can go on as the grammar asks");
  }
  return TokenMaskPtr(std::make_shared<TokenMask>(std::move(bits)));
}

Status MaskMaker::walk(const TokenTrie& trie, ParseStates::StateId state, const Time& time,
                       const std::function<void()>& let_others, std::vector<uint32_t>* bits) {
  const auto& nodes = trie.nodes();
  path_[0] = state;
  uint32_t steps = 0;
  for (uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    if (++steps % kStepsPerLook == 0) {
      if (thread_cpu_ms() - time.begin_ms > time.most_ms) {
        return make_error(ErrorCode::kGrammarTooComplex, "the next token's mask: expected within {:.0f} ms",
                          time.most_ms);
      }
      let_others();
    }
    const ParseStates::StateId next = states_.after(path_[node.depth], node.byte);
    if (next == ParseStates::kDead) {
      i = node.end;
      continue;
    }
    path_[node.depth + 1] = next;
    if (node.token >= 0) allow_token(bits, node.token);
    ++i;
  }
  for (const auto& [token, twin] : trie.doubles()) {
    if (((*bits)[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0) allow_token(bits, twin);
  }
  return {};
}

void MaskMaker::set_named_tokens(ParseStates::StateId state, std::vector<uint32_t>* bits) const {
  const auto& named = states_.network().named_tokens;
  for (const int32_t token : named) {
    if (token >= 0 && static_cast<uint32_t>(token) < vocabulary_.num_tokens()) clear_bit(bits, token);
  }
  for (const auto& scan : states_.scans(state)) {
    const auto token = static_cast<int32_t>(scan.terminal & ~ParseStates::kTokenFlag);
    if (ParseStates::is_token(scan.terminal) && static_cast<uint32_t>(token) < vocabulary_.num_tokens()) {
      allow_token(bits, token);
    }
  }
  if (!states_.accepts(state)) return;
  for (const int32_t end : vocabulary_.end_tokens()) allow_token(bits, end);
}

}  // namespace llmrt
