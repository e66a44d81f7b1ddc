// All branches of accepted requests, by their ids: those that wait, those that run, and those that have ended and whose
// receiver has not drained them yet (kStreaming).
//
// Owns the sequences; a reference to one is valid until erase() or drop_streaming(). No errors: an id that is used
// twice stops the process. The engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/request/sequence.h"

namespace llmrt {

class Branches {
 public:
  Sequence& add(std::unique_ptr<Sequence> sequence);
  // Null: never added, or erased.
  Sequence* find(RequestId id) const;
  // The branches of its request, by their number; null: erased. With beam search all of them are there until the end.
  std::vector<Sequence*> of_same(const Sequence& sequence) const;

  // It is over, and its answer has been sent or is not wanted any more.
  void erase(const Sequence& sequence) { by_id_.erase(sequence.request.id); }
  // It is over, and its receiver may be behind.
  void keep_streaming() { ++num_streaming_; }
  // Its receiver has all of it, or has gone.
  void drop_streaming(const Sequence& sequence);

  size_t size() const { return by_id_.size(); }
  uint32_t num_streaming() const { return num_streaming_; }
  std::vector<RequestId> streaming() const;

 private:
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> by_id_;
  uint32_t num_streaming_ = 0;
};

}  // namespace llmrt
