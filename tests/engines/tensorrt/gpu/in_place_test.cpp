// What `etrt wrap` asks of a real plan: its bindings, and whether outputs may share inputs' memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/in_place_check.h"
#include "engines/tensorrt/gpu/plans.h"

namespace etrt {
namespace {

std::shared_ptr<Engine> load(const std::string& name) {
  Result<std::shared_ptr<Engine>> engine = test::load_plan(test::plan_bytes(name));
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? *engine : nullptr;
}

std::vector<AliasedPair> pair(const EngineEntry& entry, const char* input, const char* output) {
  return {{static_cast<std::size_t>(entry.find(input)), static_cast<std::size_t>(entry.find(output))}};
}

TEST(PlanBindings, AreReadFromThePlan) {
  const std::shared_ptr<Engine> engine = load("append");
  ASSERT_NE(engine, nullptr);
  ASSERT_EQ(engine->entries().size(), 2U);
  const EngineEntry& prefill = engine->entries()[0];
  const int update = prefill.find("update");
  const int cache_out = prefill.find("cache_out");
  ASSERT_GE(update, 0);
  ASSERT_GE(cache_out, 0);
  const EngineBinding& in = prefill.bindings[static_cast<std::size_t>(update)];
  EXPECT_TRUE(in.is_input);
  EXPECT_EQ(in.shape, (Shape{1, 2, -1, 4}));
  EXPECT_EQ(in.min_shape, (Shape{1, 2, 1, 4}));
  EXPECT_EQ(in.max_shape, (Shape{1, 2, 8, 4}));
  const EngineBinding& out = prefill.bindings[static_cast<std::size_t>(cache_out)];
  EXPECT_FALSE(out.is_input);
  EXPECT_EQ(out.dtype, DType::kFloat32);
  EXPECT_EQ(out.shape, (Shape{1, 2, 16, 4}));
  EXPECT_EQ(engine->entries()[1].bindings[static_cast<std::size_t>(update)].max_shape, (Shape{1, 2, 1, 4}));
}

TEST(InPlaceOnPlans, AnAppendBySelectMayShare) {
  const std::shared_ptr<Engine> engine = load("append");
  ASSERT_NE(engine, nullptr);
  for (std::size_t entry = 0; entry < engine->entries().size(); ++entry) {
    const auto differ =
        outputs_that_differ_in_place(*engine, entry, pair(engine->entries()[entry], "cache", "cache_out"));
    ASSERT_TRUE(differ.ok()) << differ.status().message();
    EXPECT_THAT(*differ, testing::IsEmpty());
  }
}

TEST(InPlaceOnPlans, AReversalMayNot) {
  const std::shared_ptr<Engine> engine = load("reverse");
  ASSERT_NE(engine, nullptr);
  const auto differ =
      outputs_that_differ_in_place(*engine, 0, pair(engine->entries()[0], "values", "values_out"));
  ASSERT_TRUE(differ.ok()) << differ.status().message();
  EXPECT_THAT(*differ, testing::ElementsAre("values_out"));
}

}  // namespace
}  // namespace etrt
