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

// visit(what is left of `regex`, of `texts`) behind each byte that a text of `texts` may begin with, once for bytes that
// behave alike; until it says false, which is then the answer.
template <typename Visit>
bool all_after(RegexPool* regexes, RegexId regex, RegexId texts, Visit&& visit) {
  const std::vector<uint8_t> representatives = regexes->byte_classes(regex, texts).representatives;
  return std::ranges::all_of(representatives, [&](uint8_t byte) {
    const RegexId next = regexes->after(texts, byte);
    return next == RegexPool::kNothing || visit(regexes->after(regex, byte), next);
  });
}

}  // namespace

MaskMaker::MaskMaker(const TokenVocabulary* vocabulary, ParseStates* states)
    : vocabulary_(*vocabulary), states_(*states) {
  RegexPool& regexes = states_.regexes();
  const CodePointRange plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x10ffff}};
  character_ = regexes.code_points(plain);
  for (const uint32_t most : TokenVocabulary::kSliceChars) {
    slice_regexes_.push_back(regexes.repeat(character_, 1, most == UINT32_MAX ? RegexPool::kUnbounded : most));
  }
}

// Every beginning of every text of `texts` leaves something of `regex`.
bool MaskMaker::takes(RegexId regex, RegexId texts) {
  std::set<std::pair<RegexId, RegexId>> seen = {{regex, texts}};
  std::vector<std::pair<RegexId, RegexId>> open(seen.begin(), seen.end());
  while (!open.empty()) {
    const auto [r, t] = open.back();
    open.pop_back();
    const bool goes_on = all_after(&states_.regexes(), r, t, [&](RegexId r_next, RegexId t_next) {
      if (!states_.is_alive(r_next)) return false;
      if (!seen.emplace(r_next, t_next).second) return true;
      open.emplace_back(r_next, t_next);
      return seen.size() <= kPairsMax;
    });
    if (!goes_on) return false;
  }
  return true;
}

// Whether some plain text, or its first byte, may come first.
bool MaskMaker::begins_plain(RegexId regex) {
  return !all_after(&states_.regexes(), regex, character_, [&](RegexId next, RegexId) { return !states_.is_alive(next); });
}

// How a part takes a plain character: whole, and with nothing left of the part in any case (kAllOfIt).
MaskMaker::Character MaskMaker::character_of(RegexId part) {
  const auto [it, is_new] = characters_.try_emplace(part, Character::kNot);
  if (!is_new) return it->second;
  RegexPool& regexes = states_.regexes();
  Character found = Character::kAllOfIt;
  std::vector<std::pair<RegexId, RegexId>> open = {{part, character_}};  // no deeper than a character has bytes
  while (!open.empty()) {
    const auto [r, t] = open.back();
    open.pop_back();
    const bool takes_it = all_after(&regexes, r, t, [&](RegexId r_next, RegexId t_next) {
      const bool is_whole = t_next == RegexPool::kEmpty;
      if (!states_.is_alive(r_next) || (is_whole && !regexes.accepts_empty(r_next))) return false;
      if (is_whole ? r_next != RegexPool::kEmpty : regexes.accepts_empty(r_next)) found = Character::kTaken;
      if (!is_whole) open.emplace_back(r_next, t_next);
      return true;
    });
    if (!takes_it) return Character::kNot;
  }
  return characters_[part] = found;
}

MaskMaker::Plain MaskMaker::find_plain_text(RegexId regex) {
  using Operator = RegexPool::Form::Operator;
  RegexPool& regexes = states_.regexes();
  if (regex == RegexPool::kAnything || takes(regex, RegexPool::kAnything)) return {UINT32_MAX, true, true};
  if (!begins_plain(regex)) return {0, true, false};
  // A number of characters, and what is none: most strings.
  const RegexPool::Form whole = regexes.form(regex);
  if (whole.is == Operator::kConcat) {
    const RegexPool::Form first = regexes.form(whole.parts[0]);
    const RegexId rest = whole.parts[1];
    const bool is_repeat = first.is == Operator::kRepeat;
    const Character character = character_of(is_repeat ? first.parts[0] : whole.parts[0]);
    const bool ends_it = !regexes.accepts_empty(rest) && !begins_plain(rest);
    const bool is_endless = is_repeat && first.max == RegexPool::kUnbounded;
    if (character == Character::kAllOfIt && (ends_it || is_endless)) return {is_repeat ? first.max : 1, true, false};
  }
  Plain found;
  for (size_t i = 0; i < slice_regexes_.size() && takes(regex, slice_regexes_[i]); ++i) {
    found.chars = TokenVocabulary::kSliceChars[i];
  }
  found.is_exact = found.chars == UINT32_MAX;
  return found;
}

MaskMaker::Plain MaskMaker::plain_text_of(RegexId regex) {
  const auto [it, is_new] = plain_.try_emplace(regex);
  if (!is_new) return it->second;
  return plain_[regex] = find_plain_text(regex);
}

MaskMaker::Plain MaskMaker::plain_text_in(ParseStates::StateId state) {
  Plain all{0, true, false};
  const size_t num_scans = states_.scans(state).size();
  for (size_t i = 0; i < num_scans; ++i) {
    const uint32_t terminal = states_.scans(state)[i].terminal;
    if (ParseStates::is_token(terminal)) continue;
    const Plain plain = plain_text_of(terminal);
    all = {std::max(all.chars, plain.chars), all.is_exact && plain.is_exact, all.is_any || plain.is_any};
  }
  return all;
}

std::vector<const TokenTrie*> MaskMaker::tried_in(const Plain& plain) const {
  if (plain.is_any) return {};
  if (plain.chars == 0 && !plain.is_exact) return {&vocabulary_.trie()};
  const TokenVocabulary::Slice slice = vocabulary_.plain_tokens(plain.chars);
  std::vector<const TokenTrie*> out = {&vocabulary_.other_tokens()};
  // A slice may be of fewer characters than are taken.
  const bool has_all = plain.is_exact && slice.chars == plain.chars;
  if (!has_all && slice.longer != nullptr) out.push_back(slice.longer);
  return out;
}

Result<TokenMaskPtr> MaskMaker::make(ParseStates::StateId state, double cpu_ms_max,
                                     const std::function<void()>& let_others) {
  const Time time{thread_cpu_ms(), cpu_ms_max};
  const Plain plain = plain_text_in(state);
  std::vector<uint32_t> bits;
  Status walked;
  if (plain.is_any) {
    bits = vocabulary_.text_tokens();
  } else if (plain.chars == 0) {
    bits.assign(vocabulary_.num_words(), 0);
  } else {
    bits = *vocabulary_.plain_tokens(plain.chars).bits;
  }
  for (const TokenTrie* trie : tried_in(plain)) {
    if (walked) walked = walk(*trie, state, time, let_others, &bits);
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
  std::vector<ParseStates::StateId> path(trie.depth_max() + 1);  // no member: others may walk meanwhile
  path[0] = state;
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
    const ParseStates::StateId next = states_.after(path[node.depth], node.byte);
    if (next == ParseStates::kDead) {
      i = node.end;
      continue;
    }
    path[node.depth + 1] = next;
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
