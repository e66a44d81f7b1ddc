// A text that grows for a long time and may get large: in pieces, so that it is never copied to grow, costs little more
// memory than it has bytes, and can be sent and freed piece by piece.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace llmrt::server {

inline size_t size_of(const std::vector<std::string>& pieces) {
  size_t num_bytes = 0;
  for (const std::string& piece : pieces) num_bytes += piece.size();
  return num_bytes;
}

class TextPieces {
 public:
  void append(std::string_view text) {
    if (pieces_.empty() || pieces_.back().size() + text.size() > kPieceBytes) {
      if (!pieces_.empty()) pieces_.back().shrink_to_fit();
      pieces_.emplace_back();
    }
    pieces_.back().append(text);
    num_bytes_ += text.size();
  }
  void append(TextPieces&& other) {
    for (std::string& piece : other.pieces_) {
      if (piece.size() < kPieceBytes / 2) {
        append(piece);
      } else {
        num_bytes_ += piece.size();
        pieces_.push_back(std::move(piece));
      }
    }
    other = {};
  }
  bool empty() const { return num_bytes_ == 0; }
  size_t size() const { return num_bytes_; }
  // What it takes: the last piece may have room left.
  size_t held_bytes() const {
    return num_bytes_ + (pieces_.empty() ? 0 : pieces_.back().capacity() - pieces_.back().size());
  }
  std::vector<std::string> take() {
    num_bytes_ = 0;
    return std::exchange(pieces_, {});
  }

 private:
  static constexpr size_t kPieceBytes = 64 << 10;

  std::vector<std::string> pieces_;
  size_t num_bytes_ = 0;
};

}  // namespace llmrt::server
