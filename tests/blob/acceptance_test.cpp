// What a reader must accept, although our writer doesn't write it so.

#include <gtest/gtest.h>

#include "blob/container_text.h"
#include "blob/golden.h"

namespace etrt {
namespace {

using test::bytes_of;
using test::container;
using test::edited;
using test::kTR03Metadata;
using test::text_of;

/// The blob, which the test needs.
Blob accepted(const std::string& bytes) {
  const Result<Blob> blob = parse_blob(bytes_of(bytes));
  EXPECT_TRUE(blob) << blob.status().message();
  return blob ? *blob : Blob();
}

TEST(BlobAccepts, BindingsWithNameAndDirectionAlone) {
  const std::string bytes = container("TR01", R"({"io_bindings":[{"name":"input_0","is_input":true},)"
                                              R"({"name":"output_0","is_input":false}],)"
                                              R"("hardware_compatible":true,"device_id":2})");
  const Blob blob = accepted(bytes);
  ASSERT_EQ(blob.bindings.size(), 2U);
  EXPECT_EQ(blob.bindings[0], (BlobBinding{"input_0", std::nullopt, std::nullopt, true}));
  EXPECT_EQ(blob.bindings[1], (BlobBinding{"output_0", std::nullopt, std::nullopt, false}));
  EXPECT_TRUE(blob.aliases.empty());
  EXPECT_TRUE(blob.hardware_compatible);
  EXPECT_EQ(blob.device_id, 2);
  EXPECT_EQ(blob.engine_kind, "tensorrt");
  EXPECT_EQ(text_of(blob.engine), "engine-bytes");
}

TEST(BlobAccepts, NothingButBindings) {
  const std::string bytes = container("TR01", R"({"io_bindings":[]})");
  const Blob blob = accepted(bytes);
  EXPECT_FALSE(blob.hardware_compatible);
  EXPECT_EQ(blob.device_id, 0);
  EXPECT_EQ(blob.serialized_metadata, "");
  EXPECT_EQ(blob.target_platform, "");
}

TEST(BlobAccepts, AnyOrderOfKeysAndWhiteSpace) {
  const std::string bytes = container(
      "TR02",
      "\n{ \"target_platform\" : \"p\",\t\"device_id\":-3 ,\r\n \"aliased_io\" : [ { \"kind\" : \"user\" , "
      "\"input\" : \"i\" , \"output\" : \"o\" } ] , \"io_bindings\" : [ { \"is_input\" : true , \"name\" : "
      "\"i\" } , { \"is_input\" : false , \"name\" : \"o\" } ] } \n");
  const Blob blob = accepted(bytes);
  EXPECT_EQ(blob.target_platform, "p");
  EXPECT_EQ(blob.device_id, -3);
  ASSERT_EQ(blob.aliases.size(), 1U);
  EXPECT_EQ(blob.aliases[0], (BlobAlias{"o", "i", AliasKind::kUser, Ownership::kCaller, ""}));
}

TEST(BlobAccepts, TensorsNamedLikeKeys) {
  const std::string bytes =
      container("TR01", R"({"io_bindings":[{"name":"aliased_io","is_input":true},)"
                        R"({"name":"device_id","is_input":true},)"
                        R"({"name":"\"hardware_compatible\":true","is_input":false}]})");
  const Blob blob = accepted(bytes);
  EXPECT_EQ(blob.bindings[1].name, "device_id");
  EXPECT_EQ(blob.bindings[2].name, "\"hardware_compatible\":true");
  EXPECT_TRUE(blob.aliases.empty());
  EXPECT_FALSE(blob.hardware_compatible);
}

TEST(BlobAccepts, UnknownKeysAndIgnoresThem) {
  const std::string bytes =
      container("TR01", R"({"extra":{"device_id":7,"hardware_compatible":true},"io_bindings":[)"
                        R"({"name":"x","is_input":true,"is_shape":[1,{"device_id":8}]}],"more":1.5e3})");
  const Blob blob = accepted(bytes);
  EXPECT_EQ(blob.device_id, 0);
  EXPECT_FALSE(blob.hardware_compatible);
}

TEST(BlobAccepts, Escapes) {
  const std::string bytes =
      container("TR01", R"({"io_bindings":[{"name":"\"\\\/\b\f\n\r\t","is_input":true},)"
                        R"({"name":"\u006b\u00E9\u20ac\ud83d\ude00","is_input":true},{"name":"k)"
                        "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x81"
                        R"(","is_input":false}],"\u0064evice_id":4})");
  const Blob blob = accepted(bytes);
  EXPECT_EQ(blob.bindings[0].name, "\"\\/\b\f\n\r\t");
  EXPECT_EQ(blob.bindings[1].name, "k\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(blob.bindings[2].name, "k\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x81");
  EXPECT_EQ(blob.device_id, 4);
}

TEST(BlobAccepts, AliasWithoutKind) {
  const std::string bytes =
      container("TR02", R"({"io_bindings":[{"name":"i","is_input":true},{"name":"o","is_input":false}],)"
                        R"("aliased_io":[{"output":"o","input":"i"}]})");
  EXPECT_EQ(accepted(bytes).aliases[0].kind, AliasKind::kKvCacheUpdate);
}

TEST(BlobAccepts, AliasesUnderTheFirstMagic) {
  const std::string bytes =
      container("TR01", R"({"io_bindings":[{"name":"i","is_input":true},{"name":"o","is_input":false}],)"
                        R"("aliased_io":[{"output":"o","input":"i"}]})");
  const Blob blob = accepted(bytes);
  EXPECT_EQ(blob.version, BlobVersion::kTR01);
  const Result<std::vector<std::byte>> written = write_blob(blob);
  ASSERT_TRUE(written) << written.status().message();
  EXPECT_EQ(text_of(*written).substr(0, 4), "TR02");
}

TEST(BlobAccepts, AliasesOfWhatIsNotKnown) {
  const std::string bytes = container(
      "TR02",
      R"({"io_bindings":[{"name":"i","dtype":"float16","shape":[1,-1],"is_input":true},{"name":"o","is_input":false}],)"
      R"("aliased_io":[{"output":"o","input":"i"}]})");
  const Blob blob = accepted(bytes);
  EXPECT_EQ(blob.bindings[0].dtype, DType::kFloat16);
  EXPECT_EQ(blob.bindings[0].shape, (Shape{1, -1}));
}

TEST(BlobAccepts, ScalarsAndShapesWithoutType) {
  const std::string bytes =
      container("TR01", R"({"io_bindings":[{"name":"a","dtype":"bool","shape":[],"is_input":true},)"
                        R"({"name":"b","dtype":"","shape":[2,0],"is_input":true},)"
                        R"({"name":"c","dtype":"","shape":[],"is_input":true}]})");
  const Blob blob = accepted(bytes);
  EXPECT_EQ(blob.bindings[0].shape, Shape{});
  EXPECT_EQ(blob.bindings[1].shape, (Shape{2, 0}));
  EXPECT_EQ(blob.bindings[2].shape, std::nullopt);
}

TEST(BlobAccepts, BytesAfterTheEngine) {
  for (const std::string* golden : {&test::kTR01, &test::kTR02, &test::kTR03}) {
    const std::string bytes = *golden + "\x01trailing";
    EXPECT_EQ(text_of(accepted(bytes).engine), text_of(accepted(*golden).engine));
  }
}

TEST(BlobAccepts, AnyReservedBytes) {
  std::string bytes = test::kTR01;
  test::put(bytes, 24, std::uint64_t{0x0123456789abcdef});
  EXPECT_EQ(accepted(bytes).device_id, 1);
}

TEST(BlobAccepts, RoomBeforeMetadataAndEngine) {
  const std::string metadata = R"({"io_bindings":[]})";
  std::string bytes(128, '\xff');
  bytes.replace(0, 4, "TR01");
  bytes.replace(41, metadata.size(), metadata);
  bytes.replace(112, 3, "eng");
  test::put(bytes, 4, std::uint32_t{41});
  test::put(bytes, 8, static_cast<std::uint32_t>(metadata.size()));
  test::put(bytes, 12, std::uint32_t{112});
  test::put(bytes, 16, std::uint64_t{3});
  EXPECT_EQ(text_of(accepted(bytes).engine), "eng");
}

TEST(BlobAccepts, AnEngineElsewhere) {
  const std::string bytes =
      container("TR03", edited(kTR03Metadata, R"("engine_key":"")", R"("engine_key":"abc")"), "");
  const Blob blob = accepted(bytes);
  EXPECT_EQ(blob.engine_key, "abc");
  EXPECT_TRUE(blob.engine.empty());
  EXPECT_TRUE(check_engine_digest(bytes_of("engine-bytes"), blob.engine_digest));
  EXPECT_EQ(check_engine_digest(bytes_of("engine-bytez"), blob.engine_digest).code(), Code::kInvalidData);
}

TEST(BlobAccepts, OurKeysWithoutSessions) {
  const std::string bytes = container(
      "TR01",
      R"({"io_bindings":[{"name":"x","is_input":true}],"engine":"cpu","engine_entry":"decode","engine_key":"abc"})",
      "");
  const Blob blob = accepted(bytes);
  EXPECT_EQ(blob.version, BlobVersion::kTR01);
  EXPECT_EQ(blob.engine_kind, "cpu");
  EXPECT_EQ(blob.engine_entry, "decode");
  EXPECT_EQ(blob.engine_key, "abc");
}

TEST(BlobAccepts, StatesOfTheCaller) {
  const std::string bytes = container(
      "TR02",
      R"({"io_bindings":[{"name":"p","dtype":"int32","shape":[],"is_input":true},)"
      R"({"name":"i","is_input":true},{"name":"o","is_input":false}],)"
      R"("aliased_io":[{"output":"o","input":"i"}],"states":[{"id":"s","input":"i","output":"o",)"
      R"("update":"in_place","ownership":"caller","dtype":"float32","shape":[4,2],"sequence_dim":0}],)"
      R"("position":{"input":"p","count":{"value":2}}})");
  const Blob blob = accepted(bytes);
  EXPECT_EQ(blob.states[0].ownership, Ownership::kCaller);
  EXPECT_EQ(blob.states[0].initial_key, "");
  EXPECT_EQ(blob.states[0].initial_length, 0);
  EXPECT_EQ(blob.position, (BlobPosition{"p", {"", 0, 2}}));
}

TEST(BlobAccepts, AMethodThatOnlyReadsAState) {
  const std::string metadata = edited(
      edited(
          edited(
              kTR03Metadata,
              R"({"output":"k_out","input":"k","kind":"kv_cache_update","ownership":"session","state":"layers.0.k"},)",
              ""),
          R"("output":"k_out","update")", R"("output":"","update")"),
      R"(,"position":{"input":"position","count":{"input":"tokens","dim":1}})", "");
  const std::string bytes = container("TR03", metadata);
  const Blob blob = accepted(bytes);
  EXPECT_EQ(blob.states[0].output, "");
  EXPECT_EQ(blob.states[0].update, Update::kInPlace);
  EXPECT_FALSE(blob.position);
}

TEST(BlobAccepts, APositionWithoutSequences) {
  const std::string bytes =
      container("TR03", edited(edited(kTR03Metadata, R"("sequence_dim":2)", R"("sequence_dim":null)"),
                               R"("initial_length":3)", R"("initial_length":300)"));
  const Blob blob = accepted(bytes);
  EXPECT_EQ(blob.states[0].sequence_dim, -1);
  EXPECT_EQ(blob.states[0].initial_length, 300);
  EXPECT_TRUE(blob.position);
}

TEST(BlobAccepts, WhatIsJustInRange) {
  std::string metadata = edited(kTR03Metadata, R"("initial_length":3)", R"("initial_length":8)");
  metadata = edited(metadata, R"("device_id":0)", R"("device_id":2147483647)");
  metadata = edited(metadata, R"("dtype":"float32","shape":[1,10])",
                    R"("dtype":"int8","shape":[1,1,1,1,1,1,1,9223372036854775807])");
  const Blob blob = accepted(container("TR03", metadata));
  EXPECT_EQ(blob.states[0].initial_length, 8);
  EXPECT_EQ(blob.device_id, 2147483647);
  EXPECT_EQ(blob.bindings[5].shape->elements(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(accepted(container("TR01", R"({"io_bindings":[],"device_id":-2147483648})")).device_id,
            -2147483647 - 1);
}

TEST(BlobAccepts, NestingUpToTheLimit) {
  const std::string open(31, '[');
  const std::string close(31, ']');
  accepted(container("TR01", R"({"io_bindings":[],"deep":)" + open + close + "}"));
}

}  // namespace
}  // namespace etrt
