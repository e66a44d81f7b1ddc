#include "core/grammar/json_tracker.h"

#include <algorithm>

namespace llmrt {
namespace {

bool is_space(uint8_t byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

// Where the value ends whose text, as trackers write it, begins at `at`.
size_t end_of_value(std::string_view text, size_t at) {
  size_t depth = 0;
  bool is_string = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (is_string) {
      if (c == '\\') ++at;
      if (c == '"') is_string = false;
      if (c == '"' && depth == 0) return at + 1;
    } else if (c == '"') {
      is_string = true;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      if (depth == 0) return at;
      if (--depth == 0) return at + 1;
    } else if ((c == ',' || c == ':') && depth == 0) {
      return at;
    }
  }
  return at;
}

}  // namespace

void JsonTracker::feed(uint8_t byte) {
  is_duplicate_ = false;
  switch (state_) {
    case State::kValue:
      return feed_value(byte);
    case State::kString:
    case State::kKeyString:
      put(static_cast<char>(byte));
      if (is_escaped_) {
        is_escaped_ = false;
      } else if (byte == '\\') {
        is_escaped_ = true;
      } else if (byte == '"') {
        look();
        if (state_ == State::kKeyString) return end_key();
        return end_value();
      }
      return;
    case State::kBare:
      if (byte == ',' || byte == ']' || byte == '}' || is_space(byte)) {
        end_value();
        return feed_after(byte);
      }
      put(static_cast<char>(byte));
      return look();
    case State::kAfter:
      return feed_after(byte);
    case State::kKey:
      return feed_key(byte);
    case State::kColon:
      if (byte == ':') {
        if (is_kept()) put(':');
        state_ = State::kValue;
        if (is_kept()) frames_.back().members.back().value = static_cast<uint32_t>(text_.size());
      } else if (!is_space(byte)) {
        state_ = State::kOver;
      }
      return;
    case State::kOver:
      return;
  }
}

void JsonTracker::feed_value(uint8_t byte) {
  if (is_space(byte)) return;
  const bool is_item = !frames_.empty() && !frames_.back().is_object;
  if (byte == ']' && is_item && frames_.back().is_first) return close(false);
  if (is_item) {
    Frame& frame = frames_.back();
    frame.is_first = false;
    frame.part = static_cast<uint32_t>(text_.size());
    frame.rivals.clear();
    frame.has_rivals = false;
  }
  if (byte == '[' || byte == '{') return open(byte == '{');
  if (byte == '"') {
    state_ = State::kString;
    return put('"');
  }
  const bool is_bare = byte == '-' || (byte >= '0' && byte <= '9') || byte == 't' || byte == 'f' || byte == 'n';
  state_ = is_bare ? State::kBare : State::kOver;
  if (!is_bare) return;
  put(static_cast<char>(byte));
  look();
}

void JsonTracker::feed_after(uint8_t byte) {
  if (is_space(byte)) return;
  if (frames_.empty()) {
    state_ = State::kOver;
  } else if (byte == ',') {
    const Frame& frame = frames_.back();
    if (num_tracked_arrays_ > (frame.is_tracked && !frame.is_object ? 1u : 0u)) put(',');
    state_ = frames_.back().is_object ? State::kKey : State::kValue;
    frames_.back().part = static_cast<uint32_t>(text_.size());
  } else if (byte == ']' || byte == '}') {
    close(byte == '}');
  } else {
    state_ = State::kOver;
  }
}

void JsonTracker::feed_key(uint8_t byte) {
  Frame& frame = frames_.back();
  if (is_space(byte)) return;
  if (byte == '}' && frame.is_first) return close(true);
  if (byte != '"') {
    state_ = State::kOver;
    return;
  }
  frame.is_first = false;
  frame.part = static_cast<uint32_t>(text_.size());
  state_ = State::kKeyString;
  put('"');
}

void JsonTracker::open(bool is_object) {
  if (frames_.size() == kDepthMax) {
    failed_ = true;
    state_ = State::kOver;
    return;
  }
  const auto begin = static_cast<uint32_t>(text_.size());
  if (is_kept()) put(is_object ? '{' : '[');
  frames_.push_back({.is_object = is_object, .begin = begin, .part = static_cast<uint32_t>(text_.size())});
  state_ = is_object ? State::kKey : State::kValue;
}

void JsonTracker::close(bool is_object) {
  Frame& frame = frames_.back();
  if (frame.is_object != is_object) {
    state_ = State::kOver;
    return;
  }
  if (frame.is_tracked && !is_object) --num_tracked_arrays_;
  if (is_kept()) {
    put(is_object ? '}' : ']');
    if (is_object) text_.replace(frame.begin, std::string::npos, sorted(frame));
  } else {
    text_.resize(frame.begin);
  }
  seen_bytes_ -= frame.seen_bytes;
  frames_.pop_back();
  look();
  end_value();
}

// With its members in the order of their keys.
std::string JsonTracker::sorted(const Frame& frame) const {
  std::vector<std::string_view> members;
  for (const Member& member : frame.members) {
    members.push_back(std::string_view(text_).substr(member.key, member.end - member.key));
  }
  std::ranges::sort(members);
  std::string out = "{";
  for (const std::string_view member : members) {
    if (out.size() > 1) out += ',';
    out += member;
  }
  return out += '}';
}

void JsonTracker::track(bool is_tight) {
  if (frames_.empty() || !frames_.back().is_first) return;
  Frame& frame = frames_.back();
  if (!frame.is_tracked && !frame.is_object) ++num_tracked_arrays_;
  frame.is_tracked = true;
  frame.is_tight |= is_tight;
}

// The text so far may be a whole item or key.
void JsonTracker::look() {
  if (frames_.empty() || !frames_.back().is_tracked) return;
  const Frame& frame = frames_.back();
  if (frame.is_object && state_ != State::kKeyString) return;
  is_duplicate_ = frame.seen.contains(part_of(frame));
}

void JsonTracker::see(Frame* frame, std::string text) {
  frame->rivals.clear();
  frame->has_rivals = false;
  frame->seen_bytes += text.size();
  seen_bytes_ += text.size();
  if (seen_bytes_ > kSeenBytesMax) failed_ = true;
  frame->seen.add(std::move(text));
}

void JsonTracker::end_value() {
  state_ = State::kAfter;
  if (frames_.empty()) return;
  Frame& frame = frames_.back();
  if (frame.is_object) {
    if (is_kept()) frame.members.back().end = static_cast<uint32_t>(text_.size());
    return;
  }
  if (!frame.is_tracked) return;
  see(&frame, std::string(part_of(frame)));
  if (num_tracked_arrays_ == 1) text_.resize(frame.part);
}

void JsonTracker::end_key() {
  Frame& frame = frames_.back();
  if (frame.is_tracked) see(&frame, std::string(part_of(frame)));
  if (is_kept()) {
    frame.members.push_back({frame.part, 0, 0});
  } else {
    text_.resize(frame.part);
  }
  state_ = State::kColon;
}

void JsonTracker::put(char byte) {
  const bool is_key = state_ == State::kKeyString && frames_.back().is_tracked;
  if (!is_kept() && !is_key) return;
  if (text_.size() >= kOpenBytesMax) {
    failed_ = true;
    return;
  }
  text_ += byte;
}

bool JsonTracker::is_tight(int64_t* work) {
  for (size_t i = 0; i < frames_.size() && *work > 0; ++i) {
    const Frame& frame = frames_[i];
    if (frame.is_tracked && frame.is_tight && !frame.seen.empty() && is_tight_in(i, work)) return *work > 0;
  }
  return false;
}

bool JsonTracker::is_tight_in(size_t index, int64_t* work) {
  Frame& frame = frames_[index];
  const bool is_inner = index + 1 == frames_.size();
  if (frame.is_object) {
    if (!is_inner) return false;
    return state_ == State::kKey || (state_ == State::kKeyString && frame.seen.has_beginning(part_of(frame)));
  }
  if (!is_inner) {
    if (!frame.has_rivals) frame.rivals = frame.seen.all();
    frame.has_rivals = true;
    std::erase_if(frame.rivals, [&](const std::string* item) {
      *work -= static_cast<int64_t>(item->size());
      return *work > 0 && !may_become(index, *item);
    });
    return !frame.rivals.empty();
  }
  return state_ == State::kValue ||
         ((state_ == State::kString || state_ == State::kBare) && frame.seen.has_beginning(part_of(frame)));
}

// Whether the item of the frame that is being read, a container, may become this one. Looks at what is whole in each
// container, and at the beginning of what is not.
bool JsonTracker::may_become(size_t index, std::string_view item) const {
  const std::string_view text = text_;
  size_t at = 0;
  for (size_t level = index + 1; level < frames_.size(); ++level) {
    const Frame& frame = frames_[level];
    const bool is_inner = level + 1 == frames_.size();
    if (at >= item.size() || item[at] != (frame.is_object ? '{' : '[')) return false;
    if (!frame.is_object) {
      const bool is_whole = is_inner && state_ == State::kAfter;
      const std::string_view items = text.substr(frame.begin, (is_whole ? text.size() : frame.part) - frame.begin);
      if (!item.substr(at).starts_with(items)) return false;
      at += items.size();
      continue;
    }
    const bool is_in_value = !is_inner || state_ == State::kValue || state_ == State::kString || state_ == State::kBare;
    const size_t num_whole = frame.members.size() - (is_in_value || state_ == State::kColon ? 1 : 0);
    std::vector<std::pair<size_t, size_t>> others;  // keys and values of the item's object
    for (size_t p = at + 1; p < item.size() && item[p] == '"';) {
      const size_t key_end = end_of_value(item, p), end = end_of_value(item, key_end + 1);
      others.emplace_back(p, key_end + 1);
      p = end < item.size() && item[end] == ',' ? end + 1 : item.size();
    }
    const auto find = [&](std::string_view member) {
      return std::ranges::find_if(others,
                                  [&](const auto& other) { return item.substr(other.first).starts_with(member); });
    };
    for (size_t m = 0; m < num_whole; ++m) {
      const Member& member = frame.members[m];
      const std::string_view own = text.substr(member.key, member.end - member.key);
      const auto it = find(own);
      if (it == others.end() || end_of_value(item, it->second) != it->first + own.size()) return false;
      others.erase(it);
    }
    if (is_in_value || state_ == State::kColon) {
      const Member& member = frame.members.back();
      const auto it = find(text.substr(member.key, end_of_value(text, member.key) - member.key));
      if (it == others.end()) return false;
      if (!is_in_value) return true;
      at = it->second;
      continue;
    }
    if (state_ == State::kKeyString) return find(part_of(frame)) != others.end();
    return state_ == State::kAfter || !others.empty();
  }
  // What is left is the beginning of a scalar, or nothing.
  const Frame& frame = frames_.back();
  const bool is_scalar = state_ == State::kString || state_ == State::kBare;
  if (!is_scalar) return true;
  const size_t begin = frame.is_object ? frame.members.back().value : frame.part;
  return item.substr(at).starts_with(text.substr(begin));
}

}  // namespace llmrt
