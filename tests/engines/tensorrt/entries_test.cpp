#include "engines/tensorrt/entries.h"

#include <gtest/gtest.h>

#include "engines/tensorrt/fixtures.h"

namespace etrt::tensorrt {
namespace {

using standin::Control;
using standin::Spec;

TEST(Entries, AProfileIsAnEntryNamedByItsIndex) {
  auto engine =
      load({.batch = 2, .heads = 3, .capacity = 8, .head_dim = 4, .profiles = {{1, 2, 5}, {1, 1, 1}}},
           std::make_shared<Control>());
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const auto entries = (*engine)->entries();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].name, "0");
  EXPECT_EQ(entries[1].name, "1");

  const EngineBinding& update = entries[0].bindings[kUpdate];
  EXPECT_EQ(update.name, "update");
  EXPECT_TRUE(update.is_input);
  EXPECT_EQ(update.shape, Shape({2, 3, -1, 4}));
  EXPECT_EQ(update.min_shape, Shape({2, 3, 1, 4}));
  EXPECT_EQ(update.max_shape, Shape({2, 3, 5, 4}));
  const EngineBinding& y = entries[0].bindings[kY];
  EXPECT_FALSE(y.is_input);
  EXPECT_EQ(y.shape, Shape({2, 3, -1, 4}));
  EXPECT_EQ(y.max_shape, Shape({2, 3, 5, 4}));
  EXPECT_EQ(entries[0].bindings[kPosition].dtype, DType::kInt32);

  // What profile 1 fixes is static there.
  EXPECT_EQ(entries[1].bindings[kUpdate].shape, Shape({2, 3, 1, 4}));
  EXPECT_EQ(entries[1].bindings[kY].shape, Shape({2, 3, 1, 4}));
}

TEST(Entries, DeclaredAliasesAreInputIndices) {
  auto engine = load({.declares_alias = true}, std::make_shared<Control>(), {}, /*declares_aliases=*/true);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  for (const EngineEntry& entry : (*engine)->entries()) {
    EXPECT_TRUE(entry.declares_aliases);
    EXPECT_EQ(entry.bindings[kCacheOut].declared_alias, int{kCache});
    EXPECT_EQ(entry.bindings[kY].declared_alias, -1);
  }
  auto older = load({}, std::make_shared<Control>());
  ASSERT_TRUE(older.ok());
  EXPECT_FALSE((*older)->entries()[0].declares_aliases);
}

/// Why a plan with that one oddity isn't loaded.
Status refusal(const std::string& tensor, const std::string& what) {
  auto control = std::make_shared<Control>();
  const Status status = load({.oddities = {{tensor, what}}}, control).status();
  EXPECT_EQ(control->plans, 0);
  EXPECT_EQ(control->contexts, 0);
  return status;
}

TEST(Entries, WhatCantBeBoundIsRefusedByName) {
  EXPECT_TRUE(says(refusal("update", "fp8"), Code::kUnsupported, {"input \"update\"", "kFP8", "float16"}));
  EXPECT_TRUE(says(refusal("y", "chw4"), Code::kUnsupported, {"\"y\"", "CHW4", "kLINEAR"}));
  EXPECT_TRUE(
      says(refusal("position", "on_host"), Code::kUnsupported, {"input \"position\"", "host memory"}));
  EXPECT_TRUE(says(refusal("y", "data_dependent"), Code::kUnsupported, {"output \"y\"", "[1, 2, ?, 4]"}));
  EXPECT_TRUE(says(refusal("cache_out", "alias_of_nothing"), Code::kInvalidData, {"cache_out", "elsewhere"}));
  EXPECT_TRUE(says(refusal("y", "nameless"), Code::kInvalidData, {"output without a name"}));
}

}  // namespace
}  // namespace etrt::tensorrt
