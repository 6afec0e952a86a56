// Headers that lie, files that were cut or damaged.

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>

#include "blob/container_text.h"
#include "blob/golden.h"

namespace etrt {
namespace {

using test::bytes_of;
using test::error_of;
using test::put;

/// The golden TR01 (metadata [32, 326), engine [336, 348)) with one field of its header changed.
template <typename T>
std::string with_field(std::size_t offset, T value) {
  std::string bytes = test::kTR01;
  put(bytes, offset, value);
  return bytes;
}

constexpr std::size_t kMetadataOffset = 4;
constexpr std::size_t kMetadataSize = 8;
constexpr std::size_t kEngineOffset = 12;
constexpr std::size_t kEngineSize = 16;

TEST(BlobHeader, IsWhole) {
  EXPECT_EQ(error_of(""), "blob: 0 bytes, but the header alone has 32");
  EXPECT_EQ(error_of(test::kTR01.substr(0, 31)), "blob: 31 bytes, but the header alone has 32");
  EXPECT_EQ(error_of(test::kTR01.substr(0, 32)), "metadata_size: 294 bytes at 32 pass the blob's end at 32");
}

TEST(BlobHeader, HasAKnownMagic) {
  EXPECT_EQ(error_of("TR04" + test::kTR01.substr(4)), "magic: \"TR04\" is none of TR01, TR02, TR03");
  EXPECT_EQ(error_of("tr01" + test::kTR01.substr(4)), "magic: \"tr01\" is none of TR01, TR02, TR03");
  EXPECT_EQ(error_of(std::string("\x7f\0\x01\xff", 4) + test::kTR01.substr(4)),
            "magic: \"\\x7f\\x00\\x01\\xff\" is none of TR01, TR02, TR03");
}

TEST(BlobHeader, PutsMetadataBehindItself) {
  EXPECT_EQ(error_of(with_field(kMetadataOffset, std::uint32_t{31})),
            "metadata_offset: 31 is inside the header, which ends at 32");
  EXPECT_EQ(error_of(with_field(kMetadataOffset, std::uint32_t{0})),
            "metadata_offset: 0 is inside the header, which ends at 32");
}

TEST(BlobHeader, PutsMetadataInsideTheBlob) {
  EXPECT_EQ(error_of(with_field(kMetadataSize, std::uint32_t{317})),
            "metadata_size: 317 bytes at 32 pass the blob's end at 348");
  EXPECT_EQ(error_of(with_field(kMetadataSize, std::numeric_limits<std::uint32_t>::max())),
            "metadata_size: 4294967295 bytes at 32 pass the blob's end at 348");
  EXPECT_EQ(error_of(with_field(kMetadataOffset, std::numeric_limits<std::uint32_t>::max())),
            "metadata_size: 294 bytes at 4294967295 pass the blob's end at 348");
}

TEST(BlobHeader, AlignsTheEngine) {
  EXPECT_EQ(error_of(with_field(kEngineOffset, std::uint32_t{337})),
            "engine_offset: 337 is no multiple of 16");
}

TEST(BlobHeader, PutsTheEngineBehindTheMetadata) {
  EXPECT_EQ(error_of(with_field(kEngineOffset, std::uint32_t{320})),
            "engine_offset: 320 is inside the metadata, which ends at 326");
  EXPECT_EQ(error_of(with_field(kEngineOffset, std::uint32_t{0})),
            "engine_offset: 0 is inside the metadata, which ends at 326");
}

TEST(BlobHeader, PutsTheEngineInsideTheBlob) {
  EXPECT_EQ(error_of(with_field(kEngineSize, std::uint64_t{13})),
            "engine_size: 13 bytes at 336 pass the blob's end at 348");
  EXPECT_EQ(error_of(with_field(kEngineOffset, std::uint32_t{4294967280})),
            "engine_size: 12 bytes at 4294967280 pass the blob's end at 348");
}

TEST(BlobHeader, DoesNotWrap) {
  // 336 + (2^64 - 336) is 0, and 336 + (2^64 - 1) is 335: inside the blob, if one adds carelessly.
  EXPECT_EQ(error_of(with_field(kEngineSize, std::uint64_t{0} - 336)),
            "engine_size: 18446744073709551280 bytes at 336 pass the blob's end at 348");
  EXPECT_EQ(error_of(with_field(kEngineSize, std::numeric_limits<std::uint64_t>::max())),
            "engine_size: 18446744073709551615 bytes at 336 pass the blob's end at 348");
}

/// A copy of exactly the given size on the heap, so that a sanitizer sees a read past it.
class Copy {
 public:
  Copy(const std::string& bytes, std::size_t size) : data_(std::make_unique<std::byte[]>(size)), size_(size) {
    std::ranges::copy(bytes_of(bytes).first(size), data_.get());
  }
  std::span<std::byte> bytes() { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t size_;
};

TEST(DamagedBlob, CutAnywhereIsRefused) {
  const std::string elsewhere = test::container(
      "TR03", test::edited(test::kTR03Metadata, R"("engine_key":"")", R"("engine_key":"abc")"), "");
  for (const std::string* golden :
       {&test::kUpstreamTR01, &test::kTR01, &test::kUpstreamTR02, &test::kTR02, &test::kTR03, &elsewhere}) {
    ASSERT_TRUE(parse_blob(bytes_of(*golden)));
    for (std::size_t size = 0; size < golden->size(); ++size) {
      Copy cut(*golden, size);
      EXPECT_FALSE(parse_blob(cut.bytes())) << "cut to " << size << " of " << golden->size() << " bytes";
    }
    const std::string longer = *golden + std::string(40, 'x');
    for (std::size_t size = golden->size(); size <= longer.size(); ++size) {
      Copy cut(longer, size);
      EXPECT_TRUE(parse_blob(cut.bytes())) << (size - golden->size()) << " bytes after the engine";
    }
  }
}

TEST(DamagedBlob, AnyFlippedBitOfTheEngineIsRefused) {
  std::string engine;
  for (int i = 0; i < 1500; ++i) engine += static_cast<char>(i * i + i / 256);
  Blob blob = test::blob_of_tr02();
  blob.engine = bytes_of(engine);
  const Result<std::vector<std::byte>> written = write_blob(blob);
  ASSERT_TRUE(written) << written.status().message();
  std::vector<std::byte> bytes = *written;
  const std::size_t engine_offset = bytes.size() - engine.size();
  for (std::size_t bit = 0; bit < engine.size() * 8; ++bit) {
    std::byte& byte = bytes[engine_offset + bit / 8];
    byte ^= std::byte{1} << (bit % 8);
    const Result<Blob> read = parse_blob(bytes);
    ASSERT_FALSE(read) << "bit " << bit;
    ASSERT_EQ(read.status().message().substr(0, 15), "engine_digest: ") << "bit " << bit;
    byte ^= std::byte{1} << (bit % 8);
  }
  EXPECT_TRUE(parse_blob(bytes));
}

TEST(DamagedBlob, AnyFlippedBitIsRefusedOrHarmless) {
  for (const std::string* golden :
       {&test::kUpstreamTR01, &test::kTR01, &test::kUpstreamTR02, &test::kTR02, &test::kTR03}) {
    std::size_t refused = 0;
    for (std::size_t bit = 0; bit < golden->size() * 8; ++bit) {
      Copy copy(*golden, golden->size());
      copy.bytes()[bit / 8] ^= std::byte{1} << (bit % 8);
      const Result<Blob> read = parse_blob(copy.bytes());
      if (!read) {
        EXPECT_EQ(read.status().code(), Code::kInvalidData);
        EXPECT_NE(read.status().message().find(": "), std::string::npos) << read.status().message();
        ++refused;
        continue;
      }
      const Result<std::vector<std::byte>> written = write_blob(*read);
      ASSERT_TRUE(written) << "bit " << bit << ": " << written.status().message();
      EXPECT_TRUE(parse_blob(*written)) << "bit " << bit;
    }
    EXPECT_GT(refused, golden->size() * 8 / 3);
  }
}

}  // namespace
}  // namespace etrt
