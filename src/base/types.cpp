#include "etrt/types.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/format.h"

namespace etrt {

namespace {

struct DTypeInfo {
  std::string_view name;
  std::size_t bytes;
};

/// In the order of DType.
constexpr std::array<DTypeInfo, 10> kDTypes{{{"float32", 4},
                                             {"float16", 2},
                                             {"bfloat16", 2},
                                             {"float64", 8},
                                             {"int8", 1},
                                             {"uint8", 1},
                                             {"int16", 2},
                                             {"int32", 4},
                                             {"int64", 8},
                                             {"bool", 1}}};

}  // namespace

std::size_t size_of(DType dtype) noexcept { return kDTypes[static_cast<std::size_t>(dtype)].bytes; }

std::string_view to_string(DType dtype) noexcept { return kDTypes[static_cast<std::size_t>(dtype)].name; }

std::optional<DType> dtype_from_string(std::string_view name) noexcept {
  const auto it =
      std::find_if(kDTypes.begin(), kDTypes.end(), [&](const DTypeInfo& d) { return d.name == name; });
  if (it == kDTypes.end()) return std::nullopt;
  return static_cast<DType>(it - kDTypes.begin());
}

Shape::Shape(std::span<const std::int64_t> dims) noexcept
    : rank_(static_cast<std::uint8_t>(std::min(dims.size(), kMaxRank))) {
  std::copy_n(dims.begin(), rank_, dims_.begin());
}

bool Shape::is_static() const noexcept {
  return std::all_of(dims_.begin(), dims_.begin() + rank_, [](std::int64_t d) { return d >= 0; });
}

std::optional<std::int64_t> Shape::elements() const noexcept {
  std::int64_t product = 1;
  bool zero = false;
  bool overflow = false;
  for (const std::int64_t extent : dims()) {
    if (extent < 0) return std::nullopt;
    zero = zero || extent == 0;
    overflow = overflow || __builtin_mul_overflow(product, std::max<std::int64_t>(extent, 1), &product);
  }
  if (zero) return 0;
  if (overflow) return std::nullopt;
  return product;
}

bool operator==(const Shape& a, const Shape& b) noexcept { return std::ranges::equal(a.dims(), b.dims()); }

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i] == -1 ? "?" : std::to_string(shape[i]);
  }
  return text + "]";
}

std::string to_string(DeviceId device) {
  return device.type == DeviceType::kHost ? "host" : formatted("cuda:{}", device.index);
}

std::size_t TensorView::bytes() const noexcept {
  return static_cast<std::size_t>(shape.elements().value_or(0)) * size_of(dtype);
}

}  // namespace etrt
