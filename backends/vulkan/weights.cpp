#include "backends/vulkan/weights.h"

#include <algorithm>
#include <atomic>

#include "backends/vulkan/choose_matmul.h"
#include "backends/vulkan/kernels/write_halves.h"
#include "backends/vulkan/recorder.h"
#include "backends/vulkan/transfer.h"
#include "core/backend/f16_copies.h"

namespace llmrt::vulkan {
namespace {

// Writes rows [first, first + num_rows) of a tensor as the device has them; tells of rows that are beyond f16.
void fill_rows(const WeightTensor& tensor, bool weaves, uint64_t first, uint64_t num_rows, std::atomic<bool>* beyond,
               std::byte* target) {
  const uint64_t stride = row_words(tensor.encoding, tensor.columns) * 4ull, bytes_row = tensor.bytes_row();
  std::vector<std::byte> made;
  const std::byte* source = nullptr;
  if (tensor.data) {
    source = tensor.data + first * bytes_row;
  } else {
    made.resize(num_rows * bytes_row);
    tensor.generate(first * bytes_row, made);
    source = made.data();
  }
  for (uint64_t r = 0; r < num_rows; ++r)
    if (!fits_f16(tensor.encoding, tensor.columns, source + r * bytes_row)) *beyond = true;
  for (uint64_t r = 0; r < num_rows; r += weaves ? kWovenRows : 1) {
    const std::byte* from = source + r * bytes_row;
    if (weaves)
      weave_rows(tensor.encoding, tensor.columns, from, bytes_row, target + r * stride);
    else
      arrange_row(tensor.encoding, tensor.columns, from, target + r * stride);
  }
}

// Jobs of a few megabytes, each a run of rows, arranged by the transfer's threads straight into staging.
std::vector<Transfer::Job> fill_jobs(const WeightTable& table, const WeightRuns& runs, const RangeSet& ranges,
                                     std::vector<std::atomic<bool>>* beyond) {
  std::vector<Transfer::Job> jobs;
  for (size_t i = 0; i < runs.runs.size(); ++i) {
    const WeightRun& run = runs.runs[i];
    const WeightTensor& tensor = table.tensors[run.tensor];
    const uint64_t stride = row_words(tensor.encoding, tensor.columns) * 4ull;
    const bool weaves = runs.woven[run.tensor];
    const uint64_t rows_job = rows_of_bytes(Transfer::kJobBytesMax, stride, weaves ? kWovenRows : 1);
    for (uint64_t row = 0; row < run.num_rows; row += rows_job) {
      const uint64_t num_rows = std::min(rows_job, run.num_rows - row), first = run.row_begin + row;
      jobs.push_back({ranges[i].part(row * stride, num_rows * stride),
                      [&tensor, weaves, first, num_rows, beyond = &(*beyond)[run.tensor]](std::byte* target) {
                        fill_rows(tensor, weaves, first, num_rows, beyond, target);
                      }});
    }
  }
  return jobs;
}

}  // namespace

Result<Weights> Weights::load(const Device& device, MemoryBook* book, Transfer* transfer, const WeightTable& table,
                              const Progress& progress) {
  WeightRuns runs = plan_weight_runs(table, device.traits(), Transfer::kJobBytesMax);
  auto ranges = RangeSet::create(device, book, MemoryKind::kWeights, runs.bytes, 16);
  if (!ranges) return ranges.error();
  Weights weights;
  weights.ranges_ = std::move(*ranges);
  std::vector<std::atomic<bool>> beyond(table.tensors.size());
  if (Status status = transfer->run(fill_jobs(table, runs, weights.ranges_, &beyond), progress); !status)
    return status.error();
  std::copy(beyond.begin(), beyond.end(), runs.is_beyond_f16.begin());
  weights.pieces_ = make_pieces(table, runs, weights.ranges_.views());
  return weights;
}

Status Weights::add_f16_copies(uint64_t bytes_max, const Device& device, MemoryBook* book, Pipelines* pipelines,
                               Transfer* transfer) {
  const Target target{device.traits(), default_tuning()};
  struct Source {
    Piece* piece;
    uint32_t columns;
  };
  std::vector<Source> sources;
  std::vector<uint64_t> bytes;
  for (GroupPieces& group : pieces_.groups) {
    for (Piece& piece : group.pieces) {
      piece.f16_copy = {};
      const uint64_t piece_bytes = piece.num_rows * group.columns * 2;
      if (group.of_sampled_rows || group.num_experts > 0 || piece_bytes > device.traits().range_bytes ||
          !can_write_halves(target, piece, group.columns))
        continue;
      sources.push_back({&piece, static_cast<uint32_t>(group.columns)});
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
  std::vector<Launch> launches;
  std::vector<Kernel> kernels;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const Source& source = sources[chosen[i]];
    launches.push_back(write_halves(*source.piece, source.columns, {0, source.piece->num_rows, 0}, (*ranges)[i]));
    kernels.push_back(launches.back().kernel);
  }
  if (Status status = pipelines->compile(kernels); !status) return status;
  Status written = transfer->execute([&](VkCommandBuffer commands) {
    for (const Launch& launch : launches) record_launch(device, *pipelines, commands, launch);
  });
  if (!written) return written;
  for (size_t i = 0; i < chosen.size(); ++i) sources[chosen[i]].piece->f16_copy = (*ranges)[i];
  f16_copies_ = std::move(*ranges);
  return {};
}

}  // namespace llmrt::vulkan
