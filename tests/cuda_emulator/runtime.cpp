// Memory, streams, events and graphs: everything happens when it is asked for, except in a stream that captures.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda_runtime_api.h"

struct EmulatedGraph {
  std::vector<std::function<void()>> work;
};
struct EmulatedStream {
  EmulatedGraph* capturing = nullptr;
};
struct EmulatedEvent {
  std::chrono::steady_clock::time_point time;
};

extern "C" void emulator_enqueue(cudaStream_t stream, const std::function<void()>* work) {
  if (stream && stream->capturing)
    stream->capturing->work.push_back(*work);
  else
    (*work)();
}

namespace {
constexpr size_t kMemoryBytes = size_t{8} << 30;

int number_of(const char* variable, int otherwise) {
  const char* value = std::getenv(variable);
  return value ? std::atoi(value) : otherwise;
}
// Of a block; LLMRT_EMULATOR_SHARED_BYTES for devices that have less.
int shared_bytes_max() {
  return number_of("LLMRT_EMULATOR_SHARED_BYTES", 227 << 10);
}
cudaError_t enqueue(cudaStream_t stream, const std::function<void()>& work) {
  emulator_enqueue(stream, &work);
  return cudaSuccess;
}
// Garbage that is NaN in every float format, as memory that nothing wrote may hold anything.
cudaError_t allocate(void** data, size_t bytes) {
  if (bytes > kMemoryBytes) return cudaErrorMemoryAllocation;
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!*data) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xff, bytes);
  return cudaSuccess;
}
}  // namespace

// LLMRT_EMULATOR_ARCHITECTURE=80: as code of an older one that was translated for this device.
namespace emulator {
int architecture() {
  static const int value = number_of("LLMRT_EMULATOR_ARCHITECTURE", 90);
  return value;
}
}  // namespace emulator

const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "out of memory" : "emulated error";
}
const char* cudaGetErrorName(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError";
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "CUDA kernels on the CPU");
  properties->totalGlobalMem = kMemoryBytes;
  properties->major = 9;
  properties->minor = 0;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
static int encode_rows(uint64_t* map, int, uint32_t rank, void* base, const uint64_t* sizes, const uint64_t* strides,
                       const uint32_t* box, const uint32_t*, int, int, int, int) {
  const uint64_t boxes = rank == 3 ? box[2] : 1, columns = rank == 3 ? sizes[0] * sizes[2] : sizes[0];
  if (reinterpret_cast<uintptr_t>(base) % 16 || strides[0] % 16 || strides[0] != columns * 2 || box[0] > 64 ||
      box[0] % 8 || box[1] > 256)
    return 1;
  const uint64_t words[5] = {reinterpret_cast<uintptr_t>(base), sizes[1], columns, box[1], box[0] * boxes};
  std::copy(words, words + 5, map);
  return 0;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = reinterpret_cast<void*>(&encode_rows);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (attribute == cudaDevAttrComputeCapabilityMajor || attribute == cudaDevAttrComputeCapabilityMinor) {
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
    return cudaSuccess;
  }
  if (attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin) {
    *value = shared_bytes_max();
    return cudaSuccess;
  }
  // Few, so that persistent grids walk; LLMRT_EMULATOR_SMS for other splits.
  const char* sms = std::getenv("LLMRT_EMULATOR_SMS");
  *value = sms ? std::atoi(sms) : 3;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = kMemoryBytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return allocate(data, bytes);
}
cudaError_t cudaFree(void* data) {
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return allocate(data, bytes);
}
cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return enqueue(stream, [=] {
    if (bytes) std::memcpy(to, from, bytes);
  });
}
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  std::memset(data, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  return enqueue(stream, [=] { std::memset(data, value, bytes); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->time = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  *ms = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->capturing = new EmulatedGraph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->capturing;
  stream->capturing = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new EmulatedGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (const auto& work : exec->work) work();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int value) {
  return value <= shared_bytes_max() ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  attributes->numRegs = 0;
  attributes->ptxVersion = emulator::architecture();
  return cudaSuccess;
}
