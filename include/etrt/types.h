#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace etrt {

/// Element types that a binding or state can have.
enum class DType : std::uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat64,
  kInt8,
  kUInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
};

/// Bytes of one element.
std::size_t size_of(DType dtype) noexcept;
/// "float32", "bfloat16", ... as PyTorch spells it.
std::string_view to_string(DType dtype) noexcept;
/// The inverse of to_string; nullopt for a name that is none of ours.
std::optional<DType> dtype_from_string(std::string_view name) noexcept;

/// Extents of a tensor, outermost first, in elements. Up to kMaxRank of them, no
/// allocation. -1 stands for an extent that is known only at run time.
class Shape {
 public:
  static constexpr std::size_t kMaxRank = 8;  ///< As TensorRT's Dims::MAX_DIMS.

  Shape() noexcept = default;
  Shape(std::initializer_list<std::int64_t> dims) noexcept
      : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}
  /// Takes the first kMaxRank extents; check the rank of untrusted input first.
  explicit Shape(std::span<const std::int64_t> dims) noexcept;

  std::size_t rank() const noexcept { return rank_; }
  std::int64_t operator[](std::size_t i) const noexcept { return dims_[i]; }
  std::int64_t& operator[](std::size_t i) noexcept { return dims_[i]; }
  std::span<const std::int64_t> dims() const noexcept { return {dims_.data(), rank_}; }

  /// No extent is -1.
  bool is_static() const noexcept;
  /// Product of the extents (1 for rank 0); nullopt if an extent is negative or
  /// the product doesn't fit in 63 bits.
  std::optional<std::int64_t> elements() const noexcept;

  friend bool operator==(const Shape& a, const Shape& b) noexcept;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  std::uint8_t rank_ = 0;
};

/// "[1, 3, 512, 64]"; an extent of -1 is written "?".
std::string to_string(const Shape& shape);

enum class DeviceType : std::uint8_t { kHost, kCuda };

struct DeviceId {
  DeviceType type = DeviceType::kHost;
  int index = 0;  ///< CUDA ordinal; 0 for the host.
  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};

/// "host", "cuda:0".
std::string to_string(DeviceId device);

/// Memory that somebody else owns, seen as a dense row-major tensor.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  Shape shape = {};
  DeviceId device = {};

  /// 0 if the shape isn't static.
  std::size_t bytes() const noexcept;
};

}  // namespace etrt
