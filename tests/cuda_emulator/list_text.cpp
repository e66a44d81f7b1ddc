#include "tests/cuda_emulator/list_text.h"

#include <sstream>

#include "core/base/check.h"

namespace llmrt::cuda {

DeviceFacts device_facts(const std::string& device) {
  if (device == "h100") return {132, 232448, true, true, true, true};
  if (device == "h100_plain") return {132, 232448, true, true, true, false};
  if (device == "b200") return {148, 232448, true, true, false, true};
  if (device == "a100") return {108, 166912, false, false, false, true};
  LLMRT_CHECK(device == "t4", "a device that the tests know");
  return {40, 65536, false, false, false, false};
}

FakeWeights::FakeWeights(const std::string& encoding, const TextShape& shape, bool bias) : shape_(shape) {
  const bool is_mix = encoding == "q4_k_m";
  const Encoding most = is_mix ? Encoding::kQ4_K : *parse_encoding(encoding);
  const Encoding some = is_mix ? Encoding::kQ6_K : most;
  const uint32_t kv_rows = shape.kv_heads * shape.dim;
  add(Encoding::kF32, 1, shape.width);
  add(Encoding::kF32, 1, shape.dim);
  add(Encoding::kF32, 1, shape.dim / 2);
  add_group("qkv",
            {add(most, shape.heads * shape.dim, shape.width), add(most, kv_rows, shape.width),
             add(some, kv_rows, shape.width)},
            bias);
  add_group("o", {add(most, shape.width, shape.heads * shape.dim)}, false);
  add_group("gu", {add(most, shape.ffn, shape.width), add(most, shape.ffn, shape.width)}, false);
  add_group("down", {add(some, shape.width, shape.ffn)}, false);
  tensors_ = place(table_, lay_out(table_), reinterpret_cast<const uint8_t*>(uintptr_t{1} << 20));
  groups_ = make_groups(table_, tensors_);
}

WeightId FakeWeights::add(Encoding encoding, uint64_t rows, uint64_t columns) {
  table_.tensors.push_back({"", encoding, rows, columns, nullptr, nullptr});
  return static_cast<WeightId>(table_.tensors.size() - 1);
}

void FakeWeights::add_group(const std::string& name, const std::vector<WeightId>& tensors, bool bias) {
  WeightGroup group;
  group.name = name;
  for (WeightId id : tensors) {
    const WeightTensor& tensor = table_.tensors[static_cast<size_t>(id)];
    group.segments.push_back({id, 0, tensor.rows});
    group.rows += tensor.rows;
    group.columns = tensor.columns;
  }
  if (bias) group.bias = add(Encoding::kF32, 1, group.rows);
  names_[name] = static_cast<WeightGroupId>(table_.groups.size());
  table_.groups.push_back(std::move(group));
}

void FakeWeights::add_f16_copies() {
  for (DeviceGroup& group : groups_)
    for (GroupRun& run : group.runs)
      run.f16 = {{run.matrix.plane[0]}, run.matrix.rows, run.matrix.columns, run.matrix.columns * 2, Encoding::kF16};
}

CompileInputs FakeWeights::inputs(const std::string& device, KvDType kv_dtype) const {
  pools_ = {{1, shape_.kv_heads, shape_.dim, 16, 100, kv_dtype}};
  CompileInputs inputs;
  inputs.device = device_facts(device);
  inputs.tensors = tensors_;
  inputs.groups = groups_;
  inputs.pools = pools_;
  inputs.hidden_rows = 2048;
  inputs.workspace_bytes = 128 << 20;
  inputs.num_counters = 1 << 16;
  return inputs;
}

namespace {

struct Parser {
  const FakeWeights& weights;
  OpList list;
  std::map<std::string, TensorId> ids;

  TensorId make(std::string name, uint32_t columns, DType dtype) {
    const Storage storage = name.back() == '!' ? Storage::kPinned : Storage::kArena;
    const auto found = ids.find(name);
    if (found != ids.end()) return found->second;
    return ids[name] = list.add_tensor({name, Rows::kTokens, columns, dtype, storage});
  }
  TensorId in(const std::string& name) {
    return name == "-" ? kNoTensor : make(name, weights.shape().width, DType::kF32);
  }

  void add(const std::string& line) {
    const auto& [width, ffn, heads, kv_heads, dim] = weights.shape();
    std::istringstream words(line);
    std::string op, a, b, arrow, out;
    words >> op >> a;
    if (op == "norm" || op == "matmul" || op == "add") words >> b;
    if (op != "qknorm" && op != "rope" && op != "write") words >> arrow >> out;
    const TensorId positions = make("positions", 1, DType::kI32);
    const auto columns = [&](TensorId id) { return list.tensors[static_cast<size_t>(id)].columns; };
    if (op == "norm") {
      list.ops.push_back(RmsNorm{in(a), in(b), weights.norm(), 1e-5f, make(out, width, DType::kF16)});
    } else if (op == "matmul") {
      const WeightGroupId group = weights.group(b);
      const uint64_t rows = weights.table().groups[static_cast<size_t>(group)].rows;
      list.ops.push_back(Matmul{in(a), group, make(out, static_cast<uint32_t>(rows), DType::kF32)});
    } else if (op == "qknorm") {
      list.ops.push_back(QkNorm{in(a), weights.head_norm(), weights.head_norm(), heads, kv_heads, dim, 1e-5f});
    } else if (op == "rope") {
      list.ops.push_back(Rope{in(a), positions, weights.freqs(), heads, kv_heads, dim, dim, RopePairing::kHalves, 1});
    } else if (op == "write") {
      list.ops.push_back(KvWrite{in(a), positions, 0, 0, heads, kv_heads, dim});
    } else if (op == "attend") {
      list.ops.push_back(
          PagedAttention{in(a), make(out, heads * dim, DType::kF16), 0, 0, heads, kv_heads, dim, 0.088f, 0, 0});
    } else if (op == "gate") {
      list.ops.push_back(GatedActivation{in(a), Activation::kSilu, make(out, ffn, DType::kF16)});
    } else if (op == "add") {
      list.ops.push_back(Add{in(a), in(b), make(out, columns(in(a)), DType::kF32)});
    } else {
      LLMRT_CHECK(op == "scale", "an op that the tests' text knows");
      list.ops.push_back(Scale{in(a), 2, make(out, columns(in(a)), DType::kF32)});
    }
  }
};

}  // namespace

OpList parse_list(const std::string& text, const FakeWeights& weights, uint32_t rows) {
  Parser parser{weights, {"forward", rows, 0, {}, {}}, {}};
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) parser.add(line);
  return std::move(parser.list);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  LLMRT_CHECK(at != std::string::npos, "a text that is replaced is there");
  return text.replace(at, from.size(), to);
}

Program compiled(const OpList& list, const CompileInputs& inputs) {
  Result<Program> program = compile(list, inputs);
  LLMRT_CHECK(program.ok(), program ? "" : program.error().message);
  return *std::move(program);
}

}  // namespace llmrt::cuda
