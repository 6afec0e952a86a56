#include "state/position.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/format.h"

namespace etrt::internal {
namespace {

Status out_of_range(const State& state, std::size_t row, std::string text) {
  std::string where = state.lengths.size() > 1 ? formatted(", batch row {}", row) : "";
  return {Code::kOutOfRange, formatted("{}{}: {}", describe(state), where, text)};
}

Status check_sequence(const State& state, std::span<const std::int64_t> positions, std::int64_t count) {
  if (positions.empty()) return {};
  const std::size_t rows = state.lengths.size();
  if (positions.size() != 1 && positions.size() != rows) {
    return {
        Code::kInvalidArgument,
        formatted(
            "{} has {} batch row{}, but the run gives {} positions: give one for all rows, or one for each",
            describe(state), rows, rows == 1 ? "" : "s", positions.size())};
  }
  const std::int64_t capacity = state.spec.capacity();
  for (std::size_t row = 0; row < rows; ++row) {
    const std::int64_t position = positions[positions.size() == 1 ? 0 : row];
    const std::int64_t length = state.lengths[row];
    if (position < 0) {
      return out_of_range(state, row,
                          formatted("position {} is negative: positions count from 0, and the length is {}",
                                    position, length));
    }
    if (position > length) {
      return out_of_range(
          state, row,
          formatted("position {} leaves a hole: a run must start at or before the end, length "
                    "{} (capacity {}): start there, or run what is missing first",
                    position, length, capacity));
    }
    if (count > capacity - position) {
      return out_of_range(
          state, row,
          formatted("{} + {} positions don't fit in capacity {} (length {}): reset the session "
                    "or export with a larger capacity",
                    position, count, capacity, length));
    }
  }
  return {};
}

Status check_recurrent(const State& state, std::span<const std::int64_t> positions, std::int64_t count) {
  const std::int64_t absorbed = state.lengths[0];
  if (count > std::numeric_limits<std::int64_t>::max() - absorbed) {
    return {Code::kOutOfRange,
            formatted("{} has absorbed {} positions, and {} more can't be counted: reset the "
                      "session",
                      describe(state), absorbed, count)};
  }
  if (positions.empty()) return {};
  const std::int64_t start = state.spec.initial_length;
  const std::int64_t first = positions[0];
  if (std::ranges::any_of(positions, [&](std::int64_t position) { return position != first; })) {
    const auto other =
        std::ranges::find_if(positions, [&](std::int64_t position) { return position != first; });
    return {Code::kOutOfRange,
            formatted(
                "{} is no sequence: all batch rows have to be at one position, but row 0 is at {} and row {} "
                "at {}: give them one position, or a session each",
                describe(state), first, other - positions.begin(), *other)};
  }
  if (first == absorbed || first == start) return {};
  return {
      Code::kOutOfRange,
      formatted("{} is no sequence and has absorbed {} positions: it can't be moved to position {}, only go "
                "on at {} or start over at {} (as after a reset)",
                describe(state), absorbed, first, absorbed, start)};
}

}  // namespace

Result<PositionPlan> plan_positions(std::span<State* const> states, std::span<const std::int64_t> positions,
                                    std::int64_t count) {
  if (count < 0) {
    return Status(Code::kInvalidArgument,
                  formatted("a run can't append {} positions: give 0 or more", count));
  }
  PositionPlan plan{.positions = positions, .count = count};
  for (const State* state : states) {
    Status fits = state->spec.is_sequence() ? check_sequence(*state, positions, count)
                                            : check_recurrent(*state, positions, count);
    if (!fits.ok()) return fits;
    plan.restart = plan.restart || starts_over(*state, plan);
  }
  return plan;
}

bool starts_over(const State& state, const PositionPlan& plan) noexcept {
  return !plan.positions.empty() && !state.spec.is_sequence() && plan.positions[0] != state.lengths[0];
}

void advance(State& state, const PositionPlan& plan) noexcept {
  const std::span<const std::int64_t> positions = plan.positions;
  if (!positions.empty()) {
    for (std::size_t row = 0; row < state.lengths.size(); ++row) {
      state.lengths[row] = positions[positions.size() == state.lengths.size() ? row : 0] + plan.count;
    }
  } else if (!state.spec.is_sequence()) {
    state.lengths[0] += plan.count;
  }
  if (state.spec.update == Update::kSwap) state.current = 1 - state.current;
}

}  // namespace etrt::internal
