// Where a text of JSON stands, byte by byte: which arrays and objects are open, and which items and keys were in each
// that a grammar asks about (PlaceMark::kTracked). An item is kept as one text of its value: without white space, keys
// sorted. The text is as core/grammar/schema writes it: one spelling for each string and each number.
//
// A value: copies are independent and share the sets. What is kept is bounded; beyond the bounds failed() is true. One
// thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/grammar/seen_texts.h"

namespace llmrt {

class JsonTracker {
 public:
  static constexpr size_t kDepthMax = 1000;
  static constexpr size_t kOpenBytesMax = 64u << 10;  // of items and keys that are being read
  static constexpr size_t kSeenBytesMax = 4u << 20;

  // Takes a byte. Where the text is no JSON it is over afterwards.
  void feed(uint8_t byte);
  // The innermost container, which began with the last byte, is to be tracked.
  void track(bool is_tight);

  // The item or key that ends with the last byte, if one may end there, is equal to an earlier one of its container.
  bool is_duplicate() const { return is_duplicate_; }
  // What is being read, or would be after a comma, may still become equal to an earlier one, in a container that is
  // tight: whether it can become something else is not told by its language.
  // Spends work on comparing, in bytes; when there is none left the answer is no.
  bool is_tight(int64_t* work);
  // What a copy costs, in bytes.
  size_t copy_bytes() const { return text_.size() + frames_.size() * sizeof(Frame); }
  // White space may stand here without being part of a string.
  bool is_between() const { return state_ != State::kString && state_ != State::kKeyString; }

  bool is_over() const { return state_ == State::kOver; }  // no JSON, or nothing of it may follow that matters
  bool failed() const { return failed_; }
  size_t depth() const { return frames_.size(); }
  // Nothing was read yet.
  bool is_new() const { return state_ == State::kValue && frames_.empty(); }

 private:
  enum class State : uint8_t { kValue, kString, kBare, kAfter, kKey, kKeyString, kColon, kOver };
  struct Member {
    uint32_t key, value, end;  // offsets of its text
  };
  struct Frame {
    bool is_object;
    bool is_tracked = false, is_tight = false;
    bool is_first = true;           // nothing stands in it yet
    uint32_t begin;                 // offset of its text
    uint32_t part;                  // offset of the text of the item, or of the key, that is being read
    std::vector<Member> members{};  // of an object inside a tracked array
    SeenTexts seen{};
    size_t seen_bytes = 0;
    // Earlier items that the open one, a container, may still become: fewer with each byte.
    std::vector<const std::string*> rivals{};
    bool has_rivals = false;  // they were looked for
  };

  void feed_value(uint8_t byte);
  void feed_after(uint8_t byte);
  void feed_key(uint8_t byte);
  void open(bool is_object);
  void close(bool is_object);
  void end_value();
  void end_key();
  void look();
  void see(Frame* frame, std::string text);
  void put(char byte);
  bool is_kept() const { return num_tracked_arrays_ > 0; }
  std::string_view part_of(const Frame& frame) const { return std::string_view(text_).substr(frame.part); }
  std::string sorted(const Frame& frame) const;
  bool is_tight_in(size_t index, int64_t* work);
  bool may_become(size_t index, std::string_view item) const;

  State state_ = State::kValue;
  bool is_escaped_ = false, is_duplicate_ = false, failed_ = false;
  uint32_t num_tracked_arrays_ = 0;
  size_t seen_bytes_ = 0;
  std::string text_;  // of the outermost tracked container's open item or key, and of all inside it
  std::vector<Frame> frames_;
};

}  // namespace llmrt
