// Finds marks in a stream of units: holds back the longest end that may still become one. What was held back and is no
// mark goes back to the source, so that it is read again under whatever marks count then.
#pragma once

#include <algorithm>
#include <bitset>
#include <deque>
#include <vector>

#include "core/chat/resolved_format.h"

namespace llmrt {

enum class Mark : uint8_t {
  kSectionOpen,
  kSectionClose,
  kCallOpen,
  kCallClose,
  kThoughtOpen,
  kThoughtClose,
  kHidden,
  kStop,
  kName,
  kNameEnd,
  kId,
  kArgs,
  kKey,
  kKeyEnd,
  kValue,
  kValueEnd,
  kEnd,
  kDelimiter,
  kHeaderStart,
  kChannel,
  kConstrain,
  kMessage,
  kMessageEnd,
};

// The marks that count in a place.
class LiveMarks {
 public:
  struct Entry {
    Units units;
    Mark mark;
    uint8_t index;  // which of several spellings
  };
  // The first of equal spellings counts; empty ones are left out.
  void add(Units units, Mark mark, uint8_t index = 0) {
    if (units.empty()) return;
    for (const Entry& entry : entries_) {
      if (entry.units == units) return;
    }
    if (is_byte(units[0])) first_bytes_.set(units[0]);
    entries_.push_back({std::move(units), mark, index});
  }
  const std::vector<Entry>& entries() const { return entries_; }
  bool may_begin(Unit unit) const { return !is_byte(unit) || first_bytes_[unit]; }

 private:
  std::vector<Entry> entries_;
  std::bitset<256> first_bytes_;
};

// Units to be read next. While it records, it keeps what was read and not put back.
class UnitSource {
 public:
  bool empty() const { return queue_.empty(); }
  void append(Unit unit) { queue_.push_back(unit); }
  Unit next() {
    const Unit unit = queue_.front();
    queue_.pop_front();
    if (records_) record_ += unit;
    return unit;
  }
  Unit next_unrecorded() {
    const Unit unit = queue_.front();
    queue_.pop_front();
    return unit;
  }
  void put_back(const Units& units) {
    queue_.insert(queue_.begin(), units.begin(), units.end());
    record_.resize(record_.size() - std::min(record_.size(), units.size()));
  }
  void start_record(Units first) {
    records_ = true;
    record_ = std::move(first);
  }
  Units end_record() {
    records_ = false;
    return std::exchange(record_, {});
  }
  const Units& record() const { return record_; }

 private:
  std::deque<Unit> queue_;
  bool records_ = false;
  Units record_;
};

class MarkScanner {
 public:
  struct Found {
    enum class Kind : uint8_t { kHeld, kData, kMark };
    Kind kind;
    Unit data = 0;
    Mark mark = {};
    uint8_t index = 0;
    Units units = {};  // of the mark
  };
  bool holds() const { return !held_.empty(); }
  void clear() {
    held_.clear();
    best_ = {.kind = Found::Kind::kHeld};
  }
  Found push(Unit unit, const LiveMarks& live, UnitSource* source);
  // Nothing follows: the first held unit is data (or a mark that was complete), the others go back.
  Found release(UnitSource* source);

 private:
  Units held_;
  Found best_ = {.kind = Found::Kind::kHeld};  // a complete mark that a longer one begins with
};

}  // namespace llmrt
