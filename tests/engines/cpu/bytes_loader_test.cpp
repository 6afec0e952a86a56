// What BytesLoader serves stays readable; of an unchanged file mapping, what is freed leaves memory.

#include "engines/cpu/bytes_loader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace etrt {
namespace {

namespace et = executorch::runtime;

constexpr std::size_t kSize = 1 << 20;

const et::DataLoader::SegmentInfo kSegment(et::DataLoader::SegmentInfo::Type::Program);

std::vector<std::byte> pattern() {
  std::vector<std::byte> bytes(kSize);
  for (std::size_t i = 0; i < kSize; ++i) bytes[i] = static_cast<std::byte>(i % 251 + 1);
  return bytes;
}

/// The pattern in a file, mapped private.
class Mapping {
 public:
  explicit Mapping(int protection) {
    std::string path = testing::TempDir() + "etrt_bytes_loader_XXXXXX";
    const int file = mkstemp(path.data());
    EXPECT_GE(file, 0);
    const std::vector<std::byte> bytes = pattern();
    EXPECT_EQ(write(file, bytes.data(), kSize), static_cast<ssize_t>(kSize));
    data_ = mmap(nullptr, kSize, protection, MAP_PRIVATE, file, 0);
    EXPECT_NE(data_, MAP_FAILED);
    close(file);
    unlink(path.c_str());
  }
  ~Mapping() { munmap(data_, kSize); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data(), kSize}; }

  /// KiB of it that this process has in memory, as /proc/self/smaps says.
  [[nodiscard]] std::size_t resident_kb() const {
    std::ostringstream start;
    start << std::hex << reinterpret_cast<std::uintptr_t>(data_) << '-';
    std::ifstream maps("/proc/self/smaps");
    bool found = false;
    std::size_t kb = 0;
    for (std::string line; std::getline(maps, line);) {
      if (line.starts_with(start.str())) found = true;
      if (found && std::sscanf(line.c_str(), "Rss: %zu kB", &kb) == 1) return kb;
    }
    ADD_FAILURE() << "the mapping isn't listed";
    return 0;
  }

 private:
  void* data_;
};

void expect_pattern(std::span<const std::byte> bytes) {
  const std::vector<std::byte> expected = pattern();
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end()));
}

TEST(BytesLoader, ServesPartsAndRefusesWhatLiesOutside) {
  const std::vector<std::byte> bytes = pattern();
  const BytesLoader loader(bytes);
  EXPECT_EQ(*loader.size(), kSize);
  const auto part = loader.load(100, 50, kSegment);
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(part->data(), bytes.data() + 100) << "no copy";
  std::vector<std::byte> into(50);
  ASSERT_EQ(loader.load_into(100, 50, kSegment, into.data()), et::Error::Ok);
  EXPECT_TRUE(std::equal(into.begin(), into.end(), bytes.begin() + 100));

  EXPECT_EQ(loader.load(kSize, 0, kSegment).error(), et::Error::Ok);
  EXPECT_EQ(loader.load(kSize + 1, 0, kSegment).error(), et::Error::InvalidArgument);
  EXPECT_EQ(loader.load(kSize - 1, 2, kSegment).error(), et::Error::InvalidArgument);
  EXPECT_EQ(loader.load(1, SIZE_MAX, kSegment).error(), et::Error::InvalidArgument);
  EXPECT_EQ(loader.load_into(kSize - 1, 2, kSegment, into.data()), et::Error::InvalidArgument);
}

TEST(BytesLoader, WhatIsFreedOfAFileMappingLeavesMemoryAndCanBeReadAgain) {
  const Mapping mapping(PROT_READ);
  expect_pattern(mapping.bytes());
  ASSERT_GT(mapping.resident_kb(), 0U);
  const BytesLoader loader(mapping.bytes());
  EXPECT_EQ(mapping.resident_kb(), 0U) << "the check of the digest had read it";
  {
    const auto all = loader.load(0, kSize, kSegment);
    ASSERT_TRUE(all.ok());
    expect_pattern({static_cast<const std::byte*>(all->data()), kSize});
    EXPECT_GT(mapping.resident_kb(), 0U);
  }
  EXPECT_EQ(mapping.resident_kb(), 0U);
  expect_pattern(mapping.bytes());
}

// Dropping such pages would bring back the file's bytes, or zeros.
TEST(BytesLoader, OtherMemoryKeepsItsBytes) {
  const std::vector<std::byte> heap = pattern();
  { ASSERT_TRUE(BytesLoader(heap).load(0, kSize, kSegment).ok()); }
  expect_pattern(heap);

  const Mapping changed(PROT_READ | PROT_WRITE);
  changed.data()[kSize / 2] = std::byte{0};
  ASSERT_EQ(mprotect(changed.data(), kSize, PROT_READ), 0);
  { ASSERT_TRUE(BytesLoader(changed.bytes()).load(0, kSize, kSegment).ok()); }
  EXPECT_EQ(changed.bytes()[kSize / 2], std::byte{0});
}

}  // namespace
}  // namespace etrt
