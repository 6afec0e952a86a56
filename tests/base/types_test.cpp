#include "etrt/types.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace etrt {
namespace {

TEST(DType, NamesAreTheInverseOfToString) {
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_string(to_string(dtype)), dtype);
  }
  EXPECT_EQ(to_string(DType::kBFloat16), "bfloat16");
  EXPECT_EQ(size_of(DType::kBFloat16), 2U);
  EXPECT_EQ(size_of(DType::kInt64), 8U);
  EXPECT_EQ(dtype_from_string("complex64"), std::nullopt);
  EXPECT_EQ(dtype_from_string(""), std::nullopt);
}

TEST(Shape, CountsElements) {
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ((Shape{2, 3, 4}).elements(), 24);
  EXPECT_EQ((Shape{2, 0, 4}).elements(), 0);
  EXPECT_EQ((Shape{2, -1}).elements(), std::nullopt);
  EXPECT_FALSE((Shape{2, -1}).is_static());
}

TEST(Shape, AProductThatDoesNotFitIsNoCount) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ((Shape{most, 2}).elements(), std::nullopt);
  EXPECT_EQ((Shape{most, 2, 0}).elements(), 0);
}

TEST(Shape, ComparesExtentsAndRank) {
  EXPECT_EQ((Shape{1, 2}), (Shape{1, 2}));
  EXPECT_NE((Shape{1, 2}), (Shape{1, 2, 1}));
  EXPECT_NE(Shape(), (Shape{1}));
}

TEST(Shape, TakesNoMoreThanItsRank) {
  const std::vector<std::int64_t> nine(9, 1);
  EXPECT_EQ(Shape(std::span<const std::int64_t>(nine)).rank(), Shape::kMaxRank);
}

TEST(Types, PrintForPeople) {
  EXPECT_EQ(to_string(Shape{1, -1, 64}), "[1, ?, 64]");
  EXPECT_EQ(to_string(Shape()), "[]");
  EXPECT_EQ(to_string(DeviceId{}), "host");
  EXPECT_EQ(to_string(DeviceId{DeviceType::kCuda, 1}), "cuda:1");
}

TEST(TensorView, BytesOfItsElements) {
  TensorView view;
  view.dtype = DType::kFloat16;
  view.shape = {2, 8};
  EXPECT_EQ(view.bytes(), 32U);
  view.shape = {2, -1};
  EXPECT_EQ(view.bytes(), 0U);
}

}  // namespace
}  // namespace etrt
