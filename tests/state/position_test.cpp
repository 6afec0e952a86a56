#include "state/position.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "state/state_fixtures.h"

namespace etrt::internal {
namespace {

using testing::HasSubstr;
using Positions = std::vector<std::int64_t>;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

/// A state without memory: planning looks at specs and lengths only.
State at(StateSpec spec, Positions lengths) {
  State state;
  state.model_id = "m";
  state.spec = std::move(spec);
  state.lengths = std::move(lengths);
  return state;
}

/// A sequence "k" of capacity 10.
State sequence(Positions lengths) {
  const auto rows = static_cast<std::int64_t>(lengths.size());
  return at({.id = "k", .shape = {rows, 1, 10, 4}, .sequence_dim = 2}, std::move(lengths));
}

Result<PositionPlan> plan(std::vector<State*> states, const Positions& positions, std::int64_t count) {
  return plan_positions(states, positions, count);
}

std::string refused(std::vector<State*> states, const Positions& positions, std::int64_t count,
                    Code code = Code::kOutOfRange) {
  std::vector<Positions> before;
  for (const State* state : states) before.push_back(state->lengths);
  Result<PositionPlan> made = plan_positions(states, positions, count);
  EXPECT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), code);
  for (std::size_t i = 0; i < states.size(); ++i) EXPECT_EQ(states[i]->lengths, before[i]);
  return made.status().message();
}

TEST(PlanSequence, AppendsAndOverwrites) {
  State k = sequence({7});
  for (const std::int64_t position : {0, 3, 7}) EXPECT_TRUE(plan({&k}, {position}, 3).ok()) << position;
  EXPECT_TRUE(plan({&k}, {0}, 10).ok());
  EXPECT_TRUE(plan({&k}, {7}, 0).ok());
  EXPECT_FALSE(plan({&k}, {7}, 3)->restart);
}

TEST(PlanSequence, AHole) {
  State k = sequence({7});
  EXPECT_EQ(
      refused({&k}, {8}, 1),
      "state \"k\" of model \"m\": position 8 leaves a hole: a run must start at or before the end, length 7 "
      "(capacity 10): start there, or run what is missing first");
}

TEST(PlanSequence, BeyondCapacity) {
  State k = sequence({7});
  EXPECT_EQ(
      refused({&k}, {7}, 4),
      "state \"k\" of model \"m\": 7 + 4 positions don't fit in capacity 10 (length 7): reset the session or "
      "export with a larger capacity");
  refused({&k}, {7}, kMax);
  refused({&k}, {0}, kMax);
  State full = sequence({10});
  refused({&full}, {10}, 1);
  EXPECT_TRUE(plan({&full}, {10}, 0).ok());
}

TEST(PlanSequence, Negative) {
  State k = sequence({7});
  EXPECT_THAT(refused({&k}, {-1}, 1), HasSubstr("position -1 is negative"));
  refused({&k}, {std::numeric_limits<std::int64_t>::min()}, 1);
  EXPECT_THAT(refused({&k}, {0}, -2, Code::kInvalidArgument), HasSubstr("-2 positions"));
}

TEST(PlanSequence, RowsHaveTheirOwnPositionsOrOneForAll) {
  State k = sequence({7, 2});
  EXPECT_TRUE(plan({&k}, {7, 2}, 3).ok());
  EXPECT_TRUE(plan({&k}, {2}, 3).ok());
  EXPECT_THAT(refused({&k}, {7}, 1), HasSubstr("batch row 1: position 7 leaves a hole"));
  EXPECT_THAT(refused({&k}, {7, 3}, 1), HasSubstr("batch row 1: position 3 leaves a hole"));
  EXPECT_THAT(refused({&k}, {7, 2}, 4), HasSubstr("batch row 0: 7 + 4"));
  EXPECT_THAT(refused({&k}, {1, 1, 1}, 1, Code::kInvalidArgument),
              HasSubstr("2 batch rows, but the run gives 3"));
}

TEST(PlanSequence, EveryStateIsChecked) {
  State long_one = sequence({7});
  State short_one = sequence({5});
  short_one.spec.id = "v";
  EXPECT_THAT(refused({&long_one, &short_one}, {7}, 1), HasSubstr("state \"v\""));
}

TEST(PlanRecurrent, GoesOnOrStartsOver) {
  State s = at(recurrent("s"), {7});
  EXPECT_FALSE(plan({&s}, {7}, 1)->restart);
  EXPECT_TRUE(plan({&s}, {0}, 1)->restart);
  State fresh = at(recurrent("s"), {0});
  EXPECT_FALSE(plan({&fresh}, {0}, 1)->restart);
}

TEST(PlanRecurrent, CannotBeMoved) {
  State s = at(recurrent("s"), {7});
  EXPECT_EQ(refused({&s}, {4}, 1),
            "state \"s\" of model \"m\" is no sequence and has absorbed 7 positions: it can't be moved to "
            "position 4, "
            "only go on at 7 or start over at 0 (as after a reset)");
  refused({&s}, {8}, 1);
  refused({&s}, {-1}, 1);
}

TEST(PlanRecurrent, StartsOverWhereItsInitialValueEnds) {
  StateSpec spec = recurrent("s");
  spec.initial_length = 2;
  State s = at(spec, {7});
  EXPECT_TRUE(plan({&s}, {2}, 1)->restart);
  EXPECT_THAT(refused({&s}, {0}, 1), HasSubstr("start over at 2"));
}

TEST(PlanRecurrent, RowsMustAgree) {
  State s = at(recurrent("s"), {7});
  EXPECT_FALSE(plan({&s}, {7, 7, 7}, 1)->restart);
  EXPECT_THAT(refused({&s}, {7, 7, 0}, 1), HasSubstr("row 0 is at 7 and row 2 at 0"));
}

TEST(PlanRecurrent, CountsDoNotOverflow) {
  State s = at(recurrent("s"), {7});
  EXPECT_TRUE(plan({&s}, {7}, kMax - 7).ok());
  EXPECT_THAT(refused({&s}, {7}, kMax - 6), HasSubstr("can't be counted"));
  refused({&s}, {}, kMax - 6);
}

TEST(Plan, OneStateThatRefusesIsEnough) {
  State k = sequence({7});
  State s = at(recurrent("s"), {7});
  EXPECT_FALSE(plan({&k, &s}, {7}, 1)->restart);
  EXPECT_TRUE(plan({&k, &s}, {0}, 1)->restart);  // A runner that only resets its counter.
  EXPECT_THAT(refused({&k, &s}, {3}, 1), HasSubstr("state \"s\""));
}

TEST(Plan, WithoutAPositionNothingIsChecked) {
  State k = sequence({10});
  State s = at(recurrent("s"), {7});
  Result<PositionPlan> made = plan({&k, &s}, {}, 5);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_FALSE(made->restart);
}

TEST(Advance, SequencesEndWhereTheRunEnds) {
  State k = sequence({7, 2});
  const Positions own{4, 2};
  advance(k, {.positions = own, .count = 3});
  EXPECT_EQ(k.lengths, (Positions{7, 5}));
  const Positions shared{1};
  advance(k, {.positions = shared, .count = 2});
  EXPECT_EQ(k.lengths, (Positions{3, 3}));
  advance(k, {.positions = {}, .count = 2});
  EXPECT_EQ(k.lengths, (Positions{3, 3}));
  EXPECT_EQ(k.current, 0);
}

TEST(Advance, OthersCountWhatTheyAbsorb) {
  State s = at(recurrent("s"), {7});
  const Positions rows{7, 7};
  advance(s, {.positions = rows, .count = 2});
  EXPECT_EQ(s.lengths, Positions{9});
  EXPECT_EQ(s.current, 1);
  advance(s, {.positions = {}, .count = 1});
  EXPECT_EQ(s.lengths, Positions{10});
  EXPECT_EQ(s.current, 0);
  const Positions over{0};
  advance(s, {.positions = over, .count = 4});
  EXPECT_EQ(s.lengths, Positions{4});
}

}  // namespace
}  // namespace etrt::internal
