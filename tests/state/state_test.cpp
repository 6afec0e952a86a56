#include "state/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "state/state_fixtures.h"

namespace etrt::internal {
namespace {

using testing::Each;
using testing::HasSubstr;

TEST(StateSpec, Bytes) {
  EXPECT_EQ(cache("k").bytes(), 1U * 2 * 8 * 4 * 4);
  EXPECT_EQ((StateSpec{.dtype = DType::kFloat16, .shape = {3, 5}}.bytes()), 30U);
  EXPECT_EQ((StateSpec{.dtype = DType::kInt8, .shape = {}}.bytes()), 1U);
}

TEST(StateSpec, BytesThatCannotBeCountedCannotBeAllocated) {
  constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ((StateSpec{.shape = {1, -1}}.bytes()), kNever);
  EXPECT_EQ((StateSpec{.dtype = DType::kFloat64, .shape = {std::int64_t{1} << 62}}.bytes()), kNever);
  EXPECT_EQ(
      (StateSpec{.dtype = DType::kInt8, .shape = {std::int64_t{1} << 32, std::int64_t{1} << 32}}.bytes()),
      kNever);
}

TEST(StateSpec, RowsAndCapacity) {
  StateSpec spec{.shape = {3, 2, 8, 4}, .sequence_dim = 2};
  EXPECT_EQ(spec.rows(), 3U);
  EXPECT_EQ(spec.capacity(), 8);
  spec.sequence_dim = 0;
  EXPECT_EQ(spec.rows(), 1U);
  EXPECT_EQ(spec.capacity(), 3);
  spec.sequence_dim = -1;
  EXPECT_EQ(spec.rows(), 1U);
}

TEST(Intern, EqualContentsAreOneObject) {
  StateSpec spec = cache("k");
  spec.initial = floats(std::vector<float>(64, 1.5F));
  const auto first = ask({spec, recurrent("s")});
  StateSpec again = cache("k");
  again.initial = floats(std::vector<float>(64, 1.5F));
  EXPECT_NE(again.initial, spec.initial);
  EXPECT_EQ(ask({again, recurrent("s")}), first);
}

TEST(Intern, AnythingElseIsAnother) {
  const auto base = ask({cache("k")});
  EXPECT_NE(ask({cache("v")}), base);
  EXPECT_NE(ask({cache("k")}, "other model"), base);
  EXPECT_NE(ask({cache("k"), cache("v")}), base);
  EXPECT_NE(intern({.model_id = "m", .specs = {cache("k")}, .device = nullptr}), base);
  const auto changed = [&](auto change) {
    StateSpec spec = cache("k");
    change(spec);
    return ask({spec});
  };
  EXPECT_NE(changed([](StateSpec& spec) { spec.dtype = DType::kInt32; }), base);
  EXPECT_NE(changed([](StateSpec& spec) { spec.shape = {1, 2, 9, 4}; }), base);
  EXPECT_NE(changed([](StateSpec& spec) { spec.sequence_dim = 1; }), base);
  EXPECT_NE(changed([](StateSpec& spec) { spec.update = Update::kSwap; }), base);
  EXPECT_NE(changed([](StateSpec& spec) { spec.initial_length = 1; }), base);
  EXPECT_NE(changed([](StateSpec& spec) { spec.initial = floats(std::vector<float>(64, 0)); }), base);
  EXPECT_EQ(changed([](StateSpec&) {}), base);
}

TEST(Intern, LivesAsLongAsItIsHeld) {
  std::weak_ptr<const StateRequest> gone = ask({cache("only here")});
  EXPECT_TRUE(gone.expired());
}

TEST(Difference, NamesWhatDiffersWithBothValues) {
  const StateSpec present = cache("k");
  StateSpec wanted = present;
  EXPECT_EQ(difference(present, wanted), "");
  wanted.id = "another";
  EXPECT_EQ(difference(present, wanted), "");
  wanted.shape = {1, 2, 16, 4};
  EXPECT_EQ(difference(present, wanted),
            "is float32 [1, 2, 8, 4] in this session, but this method declares float32 [1, 2, 16, 4]");
  wanted = present;
  wanted.dtype = DType::kFloat16;
  EXPECT_EQ(difference(present, wanted),
            "is float32 [1, 2, 8, 4] in this session, but this method declares float16 [1, 2, 8, 4]");
  wanted = present;
  wanted.sequence_dim = -1;
  EXPECT_EQ(difference(present, wanted),
            "is a sequence along dim 2 in this session, but this method declares no dim");
  wanted = present;
  wanted.update = Update::kSwap;
  EXPECT_EQ(difference(present, wanted),
            "is updated in place in this session, but this method declares by swap");
  wanted = present;
  wanted.initial_length = 4;
  EXPECT_EQ(difference(present, wanted), "has initial length 0 in this session, but this method declares 4");
  wanted = present;
  wanted.initial = floats(std::vector<float>(64, 1));
  EXPECT_EQ(difference(present, wanted),
            "has one initial value in this session, but this method declares another");
}

TEST(CreateState, InPlaceHasOneBufferSwapHasTwo) {
  const auto stream = make_stream();
  const auto request = ask({cache("k"), recurrent("s")});
  Result<std::unique_ptr<State>> k = create_state(*request, request->specs[0], *stream);
  ASSERT_TRUE(k.ok()) << k.status().message();
  EXPECT_EQ((*k)->bytes(), 256U);
  EXPECT_EQ((*k)->read(), (*k)->write());
  EXPECT_EQ((*k)->lengths, std::vector<std::int64_t>{0});
  EXPECT_THAT(read_floats(**k), Each(0.0F));
  EXPECT_EQ(describe(**k), "state \"k\" of model \"m\"");

  Result<std::unique_ptr<State>> s = create_state(*request, request->specs[1], *stream);
  ASSERT_TRUE(s.ok()) << s.status().message();
  EXPECT_EQ((*s)->bytes(), 24U);
  EXPECT_NE((*s)->read(), (*s)->write());
  for (const void* data : {(*k)->read(), (*s)->read(), (*s)->write()}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % Device::kAlignment, 0U);
  }
}

TEST(CreateState, RefusesWhatContradictsItself) {
  const auto stream = make_stream();
  const auto message = [&](auto change) {
    StateSpec spec = cache("k");
    change(spec);
    Result<std::unique_ptr<State>> state = create_state(*ask({spec}), spec, *stream);
    EXPECT_FALSE(state.ok());
    EXPECT_EQ(state.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(state.status().message(), HasSubstr("state \"k\" of model \"m\""));
    return state.status().message();
  };
  EXPECT_THAT(message([](StateSpec& spec) { spec.shape = {1, -1, 8, 4}; }), HasSubstr("[1, ?, 8, 4]"));
  EXPECT_THAT(message([](StateSpec& spec) { spec.shape = {1, 2, 0, 4}; }), HasSubstr("[1, 2, 0, 4]"));
  EXPECT_THAT(message([](StateSpec& spec) {
                spec.shape = {std::int64_t{1} << 62, 1, 1, 1};
              }),
              HasSubstr("4611686018427387904"));
  EXPECT_THAT(message([](StateSpec& spec) { spec.sequence_dim = 4; }), HasSubstr("sequence dim 4"));
  EXPECT_THAT(message([](StateSpec& spec) {
                spec.initial = floats({1, 2});
              }),
              HasSubstr("8 bytes of initial contents, but 256 bytes"));
  EXPECT_THAT(message([](StateSpec& spec) { spec.initial_length = -1; }), HasSubstr("initial length -1"));
  EXPECT_THAT(message([](StateSpec& spec) { spec.initial_length = 9; }), HasSubstr("[0, 8]"));
}

TEST(CreateState, OutOfMemoryNamesStateAndSize) {
  const auto stream = make_stream();
  StateSpec spec = cache("k");
  spec.shape = {1, 1, std::int64_t{1} << 58, 1};
  Result<std::unique_ptr<State>> state = create_state(*ask({spec}), spec, *stream);
  ASSERT_FALSE(state.ok());
  EXPECT_EQ(state.status().code(), Code::kOutOfMemory);
  EXPECT_THAT(state.status().message(), HasSubstr("state \"k\" of model \"m\""));
  EXPECT_THAT(state.status().message(), HasSubstr("1152921504606846976 bytes on host"));
}

TEST(Initialise, ZerosOrTheInitialValueIntoTheBufferReadNext) {
  const auto stream = make_stream();
  StateSpec spec = recurrent("s");
  spec.initial = floats({1, 2, 3});
  const auto request = ask({spec, recurrent("zero")});
  for (const StateSpec& each : request->specs) {
    Result<std::unique_ptr<State>> state = create_state(*request, each, *stream);
    ASSERT_TRUE(state.ok()) << state.status().message();
    (*state)->current = 1;
    std::memset((*state)->read(), 0x55, 12);
    std::memset((*state)->write(), 0x55, 12);
    ok(initialise(**state, *stream));
    ok(stream->synchronize());
    EXPECT_EQ(read_floats(**state),
              each.initial ? std::vector<float>({1, 2, 3}) : std::vector<float>(3, 0.0F));
    EXPECT_EQ(*static_cast<std::uint8_t*>((*state)->write()), 0x55);
  }
}

}  // namespace
}  // namespace etrt::internal
