#include "backends/vulkan/weights.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "backends/vulkan/halves.h"
#include "backends/vulkan/transfer.h"
#include "core/backend/f16_copies.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

// Fields of a block, in the order of their planes, and how many bytes of a plane a woven row has before the next row's
// turn: what the lanes of a row load at a time. Twin: shaders/dequant.glsl.
struct Field {
  uint32_t offset, bytes;  // in the file's block
  uint32_t run = 0;        // a power of two; 0: never woven
};
constexpr uint32_t kWovenRows = 8;
std::span<const Field> fields_of(Encoding encoding) {
  static constexpr Field kF32[] = {{0, 4}}, k16[] = {{0, 2, 64}}, kQ4_0[] = {{2, 16, 64}, {0, 2, 8}},
                         kQ4_1[] = {{4, 16, 64}, {0, 4, 16}}, kQ5_0[] = {{6, 16, 64}, {2, 4, 16}, {0, 2, 8}},
                         kQ5_1[] = {{8, 16, 64}, {4, 4, 16}, {0, 4, 16}}, kQ8_0[] = {{2, 32, 64}, {0, 2, 4}},
                         kQ4_K[] = {{16, 128, 64}, {0, 16, 16}}, kQ5_K[] = {{48, 128, 64}, {16, 32, 32}, {0, 16, 16}},
                         kQ6_K[] = {{0, 128, 64}, {128, 64, 64}, {192, 16, 16}, {208, 2, 4}};
  switch (encoding) {
    case Encoding::kF32: return kF32;
    case Encoding::kF16:
    case Encoding::kBF16: return k16;
    case Encoding::kQ4_0: return kQ4_0;
    case Encoding::kQ4_1: return kQ4_1;
    case Encoding::kQ5_0: return kQ5_0;
    case Encoding::kQ5_1: return kQ5_1;
    case Encoding::kQ8_0: return kQ8_0;
    case Encoding::kQ4_K: return kQ4_K;
    case Encoding::kQ5_K: return kQ5_K;
    case Encoding::kQ6_K: return kQ6_K;
  }
  return {};
}

// A field of constant size: the compiler turns the copy into one move. `run` of 0: the row has all turns.
template <uint32_t kBytes>
void gather(const std::byte* source, uint64_t num_blocks, uint32_t block_bytes, uint32_t run, std::byte* target) {
  if (run == 0) {
    for (uint64_t b = 0; b < num_blocks; ++b) std::memcpy(target + b * kBytes, source + b * block_bytes, kBytes);
    return;
  }
  constexpr uint32_t kPiece = std::min(kBytes, 64u);  // runs are no longer
  for (uint64_t b = 0; b < num_blocks; ++b)
    for (uint32_t piece = 0; piece < kBytes; piece += kPiece) {
      const uint64_t at = b * kBytes + piece, in_run = at & (run - 1);
      std::memcpy(target + (at - in_run) * kWovenRows + in_run, source + b * block_bytes + piece, kPiece);
    }
}

void gather(const std::byte* source, uint64_t num_blocks, uint32_t block_bytes, uint32_t bytes, uint32_t run,
            std::byte* target) {
  if (bytes == block_bytes && run > 0) {  // 16-bit floats: runs lie in one piece in the file too
    for (uint64_t at = 0; at < num_blocks * bytes; at += run)
      std::memcpy(target + at * kWovenRows, source + at, run);
    return;
  }
  switch (bytes) {
    case 2: return gather<2>(source, num_blocks, block_bytes, run, target);
    case 4: return gather<4>(source, num_blocks, block_bytes, run, target);
    case 16: return gather<16>(source, num_blocks, block_bytes, run, target);
    case 32: return gather<32>(source, num_blocks, block_bytes, run, target);
    case 64: return gather<64>(source, num_blocks, block_bytes, run, target);
    case 128: return gather<128>(source, num_blocks, block_bytes, run, target);
    default: LLMRT_CHECK(false, "a field of no known size");
  }
}

// Whether the tensor's rows can be woven, and groups take them eight by eight.
bool can_weave(const WeightTable& table, WeightId id) {
  const WeightTensor& tensor = table.tensors[id];
  const uint64_t num_blocks = tensor.columns / geometry(tensor.encoding).elements_block;
  for (const Field& field : fields_of(tensor.encoding))
    if (field.run == 0 || num_blocks * field.bytes % field.run != 0) return false;
  for (const WeightGroup& group : table.groups)
    for (const RowSegment& segment : group.segments)
      if (segment.tensor == id && (segment.row_begin % kWovenRows != 0 || segment.num_rows % kWovenRows != 0))
        return false;
  return tensor.rows % kWovenRows == 0 &&
         row_words(tensor.encoding, tensor.columns) * 4ull * kWovenRows <= Transfer::kJobBytesMax;
}

// A run of rows of one tensor on its way to the device.
struct Run {
  WeightId tensor;
  uint64_t row_begin, num_rows;
};

// How many rows fit, in multiples of `step`, and at least one of those.
uint64_t rows_of_bytes(uint64_t bytes, const WeightTensor& tensor, uint64_t step) {
  return std::max<uint64_t>(bytes / (row_words(tensor.encoding, tensor.columns) * 4ull) / step, 1) * step;
}

// Tensors in the order in which groups stack them, then the others; rows of one tensor cut where a buffer ends.
std::vector<Run> plan_runs(const WeightTable& table, uint64_t range_bytes, const std::vector<bool>& woven) {
  std::vector<WeightId> order;
  std::vector<bool> seen(table.tensors.size());
  const auto visit = [&](WeightId id) {
    if (seen[id]) return;
    seen[id] = true;
    order.push_back(id);
  };
  for (const WeightGroup& group : table.groups)
    for (const RowSegment& segment : group.segments) visit(segment.tensor);
  for (size_t id = 0; id < table.tensors.size(); ++id) visit(static_cast<WeightId>(id));
  std::vector<Run> runs;
  for (const WeightId id : order) {
    const WeightTensor& tensor = table.tensors[id];
    const uint64_t rows_step = woven[id] ? kWovenRows : 1;
    const uint64_t rows_max = rows_of_bytes(range_bytes, tensor, rows_step);
    for (uint64_t row = 0; row < tensor.rows; row += rows_max)
      runs.push_back({id, row, std::min(rows_max, tensor.rows - row)});
  }
  return runs;
}

// Appends rows, joined to the last piece when they follow it in memory.
void append(std::vector<Piece>* pieces, Encoding encoding, bool woven, uint64_t row_begin, uint64_t num_rows,
            const View& view) {
  if (!pieces->empty()) {
    Piece& last = pieces->back();
    if (last.encoding == encoding && last.woven == woven && last.row_begin + last.num_rows == row_begin &&
        last.view.buffer == view.buffer && last.view.offset + last.view.bytes == view.offset) {
      last.num_rows += num_rows;
      last.view.bytes += view.bytes;
      return;
    }
  }
  pieces->push_back({encoding, woven, row_begin, num_rows, view});
}

}  // namespace

uint32_t row_words(Encoding encoding, uint64_t columns) {
  const uint64_t num_blocks = columns / geometry(encoding).elements_block;
  uint64_t bytes = 0;
  for (const Field& field : fields_of(encoding)) bytes += round_up<uint64_t>(num_blocks * field.bytes, 4);
  return static_cast<uint32_t>(round_up<uint64_t>(bytes, 16) / 4);
}

void arrange_row(Encoding encoding, uint64_t columns, const std::byte* row, std::byte* target) {
  const EncodingGeometry& block = geometry(encoding);
  const uint64_t num_blocks = columns / block.elements_block;
  std::byte* const end = target + row_words(encoding, columns) * 4ull;
  if (!is_quantized(encoding)) {
    std::memcpy(target, row, num_blocks * block.bytes_block);
    target += num_blocks * block.bytes_block;
  } else {
    for (const Field& field : fields_of(encoding)) {
      gather(row + field.offset, num_blocks, block.bytes_block, field.bytes, 0, target);
      const uint64_t bytes = num_blocks * field.bytes, padded = round_up<uint64_t>(bytes, 4);
      std::memset(target + bytes, 0, padded - bytes);
      target += padded;
    }
  }
  std::memset(target, 0, static_cast<size_t>(end - target));
}

void weave_rows(Encoding encoding, uint64_t columns, const std::byte* rows, uint64_t bytes_row, std::byte* target) {
  const EncodingGeometry& block = geometry(encoding);
  const uint64_t num_blocks = columns / block.elements_block;
  std::byte* const end = target + row_words(encoding, columns) * 4ull * kWovenRows;
  for (const Field& field : fields_of(encoding)) {
    for (uint32_t r = 0; r < kWovenRows; ++r)
      gather(rows + r * bytes_row + field.offset, num_blocks, block.bytes_block, field.bytes, field.run,
             target + r * field.run);
    target += num_blocks * field.bytes * kWovenRows;
  }
  std::memset(target, 0, static_cast<size_t>(end - target));
}

Result<Weights> Weights::load(const Device& device, MemoryBook* book, Transfer* transfer, const WeightTable& table,
                              const Progress& progress) {
  std::vector<bool> woven(table.tensors.size());
  for (size_t id = 0; id < woven.size(); ++id)
    woven[id] = device.traits().fragment.m > 0 && can_weave(table, static_cast<WeightId>(id));
  const std::vector<Run> runs = plan_runs(table, device.traits().range_bytes, woven);
  std::vector<uint64_t> bytes;
  // Rows are whole multiples of 16 bytes, so runs lie without gaps and the pieces of a group join.
  for (const Run& run : runs)
    bytes.push_back(run.num_rows * row_words(table.tensors[run.tensor].encoding, table.tensors[run.tensor].columns) * 4);
  auto ranges = RangeSet::create(device, book, MemoryKind::kWeights, bytes, 16);
  if (!ranges) return ranges.error();

  Weights weights;
  weights.ranges_ = std::move(*ranges);
  weights.tensors_.resize(table.tensors.size());
  for (size_t i = 0; i < runs.size(); ++i)
    append(&weights.tensors_[runs[i].tensor], table.tensors[runs[i].tensor].encoding, woven[runs[i].tensor],
           runs[i].row_begin, runs[i].num_rows, weights.ranges_[i]);
  for (const WeightTensor& tensor : table.tensors) weights.columns_.push_back(tensor.columns);
  for (const WeightGroup& group : table.groups) {
    std::vector<Piece> pieces;
    uint64_t row = 0;
    for (const RowSegment& segment : group.segments) {
      const uint64_t segment_end = segment.row_begin + segment.num_rows;
      for (const Piece& piece : weights.tensors_[segment.tensor]) {
        const uint64_t begin = std::max(segment.row_begin, piece.row_begin);
        const uint64_t end = std::min(segment_end, piece.row_begin + piece.num_rows);
        if (begin >= end) continue;
        const uint64_t stride = row_words(piece.encoding, group.columns) * 4ull;
        append(&pieces, piece.encoding, piece.woven, row, end - begin,
               piece.view.part((begin - piece.row_begin) * stride, (end - begin) * stride));
        row += end - begin;
      }
    }
    weights.groups_.push_back(std::move(pieces));
    weights.group_rows_.push_back(group.rows);
    weights.group_columns_.push_back(group.columns);
    weights.biases_.push_back(group.bias);
    weights.of_sampled_rows_.push_back(group.of_sampled_rows);
  }

  // Jobs of a few megabytes, each a run of rows, arranged by the transfer's threads straight into staging.
  std::vector<Transfer::Job> jobs;
  for (size_t i = 0; i < runs.size(); ++i) {
    const WeightTensor& tensor = table.tensors[runs[i].tensor];
    const uint64_t stride = row_words(tensor.encoding, tensor.columns) * 4ull;
    const bool weaves = woven[runs[i].tensor];
    const uint64_t rows_step = weaves ? kWovenRows : 1;
    const uint64_t rows_job = rows_of_bytes(Transfer::kJobBytesMax, tensor, rows_step);
    for (uint64_t row = 0; row < runs[i].num_rows; row += rows_job) {
      const uint64_t num_rows = std::min(rows_job, runs[i].num_rows - row);
      const uint64_t first = runs[i].row_begin + row;
      jobs.push_back({weights.ranges_[i].part(row * stride, num_rows * stride),
                      [&tensor, first, num_rows, stride, weaves, rows_step](std::byte* target) {
                        std::vector<std::byte> made;
                        const std::byte* source = nullptr;
                        if (tensor.data) {
                          source = tensor.data + first * tensor.bytes_row();
                        } else {
                          made.resize(num_rows * tensor.bytes_row());
                          tensor.generate(first * tensor.bytes_row(), made);
                          source = made.data();
                        }
                        for (uint64_t r = 0; r < num_rows; r += rows_step) {
                          const std::byte* from = source + r * tensor.bytes_row();
                          if (weaves)
                            weave_rows(tensor.encoding, tensor.columns, from, tensor.bytes_row(), target + r * stride);
                          else
                            arrange_row(tensor.encoding, tensor.columns, from, target + r * stride);
                        }
                      }});
    }
  }
  if (Status status = transfer->run(jobs, progress); !status) return status.error();
  return weights;
}

uint64_t Weights::halves_bytes(const Traits& traits, uint32_t step_tokens_max) const {
  uint64_t most = 0;
  for (size_t group = 0; group < groups_.size(); ++group)
    for (const Piece& piece : groups_[group])
      if (!of_sampled_rows_[group] && can_write_halves(traits, piece, group_columns_[group]) &&
          piece.f16_copy.bytes == 0 && step_tokens_max >= halves_rows_min(piece))
        most = std::max(most, piece.num_rows * group_columns_[group] * 2);
  return most;
}

Status Weights::add_f16_copies(uint64_t bytes_max, const Device& device, MemoryBook* book, Pipelines* pipelines,
                               Transfer* transfer) {
  struct Source {
    Piece* piece;
    uint32_t columns;
  };
  std::vector<Source> sources;
  std::vector<uint64_t> bytes;
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (Piece& piece : groups_[group]) {
      piece.f16_copy = {};
      const uint64_t piece_bytes = piece.num_rows * group_columns_[group] * 2;
      if (of_sampled_rows_[group] || piece_bytes > device.traits().range_bytes ||
          !can_write_halves(device.traits(), piece, group_columns_[group]))
        continue;
      sources.push_back({&piece, static_cast<uint32_t>(group_columns_[group])});
      bytes.push_back(piece_bytes);
    }
  }
  f16_copies_ = {};
  const std::vector<size_t> chosen = choose_f16_copies(bytes, bytes_max);
  if (chosen.empty()) return {};
  std::vector<uint64_t> sizes;
  for (size_t i : chosen) sizes.push_back(bytes[i]);
  auto ranges = RangeSet::create(device, book, MemoryKind::kF16Copies, sizes);
  if (!ranges) return ranges.error();
  std::vector<HalvesWrite> writes;
  std::vector<Kernel> kernels;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const Source& source = sources[chosen[i]];
    writes.push_back(halves_write(*source.piece, source.columns, 0, source.piece->num_rows, 0, (*ranges)[i]));
    kernels.push_back(writes.back().kernel);
  }
  if (Status status = pipelines->compile(kernels); !status) return status;
  Status written = transfer->execute([&](VkCommandBuffer commands) {
    for (const HalvesWrite& write : writes)
      record_dispatch(device, *pipelines, commands, write.kernel, write.push, write.groups);
  });
  if (!written) return written;
  for (size_t i = 0; i < chosen.size(); ++i) sources[chosen[i]].piece->f16_copy = (*ranges)[i];
  f16_copies_ = std::move(*ranges);
  return {};
}

Result<View> Weights::vector(WeightId id) const {
  const std::vector<Piece>& pieces = tensors_[id];
  if (pieces.size() != 1 || pieces[0].encoding != Encoding::kF32)
    return make_error(ErrorCode::kUnsupported, "vulkan: weight {}: expected a vector of f32, found {} in {} pieces", id,
                      encoding_name(pieces.empty() ? Encoding::kF32 : pieces[0].encoding), pieces.size());
  return pieces[0].view;
}

}  // namespace llmrt::vulkan
