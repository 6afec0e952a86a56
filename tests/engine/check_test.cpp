#include "engine/check.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace etrt {
namespace {

EngineBinding engine_binding(std::string name, bool is_input, Shape shape, DType dtype = DType::kFloat16) {
  EngineBinding b;
  b.name = std::move(name);
  b.dtype = dtype;
  b.shape = b.min_shape = b.max_shape = shape;
  b.is_input = is_input;
  return b;
}

/// A decoder step on one cache: x [1, 1..8], k in and k_out, logits.
class CheckBindings : public testing::Test {
 protected:
  CheckBindings() {
    entry.name = "0";
    entry.bindings = {engine_binding("x", true, {1, -1}, DType::kInt32),
                      engine_binding("k", true, {1, 2, 16, 4}), engine_binding("k_out", false, {1, 2, 16, 4}),
                      engine_binding("logits", false, {1, 10}, DType::kFloat32)};
    entry.bindings[0].min_shape = {1, 1};
    entry.bindings[0].max_shape = {1, 8};
    blob.bindings = {{"x", DType::kInt32, Shape{1, -1}, true},
                     {"k", DType::kFloat16, Shape{1, 2, 16, 4}, true},
                     {"k_out", DType::kFloat16, Shape{1, 2, 16, 4}, false},
                     {"logits", DType::kFloat32, Shape{1, 10}, false}};
    blob.aliases = {{"k_out", "k", AliasKind::kUser, Ownership::kSession, "layers.0.k"}};
    BlobState state;
    state.id = "layers.0.k";
    state.input = "k";
    state.output = "k_out";
    state.dtype = DType::kFloat16;
    state.shape = {1, 2, 16, 4};
    state.sequence_dim = 2;
    blob.states = {state};
  }

  /// An engine that names its aliases, and this one.
  void declare() {
    entry.declares_aliases = true;
    entry.bindings[2].declared_alias = 1;
  }

  void expect_refused(Code code, const std::vector<std::string>& texts) const {
    const Status status = check_bindings(blob, entry).status();
    EXPECT_EQ(status.code(), code) << status.message();
    for (const std::string& text : texts) {
      EXPECT_NE(status.message().find(text), std::string::npos)
          << "no \"" << text << "\" in: " << status.message();
    }
  }

  Blob blob;
  EngineEntry entry;
};

TEST_F(CheckBindings, MatchesByNameInTheProgramsOrder) {
  std::swap(blob.bindings[0], blob.bindings[1]);
  const auto checked = check_bindings(blob, entry);
  ASSERT_TRUE(checked.ok()) << checked.status().message();
  EXPECT_EQ(checked->entry_index, (std::vector<std::size_t>{1, 0, 2, 3}));
  EXPECT_EQ(checked->aliases, blob.aliases);
}

TEST_F(CheckBindings, MatchesNamelessEnginesByPlace) {
  for (EngineBinding& b : entry.bindings) b.name.clear();
  std::swap(blob.bindings[1], blob.bindings[2]);  // x, k_out, k, logits: places count among inputs, outputs.
  const auto checked = check_bindings(blob, entry);
  ASSERT_TRUE(checked.ok()) << checked.status().message();
  EXPECT_EQ(checked->entry_index, (std::vector<std::size_t>{0, 2, 1, 3}));

  blob.bindings.pop_back();
  expect_refused(Code::kNotFound, {"1 outputs", "has 2"});
}

TEST_F(CheckBindings, ABindingOfOnlyOneOfThemIsNamed) {
  blob.bindings[3].name = "scores";
  expect_refused(Code::kNotFound, {"program's output \"scores\"", "entry \"0\""});
  blob.bindings.pop_back();
  expect_refused(Code::kNotFound, {"output \"logits\" of the engine"});
}

TEST_F(CheckBindings, DirectionsMustAgree) {
  blob.bindings[3].is_input = true;
  expect_refused(Code::kInvalidData, {"\"logits\"", "an input in the program", "an output of the engine"});
}

TEST_F(CheckBindings, DtypesMustAgreeWhereTheProgramSaysOne) {
  blob.bindings[0].dtype = DType::kInt64;
  expect_refused(Code::kInvalidData, {"\"x\"", "int64", "int32"});
  blob.bindings[0].dtype.reset();
  EXPECT_TRUE(check_bindings(blob, entry).ok());
}

TEST_F(CheckBindings, ShapesMustAgreeWhereTheProgramSaysOne) {
  blob.bindings[3].shape = Shape{1, 11};
  expect_refused(Code::kInvalidData, {"\"logits\"", "[1, 11]", "[1, 10]"});
  blob.bindings[3].shape = Shape{1, 10, 1};
  expect_refused(Code::kInvalidData, {"\"logits\"", "[1, 10, 1]"});
  blob.bindings[3].shape.reset();
  EXPECT_TRUE(check_bindings(blob, entry).ok());
}

TEST_F(CheckBindings, AStaticExtentMayLieAnywhereInTheEnginesRange) {
  blob.bindings[0].shape = Shape{1, 8};
  EXPECT_TRUE(check_bindings(blob, entry).ok());
  blob.bindings[0].shape = Shape{1, 9};
  expect_refused(Code::kInvalidData, {"\"x\"", "[1, 9]", "[1, 1] to [1, 8]"});
  blob.bindings[0].shape = Shape{1, 0};
  expect_refused(Code::kInvalidData, {"\"x\"", "[1, 0]"});
}

TEST_F(CheckBindings, ADeclaredAliasThatTheProgramHasIsKept) {
  declare();
  blob.aliases[0].kind = AliasKind::kKvCacheUpdate;
  const auto checked = check_bindings(blob, entry);
  ASSERT_TRUE(checked.ok()) << checked.status().message();
  EXPECT_EQ(checked->aliases, blob.aliases);
}

TEST_F(CheckBindings, ADeclaredAliasThatTheProgramLacksIsAdded) {
  declare();
  blob.aliases.clear();
  blob.states.clear();
  const auto checked = check_bindings(blob, entry);
  ASSERT_TRUE(checked.ok()) << checked.status().message();
  EXPECT_EQ(checked->aliases,
            (std::vector<BlobAlias>{{"k_out", "k", AliasKind::kKvCacheUpdate, Ownership::kCaller, ""}}));
}

TEST_F(CheckBindings, AnAliasToAnotherInputThanDeclaredIsRefused) {
  declare();
  entry.bindings.insert(entry.bindings.begin() + 2, engine_binding("v", true, {1, 2, 16, 4}));
  blob.bindings.push_back({"v", DType::kFloat16, Shape{1, 2, 16, 4}, true});
  blob.aliases[0].input = "v";
  blob.states.clear();
  expect_refused(Code::kInvalidData, {"\"k_out\"", "\"v\" in the program", "\"k\" in the engine"});
}

TEST_F(CheckBindings, AnInputThatTheProgramAliasesElsewhereIsRefused) {
  declare();
  entry.bindings.push_back(engine_binding("k_new", false, {1, 2, 16, 4}));
  blob.bindings.push_back({"k_new", DType::kFloat16, Shape{1, 2, 16, 4}, false});
  blob.aliases[0].output = "k_new";
  blob.states.clear();
  expect_refused(Code::kInvalidData, {"input \"k\"", "\"k_new\" in the program", "\"k_out\" in the engine"});
}

TEST_F(CheckBindings, AnUndeclaredCacheUpdateIsRefusedWhereEnginesDeclareTheirs) {
  blob.aliases[0].kind = AliasKind::kKvCacheUpdate;
  EXPECT_TRUE(check_bindings(blob, entry).ok());
  entry.declares_aliases = true;
  expect_refused(Code::kInvalidData, {"\"k\"", "\"k_out\"", "kv_cache_update", "declares no such alias"});
  blob.aliases[0].kind = AliasKind::kUser;
  EXPECT_TRUE(check_bindings(blob, entry).ok());
}

TEST_F(CheckBindings, ACacheNeedsAStaticShape) {
  entry.bindings[1].min_shape[2] = 4;
  entry.bindings[1].shape[2] = -1;
  expect_refused(Code::kUnsupported, {"\"k\"", "[1, 2, 4, 4] to [1, 2, 16, 4]"});
  blob.states.clear();
  expect_refused(Code::kUnsupported, {"\"k\"", "[1, 2, 4, 4] to [1, 2, 16, 4]"});
}

TEST_F(CheckBindings, InputAndOutputOfAnAliasMustBeAlike) {
  entry.bindings[2].dtype = DType::kFloat32;
  blob.bindings[2].dtype.reset();
  expect_refused(Code::kInvalidData, {"\"k\"", "float16", "\"k_out\"", "float32"});
}

TEST_F(CheckBindings, AStateMustBeWhatItsBindingIs) {
  blob.states[0].shape = {1, 2, 32, 4};
  expect_refused(Code::kInvalidData, {"layers.0.k", "[1, 2, 32, 4]", "\"k\"", "[1, 2, 16, 4]"});
  blob.states[0].shape = {1, 2, 16, 4};
  blob.states[0].dtype = DType::kBFloat16;
  expect_refused(Code::kInvalidData, {"layers.0.k", "bfloat16", "float16"});
}

TEST_F(CheckBindings, AStateThatTheEngineUpdatesInPlaceCantSwap) {
  blob.aliases.clear();
  blob.states[0].update = Update::kSwap;
  EXPECT_TRUE(check_bindings(blob, entry).ok());
  declare();
  expect_refused(Code::kInvalidData, {"layers.0.k", "swapped", "\"k_out\"", "\"k\""});
}

}  // namespace
}  // namespace etrt
