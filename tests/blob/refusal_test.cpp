// Every defect of the metadata is refused, and the message says which field and what is wrong.

#include <gtest/gtest.h>

#include <ostream>

#include "blob/container_text.h"
#include "blob/golden.h"

namespace etrt {
namespace {

using test::bytes_of;
using test::container;
using test::edited;
using test::error_of;

struct Defect {
  const char* from;
  const char* to;
  const char* message;
};

void PrintTo(const Defect& defect, std::ostream* out) { *out << defect.message; }

std::string edited_golden(const Defect& defect) {
  const std::string metadata = edited(test::kTR03Metadata, defect.from, defect.to);
  EXPECT_NE(metadata, "") << defect.from << " has to be there once";
  return metadata;
}

/// One edit of the golden TR03.
class DefectOfTR03 : public testing::TestWithParam<Defect> {};

TEST_P(DefectOfTR03, IsRefused) {
  const std::string bytes = container("TR03", edited_golden(GetParam()));
  const Result<Blob> blob = parse_blob(bytes_of(bytes));
  ASSERT_FALSE(blob);
  EXPECT_EQ(blob.status().code(), Code::kInvalidData);
  EXPECT_EQ(blob.status().message(), GetParam().message);
}

constexpr char kKBinding[] = R"({"name":"k","dtype":"float32","shape":[1,2,8,4],"is_input":true})";
constexpr char kConvBinding[] = R"({"name":"conv","dtype":"float32","shape":[1,3,4],"is_input":true})";
constexpr char kPositionBinding[] = R"({"name":"position","dtype":"int64","shape":[1],"is_input":true})";
constexpr char kKAlias[] =
    R"({"output":"k_out","input":"k","kind":"kv_cache_update","ownership":"session","state":"layers.0.k"})";
constexpr char kCallerAlias[] =
    R"({"output":"cache_out","input":"cache","kind":"user","ownership":"caller","state":""})";
constexpr char kCount[] = R"("count":{"input":"tokens","dim":1})";

INSTANTIATE_TEST_SUITE_P(
    Bindings, DefectOfTR03,
    testing::Values(
        Defect{"\"io_bindings\"", "\"iobindings\"", "io_bindings: is missing"},
        Defect{kKBinding, "7", "io_bindings[2]: is an integer, expected an object"},
        Defect{R"("name":"k",)", "", "io_bindings[2].name: is missing"},
        Defect{R"("name":"k",)", R"("name":null,)", "io_bindings[2].name: is null, expected a string"},
        Defect{R"("name":"k",)", R"("name":"",)", "io_bindings[2].name: is blank"},
        Defect{R"("name":"k",)", R"("name":" \t",)", "io_bindings[2].name: is blank"},
        Defect{R"("name":"k",)", R"("name":"k\u0000",)", "io_bindings[2].name: has a NUL in it"},
        Defect{R"("name":"conv")", R"("name":"k")",
               "io_bindings[3].name: \"k\" is the name of io_bindings[2] already"},
        Defect{R"("name":"conv_out")", R"("name":"k")",
               "io_bindings[7].name: \"k\" is the name of io_bindings[2] already"},
        Defect{kKBinding, R"({"name":"k","dtype":"half","shape":[1,2,8,4],"is_input":true})",
               "io_bindings[2].dtype: \"half\" is none of float32, float16, bfloat16, float64, int8, uint8, "
               "int16, "
               "int32, int64, bool"},
        Defect{kKBinding, R"({"name":"k","dtype":1,"shape":[1,2,8,4],"is_input":true})",
               "io_bindings[2].dtype: is an integer, expected a string"},
        Defect{kKBinding, R"({"name":"k","dtype":"float32","shape":"1","is_input":true})",
               "io_bindings[2].shape: is a string, expected an array"},
        Defect{kKBinding, R"({"name":"k","dtype":"float32","shape":[1,2,8,4,1,1,1,1,1],"is_input":true})",
               "io_bindings[2].shape: has rank 9, at most 8 is possible"},
        Defect{kKBinding, R"({"name":"k","dtype":"float32","shape":[1,2,8.0,4],"is_input":true})",
               "io_bindings[2].shape[2]: is a number, expected an integer"},
        Defect{kKBinding, R"({"name":"k","dtype":"float32","shape":[1,2,true,4],"is_input":true})",
               "io_bindings[2].shape[2]: is a boolean, expected an integer"},
        Defect{kKBinding, R"({"name":"k","dtype":"float32","shape":[1,-2],"is_input":true})",
               "io_bindings[2].shape[1]: -2 is negative; -1 says that it isn't known"},
        Defect{kKBinding, R"({"name":"k","dtype":"float32","shape":[9223372036854775808],"is_input":true})",
               "io_bindings[2].shape[0]: 9223372036854775808 is outside int64"},
        Defect{kKBinding, R"({"name":"k","dtype":"float32","shape":[4294967296,4294967296],"is_input":true})",
               "io_bindings[2].shape: [4294967296, 4294967296] is too large"},
        Defect{kKBinding, R"({"name":"k","dtype":"float32","shape":[1,2,8,4]})",
               "io_bindings[2].is_input: is missing"},
        Defect{kKBinding, R"({"name":"k","dtype":"float32","shape":[1,2,8,4],"is_input":1})",
               "io_bindings[2].is_input: is an integer, expected a boolean"}));

INSTANTIATE_TEST_SUITE_P(
    Aliases, DefectOfTR03,
    testing::Values(
        Defect{"\"aliased_io\"", "\"aliases\"", "aliased_io: is missing"},
        Defect{kCallerAlias, "[]", "aliased_io[1]: is an array, expected an object"},
        Defect{R"("output":"cache_out",)", "", "aliased_io[1].output: is missing"},
        Defect{R"("input":"cache",)", "", "aliased_io[1].input: is missing"},
        Defect{R"("kind":"user",)", "", "aliased_io[1].kind: is missing"},
        Defect{R"(,"ownership":"caller")", "", "aliased_io[1].ownership: is missing"},
        Defect{R"(,"state":"")", "", "aliased_io[1].state: is missing"},
        Defect{R"("kind":"user")", R"("kind":"User")",
               "aliased_io[1].kind: \"User\" is none of kv_cache_update, user"},
        Defect{R"("kind":"user")", R"("kind":"")",
               "aliased_io[1].kind: \"\" is none of kv_cache_update, user"},
        Defect{R"("ownership":"caller")", R"("ownership":"delegate")",
               "aliased_io[1].ownership: \"delegate\" is none of caller, session"},
        Defect{R"("output":"cache_out")", R"("output":"cache_o")",
               "aliased_io[1].output: \"cache_o\" is none of io_bindings"},
        Defect{R"("output":"cache_out")", R"("output":"")", "aliased_io[1].output: is blank"},
        Defect{R"("output":"cache_out")", R"("output":"tokens")",
               "aliased_io[1].output: \"tokens\" is an input, expected an output"},
        Defect{R"("input":"cache")", R"("input":"cached")",
               "aliased_io[1].input: \"cached\" is none of io_bindings"},
        Defect{R"("input":"cache")", R"("input":" ")", "aliased_io[1].input: is blank"},
        Defect{R"("input":"cache")", R"("input":"logits")",
               "aliased_io[1].input: \"logits\" is an output, expected an input"},
        Defect{R"("output":"cache_out")", R"("output":"k_out")",
               "aliased_io[1].output: \"k_out\" is in aliased_io[0] already"},
        Defect{R"("input":"cache")", R"("input":"k")",
               "aliased_io[1].input: \"k\" is in aliased_io[0] already"},
        Defect{R"({"name":"cache_out","dtype":"float16")", R"({"name":"cache_out","dtype":"bfloat16")",
               "aliased_io[1]: output \"cache_out\" is bfloat16, but input \"cache\" is float16"},
        Defect{R"({"name":"cache_out","dtype":"float16","shape":[1,4])",
               R"({"name":"cache_out","dtype":"float16","shape":[1,-1])",
               "aliased_io[1]: output \"cache_out\" is [1, ?], but input \"cache\" is [1, 4]"},
        Defect{R"("ownership":"caller","state":"")", R"("ownership":"caller","state":"layers.0.conv")",
               "aliased_io[1].state: \"layers.0.conv\" is given, but the caller owns the memory"},
        Defect{R"("ownership":"caller","state":"")", R"("ownership":"session","state":"")",
               "aliased_io[1].state: is blank"},
        Defect{R"("ownership":"caller","state":"")", R"("ownership":"session","state":"layers.0.v")",
               "aliased_io[1].state: \"layers.0.v\" is none of the states"},
        Defect{
            R"("ownership":"caller","state":"")", R"("ownership":"session","state":"layers.0.conv")",
            "aliased_io[1].state: joins output \"cache_out\" and input \"cache\", but states[1] has output "
            "\"conv_out\" and input \"conv\""}));

INSTANTIATE_TEST_SUITE_P(
    Scalars, DefectOfTR03,
    testing::Values(
        Defect{R"("hardware_compatible":false)", R"("hardware_compatible":"no")",
               "hardware_compatible: is a string, expected a boolean"},
        Defect{R"("device_id":0)", R"("device_id":"0")", "device_id: is a string, expected an integer"},
        Defect{R"("device_id":0)", R"("device_id":0.0)", "device_id: is a number, expected an integer"},
        Defect{R"("device_id":0)", R"("device_id":2147483648)", "device_id: 2147483648 is outside int32"},
        Defect{R"("device_id":0)", R"("device_id":-2147483649)", "device_id: -2147483649 is outside int32"},
        Defect{R"("device_id":0)", R"("device_id":18446744073709551616)",
               "device_id: is a number, expected an integer"},
        Defect{R"("serialized_metadata":"")", R"("serialized_metadata":{})",
               "serialized_metadata: is an object, expected a string"},
        Defect{R"("target_platform":"")", R"("target_platform":null)",
               "target_platform: is null, expected a string"},
        Defect{R"("engine":"cpu",)", "", "engine: is missing"},
        Defect{R"("engine":"cpu")", R"("engine":"")", "engine: is blank"},
        Defect{R"("engine_entry":"decode")", R"("engine_entry":0)",
               "engine_entry: is an integer, expected a string"},
        Defect{R"("engine_digest":"xxh3:2b4069c87f9d3f99")", R"("engine_digest":"sha256:2b4069c87f9d3f9")",
               "engine_digest: \"sha256:2b4069c87f9d3f9\" is not xxh3: and 16 lowercase hex digits"},
        Defect{R"("engine_digest":"xxh3:2b4069c87f9d3f99")", R"("engine_digest":"xxh3:2B4069C87F9D3F99")",
               "engine_digest: \"xxh3:2B4069C87F9D3F99\" is not xxh3: and 16 lowercase hex digits"},
        Defect{R"("engine_digest":"xxh3:2b4069c87f9d3f99")", R"("engine_digest":"xxh3:2b4069c87f9d3f98")",
               "engine_digest: xxh3:2b4069c87f9d3f98 is declared, but the 12 bytes of the engine have "
               "xxh3:2b4069c87f9d3f99: the file is damaged"},
        Defect{R"("engine_key":"")", R"("engine_key":"abc")",
               "engine_size: 12, but engine_key \"abc\" says that the bytes are elsewhere"},
        Defect{R"("model_id":"toy",)", "", "model_id: is blank"},
        Defect{R"("model_id":"toy")", R"("model_id":"\n")", "model_id: is blank"},
        Defect{R"("model_id":"toy")", R"("model_id":["toy"])", "model_id: is an array, expected a string"}));

INSTANTIATE_TEST_SUITE_P(
    States, DefectOfTR03,
    testing::Values(
        Defect{"\"states\"", "\"state_list\"", "states: is missing"},
        Defect{R"("states":[)", R"("states":[null,)", "states[0]: is null, expected an object"},
        Defect{R"("id":"layers.0.conv",)", "", "states[1].id: is missing"},
        Defect{R"("id":"layers.0.conv")", R"("id":"")", "states[1].id: is blank"},
        Defect{R"("id":"layers.0.conv")", R"("id":"layers.0.k")",
               "states[1].id: \"layers.0.k\" is the id of states[0] already"},
        Defect{R"("input":"conv",)", "", "states[1].input: is missing"},
        Defect{R"("input":"conv")", R"("input":"")", "states[1].input: is blank"},
        Defect{R"("input":"conv")", R"("input":"con")", "states[1].input: \"con\" is none of io_bindings"},
        Defect{R"("input":"conv")", R"("input":"conv_out")",
               "states[1].input: \"conv_out\" is an output, expected an input"},
        Defect{R"("input":"conv")", R"("input":"k")", "states[1].input: \"k\" belongs to states[0] already"},
        Defect{R"("output":"conv_out",)", "", "states[1].output: is missing"},
        Defect{R"("output":"conv_out")", R"("output":"tokens")",
               "states[1].output: \"tokens\" is an input, expected an output"},
        Defect{R"("output":"conv_out")", R"("output":"none")",
               "states[1].output: \"none\" is none of io_bindings"},
        Defect{R"("output":"conv_out")", R"("output":"k_out")",
               "states[1].output: \"k_out\" belongs to states[0] already"},
        Defect{R"("update":"swap")", R"("update":"copy")",
               "states[1].update: \"copy\" is none of in_place, swap"},
        Defect{R"("update":"swap")", R"("update":"in_place")",
               "states[1].update: \"in_place\", but no alias joins output \"conv_out\" and input \"conv\""},
        Defect{R"("update":"in_place")", R"("update":"swap")",
               "states[0].update: \"swap\", but aliased_io[0] joins output \"k_out\" and input \"k\""},
        Defect{R"("update":"swap","ownership":"session")", R"("update":"swap","ownership":"both")",
               "states[1].ownership: \"both\" is none of caller, session"},
        Defect{R"("update":"in_place","ownership":"session")", R"("update":"in_place","ownership":"caller")",
               "states[0].ownership: \"caller\" differs from \"session\" of aliased_io[0]"},
        Defect{kKAlias, R"({"output":"k_out","input":"k","kind":"user","ownership":"caller","state":""})",
               "states[0].ownership: \"session\" differs from \"caller\" of aliased_io[0]"},
        Defect{kKAlias,
               R"({"output":"conv_out","input":"conv","kind":"user","ownership":"caller","state":""})",
               "states[0].update: \"in_place\", but no alias joins output \"k_out\" and input \"k\""},
        Defect{R"("output":"conv_out","update":"swap","ownership":"session","dtype":"float32")",
               R"("output":"conv_out","update":"swap","ownership":"session","dtype":"")",
               "states[1].dtype: \"\" is none of float32, float16, bfloat16, float64, int8, uint8, int16, "
               "int32, "
               "int64, bool"},
        Defect{R"("ownership":"session","dtype":"float32","shape":[1,3,4])",
               R"("ownership":"session","dtype":"float16","shape":[1,3,4])",
               "states[1].dtype: float16 differs from float32 of binding \"conv\""},
        Defect{R"("ownership":"session","dtype":"float32","shape":[1,3,4])",
               R"("ownership":"session","dtype":"float32","shape":[1,4,3])",
               "states[1].shape: [1, 4, 3] differs from [1, 3, 4] of binding \"conv\""},
        Defect{R"({"name":"conv_out","dtype":"float32","shape":[1,3,4])",
               R"({"name":"conv_out","dtype":"float32","shape":[1,3,-1])",
               "states[1].shape: [1, 3, 4] differs from [1, 3, ?] of binding \"conv_out\""},
        Defect{R"({"name":"conv_out","dtype":"float32")", R"({"name":"conv_out","dtype":"float16")",
               "states[1].dtype: float32 differs from float16 of binding \"conv_out\""},
        Defect{R"("ownership":"session","dtype":"float32","shape":[1,3,4])",
               R"("ownership":"session","dtype":"float32","shape":[1,3,-1])",
               "states[1].shape: [1, 3, ?] has to be static and not empty"},
        Defect{R"("ownership":"session","dtype":"float32","shape":[1,3,4])",
               R"("ownership":"session","dtype":"float32","shape":[1,3,0])",
               "states[1].shape: [1, 3, 0] has to be static and not empty"},
        Defect{R"("ownership":"session","dtype":"float32","shape":[1,3,4])",
               R"("ownership":"session","dtype":"float32","shape":[1,1,1,1,1,1,1,1,1])",
               "states[1].shape: has rank 9, at most 8 is possible"},
        Defect{R"("ownership":"session","dtype":"float32","shape":[1,3,4])",
               R"("ownership":"session","dtype":"float32","shape":[2305843009213693952])",
               "states[1].shape: [2305843009213693952] of float32 is too large"},
        Defect{R"("ownership":"session","dtype":"float32","shape":[1,3,4])",
               R"("ownership":"session","dtype":"float32")", "states[1].shape: is missing"},
        Defect{R"("sequence_dim":2,)", "", "states[0].sequence_dim: is missing"},
        Defect{R"("sequence_dim":2)", R"("sequence_dim":4)",
               "states[0].sequence_dim: 4 is no dim of [1, 2, 8, 4]"},
        Defect{R"("sequence_dim":2)", R"("sequence_dim":-1)",
               "states[0].sequence_dim: -1 is negative; null says that there is none"},
        Defect{R"("sequence_dim":2)", R"("sequence_dim":4294967298)",
               "states[0].sequence_dim: 4294967298 is outside int32"},
        Defect{R"("sequence_dim":2)", R"("sequence_dim":"2")",
               "states[0].sequence_dim: is a string, expected an integer"},
        Defect{R"("initial_key":"initial.k")", R"("initial_key":null)",
               "states[0].initial_key: is null, expected a string"},
        Defect{R"("initial_length":3)", R"("initial_length":9)",
               "states[0].initial_length: 9 passes the capacity of 8 positions"},
        Defect{R"("initial_length":3)", R"("initial_length":-1)", "states[0].initial_length: -1 is negative"},
        Defect{R"("initial_length":0)", R"("initial_length":-1)",
               "states[1].initial_length: -1 is negative"}));

INSTANTIATE_TEST_SUITE_P(
    Position, DefectOfTR03,
    testing::Values(
        Defect{R"("position":{)", R"("where":{)", "position: is missing, but states[0] has a sequence_dim"},
        Defect{R"("position":{"input":"position","count":{"input":"tokens","dim":1}})", R"("position":null)",
               "position: is null, expected an object"},
        Defect{R"("position":{"input":"position",)", R"("position":{)", "position.input: is missing"},
        Defect{R"("position":{"input":"position")", R"("position":{"input":"pos")",
               "position.input: \"pos\" is none of io_bindings"},
        Defect{R"("position":{"input":"position")", R"("position":{"input":"logits")",
               "position.input: \"logits\" is an output, expected an input"},
        Defect{R"("position":{"input":"position")", R"("position":{"input":"conv")",
               "position.input: \"conv\" is states[1], expected an input of the method"},
        Defect{R"("position":{"input":"position")", R"("position":{"input":"cache")",
               "position.input: \"cache\" is float16, expected int32 or int64"},
        Defect{kPositionBinding, R"({"name":"position","is_input":true})",
               "position.input: \"position\" is of unknown type, expected int32 or int64"},
        Defect{R"("position":{"input":"position")", R"("position":{"input":"tokens")",
               "position.input: \"tokens\" is [1, ?], expected a scalar, one position for each batch row, or "
               "consecutive indices"},
        Defect{R"(,"count":{"input":"tokens","dim":1})", "", "position.count: is missing"},
        Defect{kCount, R"("count":1)", "position.count: is an integer, expected an object"},
        Defect{kCount, R"("count":{"dim":1})",
               "position.count: has none of input and value, expected one of them"},
        Defect{kCount, R"("count":{"input":"tokens","dim":1,"value":1})",
               "position.count: has both of input and value, expected one of them"},
        Defect{kCount, R"("count":{"input":"tokens"})", "position.count.dim: is missing"},
        Defect{kCount, R"("count":{"input":"","dim":1})", "position.count.input: is blank"},
        Defect{kCount, R"("count":{"input":"ids","dim":1})",
               "position.count.input: \"ids\" is none of io_bindings"},
        Defect{kCount, R"("count":{"input":"k_out","dim":1})",
               "position.count.input: \"k_out\" is an output, expected an input"},
        Defect{kCount, R"("count":{"input":"k","dim":1})",
               "position.count.input: \"k\" is states[0], expected an input of the method"},
        Defect{kCount, R"("count":{"input":"tokens","dim":2})",
               "position.count.dim: 2 is no dim of [1, ?] of \"tokens\""},
        Defect{kCount, R"("count":{"input":"tokens","dim":-1})",
               "position.count.dim: -1 is no dim of [1, ?] of \"tokens\""},
        Defect{kCount, R"("count":{"value":0})", "position.count.value: 0 is less than 1"},
        Defect{kCount, R"("count":{"value":"1"})",
               "position.count.value: is a string, expected an integer"}));

TEST(BlobRefuses, AStateThatIsOnlyReadAndAliased) {
  const std::string metadata =
      edited(test::kTR03Metadata, R"("output":"k_out","update")", R"("output":"","update")");
  EXPECT_EQ(error_of(container("TR03", metadata)),
            "aliased_io[0].state: joins output \"k_out\" and input \"k\", but states[0] has output \"\" and "
            "input \"k\"");
  EXPECT_EQ(
      error_of(container(
          "TR03", edited(metadata, kKAlias,
                         R"({"output":"k_out","input":"k","kind":"user","ownership":"caller","state":""})"))),
      "states[0].update: the method only reads it, but aliased_io[0] joins output \"k_out\" and input \"k\"");
}

TEST(BlobRefuses, TR03WithoutSessions) {
  EXPECT_EQ(error_of(container("TR03", R"({"io_bindings":[],"aliased_io":[],"engine":"cpu","states":[]})")),
            "states: none is owned by the session, which magic TR03 says");
}

TEST(BlobRefuses, SessionsUnderOlderMagics) {
  EXPECT_EQ(error_of(container("TR01", test::kTR03Metadata)),
            "aliased_io[0].ownership: \"session\" needs magic TR03, the blob has TR01");
  EXPECT_EQ(error_of(container("TR02", test::kTR03Metadata)),
            "aliased_io[0].ownership: \"session\" needs magic TR03, the blob has TR02");
  const std::string swapped =
      R"({"io_bindings":[{"name":"i","is_input":true},{"name":"o","is_input":false}],"model_id":"m","states":[)"
      R"({"id":"s","input":"i","output":"o","update":"swap","ownership":"session","dtype":"bool","shape":[1],)"
      R"("sequence_dim":null}]})";
  EXPECT_EQ(error_of(container("TR01", swapped)),
            "states[0].ownership: \"session\" needs magic TR03, the blob has TR01");
}

TEST(BlobRefuses, TR02WithoutAliases) {
  EXPECT_EQ(error_of(container("TR02", R"({"io_bindings":[]})")), "aliased_io: is missing");
  EXPECT_EQ(error_of(container("TR02", R"({"io_bindings":[],"aliased_io":[]})")),
            "aliased_io: is empty, but magic TR02 says that there are aliases");
  EXPECT_EQ(error_of(container("TR02", R"({"io_bindings":[],"aliased_io":{}})")),
            "aliased_io: is an object, expected an array");
}

TEST(BlobRefuses, BindingsThatAreNoArray) {
  EXPECT_EQ(error_of(container("TR01", R"({"io_bindings":{"name":"x","is_input":true}})")),
            "io_bindings: is an object, expected an array");
}

TEST(BlobRefuses, ABlobWithoutEngine) {
  EXPECT_EQ(error_of(container("TR01", R"({"io_bindings":[]})", "")),
            "engine_size: 0, and no engine_key says where the engine is");
}

TEST(BlobRefuses, KeysThatAppearTwice) {
  EXPECT_EQ(error_of(container("TR01", R"({"io_bindings":[],"device_id":0,"device_id":1})")),
            "metadata: key \"device_id\" appears twice in one object");
  EXPECT_EQ(error_of(container("TR01", R"({"io_bindings":[{"name":"x","is_input":true,"\u006eame":"y"}]})")),
            "metadata: key \"name\" appears twice in one object");
  EXPECT_EQ(error_of(container("TR01",
                               R"({"io_bindings":[],"extra":[{"a":1},{"a":1,"b":{"a":2}},{"a":1,"a":1}]})")),
            "metadata: key \"a\" appears twice in one object");
}

TEST(BlobRefuses, WhatIsNoJson) {
  const auto error = [](const std::string& metadata) { return error_of(container("TR01", metadata)); };
  EXPECT_EQ(error(""), "metadata: no valid JSON at byte 1");
  EXPECT_EQ(error("[]"), "metadata: is an array, expected an object");
  EXPECT_EQ(error("null"), "metadata: is null, expected an object");
  EXPECT_EQ(error(R"({"io_bindings":[]} x)"), "metadata: no valid JSON at byte 20");
  EXPECT_EQ(error(R"({"io_bindings":[],})"), "metadata: no valid JSON at byte 19");
  EXPECT_EQ(error(R"({"io_bindings":[])"), "metadata: no valid JSON at byte 18");
  EXPECT_EQ(error(R"({'io_bindings':[]})"), "metadata: no valid JSON at byte 2");
  EXPECT_EQ(error(R"({"io_bindings":[],"a":NaN})"), "metadata: no valid JSON at byte 23");
  EXPECT_EQ(error(R"({"io_bindings":[],"a":1e999})"), "metadata: no valid JSON at byte 27");
  EXPECT_EQ(error(R"({"io_bindings":[],/* */"a":1})"), "metadata: no valid JSON at byte 19");
  EXPECT_EQ(error(R"({"io_bindings":[],"a":"\ud83d"})"), "metadata: no valid JSON at byte 30");
  EXPECT_EQ(error(std::string(R"({"io_bindings":[]})") + '\0'), "metadata: no valid JSON at byte 19: a NUL");
  EXPECT_EQ(error(std::string("\xef\xbb\xbf") + R"({"io_bindings":[]})"),
            "metadata: no valid JSON at byte 1: a byte order mark");
  EXPECT_EQ(error("{\"io_bindings\":[],\"a\":\"\xff\"}"), "metadata: no valid JSON at byte 24");
  EXPECT_EQ(error("{\"io_bindings\":[],\"a\":\"\xed\xa0\x80\"}"), "metadata: no valid JSON at byte 25");
  EXPECT_EQ(error("{\"io_bindings\":[],\"a\":\"\n\"}"), "metadata: no valid JSON at byte 24");
}

TEST(BlobRefuses, NestingBeyondTheLimit) {
  const auto nested = [](std::size_t levels) {
    return R"({"io_bindings":[],"deep":)" + std::string(levels, '[') + std::string(levels, ']') + "}";
  };
  EXPECT_EQ(error_of(container("TR01", nested(31))), "");
  EXPECT_EQ(error_of(container("TR01", nested(32))), "metadata: nests deeper than 32 levels");
  EXPECT_EQ(error_of(container("TR01", nested(10'000'000))), "metadata: nests deeper than 32 levels");
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += R"({"a":)";
  EXPECT_EQ(error_of(container("TR01", objects)), "metadata: nests deeper than 32 levels");
}

}  // namespace
}  // namespace etrt
