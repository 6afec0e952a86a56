#pragma once

#include <executorch/runtime/core/data_loader.h>

#include <cstddef>
#include <span>

namespace etrt {

/// Serves an ExecuTorch program from memory that outlives it.
///
/// Where that memory is a file mapped for reading, what has been loaded leaves the process's
/// resident memory as soon as it is freed: XNNPACK packs weights into memory of its own and
/// frees what it packed them from, which would otherwise stay beside the packed copy. The
/// bytes stay valid; a later read takes them from the file again.
class BytesLoader final : public executorch::runtime::DataLoader {
 public:
  /// `bytes` must outlive the loader and whatever it loaded.
  explicit BytesLoader(std::span<const std::byte> bytes);

  executorch::runtime::Result<executorch::runtime::FreeableBuffer> load(
      std::size_t offset, std::size_t size, const SegmentInfo& info) const override;
  executorch::runtime::Result<std::size_t> size() const override { return bytes_.size(); }
  executorch::runtime::Error load_into(std::size_t offset, std::size_t size, const SegmentInfo& info,
                                       void* buffer) const override;

 private:
  std::span<const std::byte> bytes_;
  bool mapped_;
};

}  // namespace etrt
