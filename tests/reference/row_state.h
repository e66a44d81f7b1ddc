// The state of one row in one layer while an op walks the row's tokens: where it begins, and where it is written.
#pragma once

#include <vector>

#include "tests/reference/machine.h"

namespace llmrt::reference {

class RowState {
 public:
  // `count` numbers from `first` on of the layer's records. Errors: a record that the pool does not have.
  static Result<RowState> begin(Machine& machine, const RowRecord& row, uint32_t kv_group, uint32_t layer,
                                uint64_t first, uint64_t count);

  double* data() { return numbers_.data(); }
  double& operator[](size_t i) { return numbers_[i]; }
  std::vector<double>& numbers() { return numbers_; }
  // The state is that behind the row's first `num_tokens` tokens: goes to the places that the row has there, and behind
  // the last token to the row's own record.
  void advance(uint32_t num_tokens);

  // For states that are left in part. The first `count` numbers go to the places behind the row's first tokens.
  void save(uint32_t num_tokens, size_t count);
  std::vector<uint32_t> places_behind(uint32_t num_tokens) const;  // their records
  bool is_own() const { return source_ == own_; }                  // the row begins from its own record
  uint32_t own() const { return own_; }
  std::vector<double> load(uint32_t record) const;
  void store(uint32_t record, const std::vector<double>& numbers, size_t count);

 private:
  RowState(Machine& machine, const RowRecord& row, KvPool& pool) : machine_(&machine), row_(&row), pool_(&pool) {}

  Machine* machine_;
  const RowRecord* row_;
  KvPool* pool_;
  uint32_t kv_group_ = 0, layer_ = 0, own_ = 0, source_ = 0;
  uint64_t first_ = 0;
  std::vector<double> numbers_;
};

}  // namespace llmrt::reference
