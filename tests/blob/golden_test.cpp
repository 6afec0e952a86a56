#include "blob/golden.h"

#include <gtest/gtest.h>

#include <ostream>

#include "blob/container_text.h"

namespace etrt {

namespace {

/// Everything that two blobs say, but for `version` and the digest.
void expect_same(const Blob& a, const Blob& b) {
  EXPECT_TRUE(a.bindings == b.bindings);
  EXPECT_TRUE(a.aliases == b.aliases);
  EXPECT_EQ(a.hardware_compatible, b.hardware_compatible);
  EXPECT_EQ(a.device_id, b.device_id);
  EXPECT_EQ(a.serialized_metadata, b.serialized_metadata);
  EXPECT_EQ(a.target_platform, b.target_platform);
  EXPECT_EQ(a.engine_kind, b.engine_kind);
  EXPECT_EQ(a.engine_entry, b.engine_entry);
  EXPECT_EQ(a.engine_key, b.engine_key);
  EXPECT_EQ(a.model_id, b.model_id);
  EXPECT_TRUE(a.states == b.states);
  EXPECT_TRUE(a.position == b.position);
}

using test::bytes_of;
using test::text_of;

struct Golden {
  const char* name;
  const std::string& bytes;
  Blob says;
  std::string engine;
  std::string digest;
  const std::string& rewritten;
};

void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.name; }

class GoldenBytes : public testing::TestWithParam<Golden> {};

TEST_P(GoldenBytes, AreRead) {
  const Golden& golden = GetParam();
  const Result<Blob> blob = parse_blob(bytes_of(golden.bytes));
  ASSERT_TRUE(blob) << blob.status().message();
  EXPECT_EQ(blob->version, golden.says.version);
  expect_same(*blob, golden.says);
  EXPECT_EQ(blob->engine_digest, golden.digest);
  EXPECT_EQ(text_of(blob->engine), golden.engine);
}

TEST_P(GoldenBytes, AreWritten) {
  const Golden& golden = GetParam();
  Blob blob = golden.says;
  blob.engine = bytes_of(golden.engine);
  const Result<std::vector<std::byte>> written = write_blob(blob);
  ASSERT_TRUE(written) << written.status().message();
  EXPECT_EQ(text_of(*written), golden.rewritten);
}

constexpr char kNumbers[] = "\0\1\2\3\4\5\6\7";

INSTANTIATE_TEST_SUITE_P(
    Blob, GoldenBytes,
    testing::Values(
        Golden{"UpstreamTR01", test::kUpstreamTR01, test::blob_of_tr01(), "engine-bytes", "", test::kTR01},
        Golden{"TR01", test::kTR01, test::blob_of_tr01(), "engine-bytes", "xxh3:2b4069c87f9d3f99",
               test::kTR01},
        Golden{"UpstreamTR02", test::kUpstreamTR02, test::blob_of_tr02(), {kNumbers, 8}, "", test::kTR02},
        Golden{
            "TR02", test::kTR02, test::blob_of_tr02(), {kNumbers, 8}, "xxh3:3a1c2d7c85af88f8", test::kTR02},
        Golden{"TR03", test::kTR03, test::blob_of_tr03(), "engine-bytes", "xxh3:2b4069c87f9d3f99",
               test::kTR03}),
    [](const auto& golden) { return golden.param.name; });

}  // namespace
}  // namespace etrt
