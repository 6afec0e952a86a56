#include <gtest/gtest.h>

#include <string>

#include "blob/container_text.h"
#include "blob/golden.h"

namespace etrt {
namespace {

using test::bytes_of;
using test::text_of;

/// A blob of one input and one output with an engine.
Blob minimal() {
  Blob blob = test::blob_of_tr01();
  static const std::string kEngine = "engine-bytes";
  blob.engine = bytes_of(kEngine);
  return blob;
}

std::string written(const Blob& blob) {
  const Result<std::vector<std::byte>> bytes = write_blob(blob);
  EXPECT_TRUE(bytes) << bytes.status().message();
  return bytes ? text_of(*bytes) : "";
}

/// The error for a blob that can't be written, which validate() has to give as well.
std::string error_of(const Blob& blob) {
  const Result<std::vector<std::byte>> bytes = write_blob(blob);
  EXPECT_FALSE(bytes);
  EXPECT_EQ(validate(blob).message(), bytes.status().message());
  EXPECT_EQ(bytes.status().code(), Code::kInvalidData);
  return bytes.status().message();
}

TEST(BlobWriter, EscapesAsPython) {
  Blob blob = minimal();
  blob.serialized_metadata =
      "\"\\/\b\f\n\r\t\x01\x1f\x20\x7e\x7f\xc3\xa9\xe2\x80\xa8\xef\xbf\xbf\xf0\x9f\x98\x80" +
      std::string(1, '\0');
  EXPECT_NE(
      written(blob).find(R"("serialized_metadata":"\"\\/\b\f\n\r\t\u0001\u001f ~\u007f\u00e9\u2028\uffff)"
                         R"(\ud83d\ude00\u0000",)"),
      std::string::npos);
}

TEST(BlobWriter, ChoosesTheMagicByOwnership) {
  Blob blob = test::blob_of_tr02();
  const std::string engine = "engine-bytes";
  blob.engine = bytes_of(engine);
  blob.version = BlobVersion::kTR03;
  EXPECT_EQ(written(blob).substr(0, 4), "TR02");
  blob.aliases.clear();
  EXPECT_EQ(written(blob).substr(0, 4), "TR01");

  BlobState state;
  state.id = "s";
  state.input = "x";
  state.output = "y";
  state.update = Update::kSwap;
  state.shape = {2};
  blob.states = {state};
  blob.model_id = "m";
  EXPECT_EQ(written(blob).substr(0, 4), "TR03");
  blob.states[0].ownership = Ownership::kCaller;
  EXPECT_EQ(written(blob).substr(0, 4), "TR01");
}

TEST(BlobWriter, KeepsEverything) {
  Blob blob = test::blob_of_tr03();
  const std::string engine = "engine-bytes";
  blob.engine = bytes_of(engine);
  const std::string bytes = written(blob);
  const Result<Blob> read = parse_blob(bytes_of(bytes));
  ASSERT_TRUE(read) << read.status().message();
  EXPECT_EQ(written(*read), bytes);
}

TEST(BlobWriter, KeepsOurKeysInOlderVersions) {
  Blob blob = test::blob_of_tr01();
  blob.engine_kind = "cpu";
  blob.engine_entry = "decode";
  blob.engine_key = "abc";
  const std::string bytes = written(blob);
  EXPECT_NE(
      bytes.find(
          R"("target_platform":"linux_x86_64","engine":"cpu","engine_entry":"decode","engine_key":"abc"})"),
      std::string::npos);
  const Result<Blob> read = parse_blob(bytes_of(bytes));
  ASSERT_TRUE(read) << read.status().message();
  EXPECT_EQ(read->version, BlobVersion::kTR01);
  EXPECT_EQ(read->engine_key, "abc");
  EXPECT_EQ(read->engine_digest, "");
}

TEST(BlobWriter, AlignsTheEngineWhateverTheMetadata) {
  Blob blob = minimal();
  for (std::size_t i = 0; i < 33; ++i) {
    blob.target_platform = std::string(i, 'p');
    const std::string bytes = written(blob);
    const std::size_t offset = bytes.size() - blob.engine.size();
    EXPECT_EQ(offset % 16, 0U);
    EXPECT_LT(offset - bytes.find('}', bytes.rfind("engine_digest")), 17U);
    EXPECT_TRUE(parse_blob(bytes_of(bytes)));
  }
}

TEST(BlobWriter, RefusesAWrongDigest) {
  Blob blob = minimal();
  blob.engine_digest = "xxh3:0000000000000000";
  EXPECT_EQ(error_of(blob),
            "engine_digest: xxh3:0000000000000000 is declared, but the 12 bytes of the engine have "
            "xxh3:2b4069c87f9d3f99: the file is damaged");
}

TEST(BlobWriter, RefusesEngineBytesAndKey) {
  Blob blob = minimal();
  blob.engine_key = "abc";
  EXPECT_EQ(error_of(blob), "engine_size: 12, but engine_key \"abc\" says that the bytes are elsewhere");
}

TEST(BlobWriter, RefusesTextThatIsNoUtf8) {
  for (const char* text : {"\x80", "a\xc3", "\xc0\xaf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xff"}) {
    Blob blob = minimal();
    blob.target_platform = text;
    EXPECT_EQ(error_of(blob), "target_platform: is no valid UTF-8");
    blob = minimal();
    blob.bindings[1].name = text;
    EXPECT_EQ(error_of(blob), "io_bindings[1].name: is no valid UTF-8");
  }
  Blob blob = minimal();
  blob.target_platform =
      "\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf";
  const Result<Blob> read = parse_blob(bytes_of(written(blob)));
  ASSERT_TRUE(read) << read.status().message();
  EXPECT_EQ(read->target_platform, blob.target_platform);
}

TEST(BlobWriter, RefusesWhatNoFileCouldSay) {
  const std::string engine = "engine-bytes";
  Blob blob = test::blob_of_tr03();
  blob.engine = bytes_of(engine);
  blob.states[0].sequence_dim = -2;
  EXPECT_EQ(error_of(blob), "states[0].sequence_dim: -2 is no dim of [1, 2, 8, 4]");
}

}  // namespace
}  // namespace etrt
