#include "engine/in_place_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace etrt {
namespace {

constexpr std::size_t kCount = 8;

/// state_out[i] = 2 state[i] + x, or the same of the last element first, which isn't safe in
/// place; y = x.
class Engine8 final : public Engine {
 public:
  explicit Engine8(bool reverse) : reverse_(reverse) {
    EngineEntry entry;
    entry.name = "0";
    const auto add = [&](const char* name, std::int64_t count, bool is_input) {
      EngineBinding binding;
      binding.name = name;
      binding.shape = binding.min_shape = binding.max_shape = Shape{count};
      binding.is_input = is_input;
      entry.bindings.push_back(binding);
    };
    add("state", kCount, true);
    add("x", 1, true);
    add("state_out", kCount, false);
    add("y", 1, false);
    entries_.push_back(entry);
  }
  Device& device() const noexcept override { return host_device(); }
  std::span<const EngineEntry> entries() const noexcept override { return entries_; }
  Result<std::unique_ptr<ExecutionContext>> create_context(std::size_t) override;

 private:
  bool reverse_;
  std::vector<EngineEntry> entries_;
};

class Context8 final : public ExecutionContext {
 public:
  explicit Context8(bool reverse) : reverse_(reverse) {}
  Status set_input_shape(std::size_t, const Shape&) override { return {}; }
  Status bind(std::size_t binding, void* data) override {
    bound_[binding] = static_cast<float*>(data);
    return {};
  }
  Status enqueue(Stream& stream, bool) override {
    if (Status s = stream.synchronize(); !s) return s;
    for (std::size_t i = 0; i < kCount; ++i) {
      bound_[2][i] = 2 * bound_[0][reverse_ ? kCount - 1 - i : i] + bound_[1][0];
    }
    bound_[3][0] = bound_[1][0];
    return {};
  }
  Result<Shape> output_shape(std::size_t binding) const override {
    return Shape{binding == 2 ? std::int64_t{kCount} : 1};
  }
  bool shapes_before_run() const noexcept override { return true; }

 private:
  bool reverse_;
  std::array<float*, 4> bound_{};
};

Result<std::unique_ptr<ExecutionContext>> Engine8::create_context(std::size_t) {
  return std::unique_ptr<ExecutionContext>(new Context8(reverse_));
}

constexpr std::array<AliasedPair, 1> kPair{{{0, 2}}};

TEST(InPlaceCheck, AnEngineThatReadsEachElementBeforeItWritesIt) {
  Engine8 engine(/*reverse=*/false);
  const auto differ = outputs_that_differ_in_place(engine, 0, kPair);
  ASSERT_TRUE(differ.ok()) << differ.status().message();
  EXPECT_TRUE(differ->empty());
}

TEST(InPlaceCheck, AnEngineThatDoesNot) {
  Engine8 engine(/*reverse=*/true);
  const auto differ = outputs_that_differ_in_place(engine, 0, kPair);
  ASSERT_TRUE(differ.ok()) << differ.status().message();
  EXPECT_THAT(*differ, testing::ElementsAre("state_out"));
}

TEST(InPlaceCheck, PairsThatCannotShare) {
  Engine8 engine(/*reverse=*/false);
  const std::array<AliasedPair, 1> unlike{{{1, 2}}};
  const auto refused = outputs_that_differ_in_place(engine, 0, unlike);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("\"state_out\" is float32 [8]"));
  const std::array<AliasedPair, 1> none{{{2, 0}}};
  EXPECT_FALSE(outputs_that_differ_in_place(engine, 0, none).ok());
  EXPECT_FALSE(outputs_that_differ_in_place(engine, 1, kPair).ok());
}

}  // namespace
}  // namespace etrt
