// The calls of NVML that llmrt makes, of one device whose figures are written here. A second device has no power
// sensor.
#include <cstring>

extern "C" {

static int num_open = 0;

struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};

int nvmlInit_v2() {
  ++num_open;
  return 0;
}
int nvmlShutdown() {
  --num_open;
  return 0;
}
int fake_nvml_open() {
  return num_open;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  static int first = 1, second = 2;
  if (std::strcmp(address, "0000:65:00.0") == 0)
    *device = &first;
  else if (std::strcmp(address, "0000:66:00.0") == 0)
    *device = &second;
  else
    return 6;  // not found
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {80ull << 30, 79ull << 30, 1ull << 30};
  return 0;
}
int nvmlDeviceGetUtilizationRates(void*, Utilization* load) {
  *load = {35, 12};
  return 0;
}
int nvmlDeviceGetClockInfo(void*, unsigned type, unsigned* mhz) {
  if (type != 1 && type != 2) return 2;
  *mhz = type == 1 ? 1980 : 2619;
  return 0;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  if (*static_cast<int*>(device) == 2) return 3;  // not supported
  *milliwatts = 310500;
  return 0;
}
int nvmlDeviceGetTemperature(void*, unsigned sensor, unsigned* celsius) {
  if (sensor != 0) return 2;
  *celsius = 52;
  return 0;
}
}
