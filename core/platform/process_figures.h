// What the operating system says of this process: memory, processor time, descriptors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace llmrt {

// Absent: the system does not say.
struct ProcessFigures {
  std::optional<double> cpu_seconds;         // of all threads, in user and in system mode
  std::optional<double> start_time_seconds;  // since 1970
  std::optional<uint64_t> resident_bytes, virtual_bytes;
  std::optional<uint64_t> open_fds, max_fds;  // max_fds: the soft limit; absent when there is none
};

// A few reads of /proc. Any thread.
ProcessFigures process_figures();

// The fields that are used of a line of /proc/PID/stat (proc(5)). Pure.
struct ProcessStat {
  uint64_t user_ticks = 0, system_ticks = 0, start_ticks = 0;  // of the kernel's clock; the start since boot
  uint64_t virtual_bytes = 0, resident_pages = 0;
};
std::optional<ProcessStat> parse_process_stat(std::string_view line);

}  // namespace llmrt
