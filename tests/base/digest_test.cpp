#include "base/digest.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string_view>
#include <vector>

namespace etrt {
namespace {

std::string digest_of(std::string_view text) { return digest(std::as_bytes(std::span(text))); }

// From the xxhsum command: printf '' | xxhsum -H3, printf abc | xxhsum -H3.
TEST(Digest, IsXxh3WithSeedZero) {
  EXPECT_EQ(digest_of(""), "xxh3:2d06800538d394c2");
  EXPECT_EQ(digest_of("abc"), "xxh3:78af5f94892f3950");
}

TEST(Digest, EveryBitCounts) {
  std::vector<std::byte> bytes(300, std::byte{0x5a});
  const std::string before = digest(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(digest(bytes), before) << "bit " << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_EQ(digest(bytes), before);
}

}  // namespace
}  // namespace etrt
