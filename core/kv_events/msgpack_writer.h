// MessagePack, as much of it as events need. The sizes of arrays and maps come first, their elements follow.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace llmrt {

class MsgpackWriter {
 public:
  void nil() { byte(0xc0); }
  void number(double value) {
    byte(0xcb);
    big_endian(std::bit_cast<uint64_t>(value), 8);
  }
  // In the shortest form.
  void number(uint64_t value) {
    if (value < 0x80)
      byte(static_cast<uint8_t>(value));
    else if (value <= 0xff)
      sized(0xcc, value, 1);
    else if (value <= 0xffff)
      sized(0xcd, value, 2);
    else if (value <= 0xffffffff)
      sized(0xce, value, 4);
    else
      sized(0xcf, value, 8);
  }
  void text(std::string_view value) {
    if (value.size() < 32)
      byte(static_cast<uint8_t>(0xa0 | value.size()));
    else if (value.size() <= 0xff)
      sized(0xd9, value.size(), 1);
    else if (value.size() <= 0xffff)
      sized(0xda, value.size(), 2);
    else
      sized(0xdb, value.size(), 4);
    bytes_.append(value);
  }
  void array(size_t num_elements) { container(0x90, 0xdc, num_elements); }
  void map(size_t num_pairs) { container(0x80, 0xde, num_pairs); }

  const std::string& bytes() const { return bytes_; }

 private:
  void byte(uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void big_endian(uint64_t value, int num_bytes) {
    for (int shift = 8 * (num_bytes - 1); shift >= 0; shift -= 8) byte(static_cast<uint8_t>(value >> shift));
  }
  void sized(uint8_t tag, uint64_t value, int num_bytes) {
    byte(tag);
    big_endian(value, num_bytes);
  }
  void container(uint8_t small, uint8_t tag, size_t size) {
    if (size < 16)
      byte(static_cast<uint8_t>(small | size));
    else if (size <= 0xffff)
      sized(tag, size, 2);
    else
      sized(static_cast<uint8_t>(tag + 1), size, 4);
  }

  std::string bytes_;
};

}  // namespace llmrt
