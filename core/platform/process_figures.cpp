#include "core/platform/process_figures.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace llmrt {
namespace {

std::string read_proc(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The field of this number in proc(5), which counts from 1; those up to 2, the name in parentheses, are gone.
std::optional<uint64_t> stat_field(std::string_view behind_name, size_t number) {
  size_t begin = 0;
  for (size_t i = 3; i < number; ++i) {
    begin = behind_name.find(' ', begin);
    if (begin == std::string_view::npos) return std::nullopt;
    ++begin;
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(behind_name.data() + begin, behind_name.data() + behind_name.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// Seconds since 1970 when the machine started.
std::optional<double> boot_time() {
  const std::string text = read_proc("/proc/stat");
  const size_t at = text.find("\nbtime ");
  if (at == std::string::npos) return std::nullopt;
  uint64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data() + at + 7, text.data() + text.size(), seconds);
  if (error != std::errc()) return std::nullopt;
  return static_cast<double>(seconds);
}

std::optional<uint64_t> count_descriptors() {
  DIR* folder = ::opendir("/proc/self/fd");
  if (!folder) return std::nullopt;
  uint64_t count = 0;
  while (const dirent* entry = ::readdir(folder)) count += entry->d_name[0] != '.';
  ::closedir(folder);
  return count - 1;  // the folder's own
}

}  // namespace

std::optional<ProcessStat> parse_process_stat(std::string_view line) {
  const size_t name_end = line.rfind(") ");  // the name may hold anything, ')' and spaces too
  if (name_end == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(name_end + 2);
  const auto user = stat_field(rest, 14), system = stat_field(rest, 15), start = stat_field(rest, 22);
  const auto virtual_bytes = stat_field(rest, 23), resident = stat_field(rest, 24);
  if (!user || !system || !start || !virtual_bytes || !resident) return std::nullopt;
  return ProcessStat{*user, *system, *start, *virtual_bytes, *resident};
}

ProcessFigures process_figures() {
  ProcessFigures figures;
  const long ticks = ::sysconf(_SC_CLK_TCK), page = ::sysconf(_SC_PAGESIZE);
  if (const auto stat = parse_process_stat(read_proc("/proc/self/stat")); stat && ticks > 0 && page > 0) {
    const auto per_second = static_cast<double>(ticks);
    figures.cpu_seconds = static_cast<double>(stat->user_ticks + stat->system_ticks) / per_second;
    figures.virtual_bytes = stat->virtual_bytes;
    figures.resident_bytes = stat->resident_pages * static_cast<uint64_t>(page);
    // Read once: the boot time moves when the machine's clock is set, and this process did not start anew.
    static const std::optional<double> booted = boot_time();
    if (booted) figures.start_time_seconds = *booted + static_cast<double>(stat->start_ticks) / per_second;
  }
  figures.open_fds = count_descriptors();
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) figures.max_fds = limit.rlim_cur;
  return figures;
}

}  // namespace llmrt
