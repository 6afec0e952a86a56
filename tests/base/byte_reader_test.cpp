#include "base/byte_reader.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>

namespace etrt {
namespace {

constexpr std::array<std::byte, 13> kBytes{std::byte{0xff}, std::byte{0x01}, std::byte{0x02}, std::byte{0x03},
                                           std::byte{0x84}, std::byte{0x00}, std::byte{0x00}, std::byte{0x00},
                                           std::byte{0x80}, std::byte{0x05}, std::byte{0x06}, std::byte{0x07},
                                           std::byte{0x08}};

TEST(ByteReader, ReadsLittleEndianAtAnyAlignment) {
  const ByteReader reader(kBytes);
  EXPECT_EQ(reader.size(), 13U);
  EXPECT_EQ(reader.u32(1), 0x84030201U);
  EXPECT_EQ(reader.u64(1), 0x8000000084030201ULL);
  EXPECT_EQ(reader.u32(9), 0x08070605U);
}

TEST(ByteReader, RefusesWhatPassesTheEnd) {
  const ByteReader reader(kBytes);
  EXPECT_FALSE(reader.u32(10));
  EXPECT_FALSE(reader.u64(6));
  EXPECT_FALSE(reader.slice(14, 0));
  EXPECT_FALSE(reader.slice(0, 14));
  EXPECT_TRUE(reader.slice(13, 0));
}

TEST(ByteReader, OffsetsAndSizesDoNotWrap) {
  const ByteReader reader(kBytes);
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_FALSE(reader.u32(kMost));
  EXPECT_FALSE(reader.u64(kMost - 7));
  EXPECT_FALSE(reader.slice(8, kMost - 4));  // 8 + (2^64 - 5) is 3, modulo 2^64.
  EXPECT_FALSE(reader.slice(kMost, 2));
}

TEST(ByteReader, SlicesPointIntoTheWhole) {
  const auto slice = ByteReader(kBytes).slice(9, 4);
  ASSERT_TRUE(slice);
  EXPECT_EQ(slice->data(), kBytes.data() + 9);
  EXPECT_EQ(slice->size(), 4U);
}

}  // namespace
}  // namespace etrt
