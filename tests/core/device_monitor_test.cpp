// Figures of devices, from a library and a folder that stand in for the drivers'.
#include "core/platform/device_monitor.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "core/platform/dynamic_library.h"

namespace llmrt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAddress = "0000:65:00.0";

// A folder as /sys/bus/pci/devices.
class Sysfs {
 public:
  Sysfs() : root_(fs::temp_directory_path() / ("llmrt-sysfs-" + std::to_string(::getpid()))) {
    fs::create_directories(root_ / kAddress);
  }
  ~Sysfs() { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / kAddress / path).parent_path());
    std::ofstream(root_ / kAddress / path) << text;
  }
  MonitorSources sources() const { return {"libllmrt-no-such-nvml.so", root_}; }

 private:
  fs::path root_;
};

TEST_CASE("NVML tells of the device at an address") {
  const MonitorSources sources{LLMRT_FAKE_NVML, "/nonexistent"};
  auto library = DynamicLibrary::open({LLMRT_FAKE_NVML});
  REQUIRE(library.ok());
  const auto num_open = reinterpret_cast<int (*)()>((*library)->symbol("fake_nvml_open"));
  {
    const auto monitor = monitor_device(kAddress, sources);
    REQUIRE(monitor);
    CHECK(num_open() == 1);
    const DeviceFigures figures = monitor->read();
    CHECK(figures.memory_used_bytes == uint64_t{1} << 30);
    CHECK(figures.memory_total_bytes == uint64_t{80} << 30);
    CHECK(figures.busy_ratio.value() == Catch::Approx(0.35));
    CHECK(figures.core_clock_hz == 1980e6);
    CHECK(figures.memory_clock_hz == 2619e6);
    CHECK(figures.power_watts.value() == Catch::Approx(310.5));
    CHECK(figures.temperature_celsius == 52);
    const auto other = monitor_device("0000:66:00.0", sources);
    REQUIRE(other);
    CHECK(!other->read().power_watts);
    CHECK(other->read().busy_ratio);
  }
  CHECK(monitor_device("0000:67:00.0", sources) == nullptr);
  CHECK(num_open() == 0);
}

TEST_CASE("sysfs tells of an AMD device") {
  Sysfs sysfs;
  sysfs.write("mem_info_vram_used", "1048576\n");
  sysfs.write("mem_info_vram_total", "17163091968\n");
  sysfs.write("gpu_busy_percent", "99\n");
  sysfs.write("hwmon/hwmon3/freq1_input", "2482000000\n");
  sysfs.write("hwmon/hwmon3/freq2_input", "1249000000\n");
  sysfs.write("hwmon/hwmon3/power1_average", "203000000\n");
  sysfs.write("hwmon/hwmon3/temp1_input", "61000\n");
  const auto monitor = monitor_device(kAddress, sysfs.sources());
  REQUIRE(monitor);
  const DeviceFigures figures = monitor->read();
  CHECK(figures.memory_used_bytes == 1048576);
  CHECK(figures.memory_total_bytes == 17163091968);
  CHECK(figures.busy_ratio.value() == Catch::Approx(0.99));
  CHECK(figures.core_clock_hz == 2482e6);
  CHECK(figures.memory_clock_hz == 1249e6);
  CHECK(figures.power_watts.value() == Catch::Approx(203));
  CHECK(figures.temperature_celsius.value() == Catch::Approx(61));
}

TEST_CASE("sysfs tells of an Intel device what it has, and nothing is made up") {
  Sysfs sysfs;
  sysfs.write("drm/card1/gt_act_freq_mhz", "2050\n");
  sysfs.write("drm/card1-DP-1/gt_act_freq_mhz", "1\n");
  sysfs.write("hwmon/hwmon2/power1_average", "not a number\n");
  sysfs.write("hwmon/hwmon2/power1_input", "-5\n");
  const auto monitor = monitor_device(kAddress, sysfs.sources());
  REQUIRE(monitor);
  const DeviceFigures figures = monitor->read();
  CHECK(figures.core_clock_hz == 2050e6);
  CHECK(!figures.power_watts);
  CHECK(!figures.memory_used_bytes);
  CHECK(!figures.busy_ratio);
}

TEST_CASE("of a device that nobody tells of there is no monitor") {
  Sysfs sysfs;
  CHECK(monitor_device(kAddress, sysfs.sources()) == nullptr);
  CHECK(monitor_device("", sysfs.sources()) == nullptr);
  CHECK(monitor_device("../../../../etc", sysfs.sources()) == nullptr);
}

TEST_CASE("addresses are as sysfs spells them") {
  CHECK(pci_address_text(0, 0x65, 0, 0) == kAddress);
  CHECK(pci_address_text(0x10000, 1, 0x1f, 7) == "10000:01:1f.7");
  for (const char* good : {"0000:65:00.0", "10000:e1:1f.7", "0000:AB:00.1"}) CHECK(is_pci_address(good));
  for (const char* bad : {"", "65:00.0", "0000:65:00", "0000:65:00.0/", "0000/65:00.0", "0000:6g:00.0", "000:65:00.0"})
    CHECK(!is_pci_address(bad));
}

}  // namespace
}  // namespace llmrt
