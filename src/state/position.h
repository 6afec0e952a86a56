#pragma once

#include <cstdint>
#include <span>

#include "etrt/status.h"
#include "state/state.h"

namespace etrt::internal {

/// What a run does to the positions of its states, found before anything is touched.
struct PositionPlan {
  std::span<const std::int64_t> positions;  ///< Those given to plan_positions(), not a copy.
  std::int64_t count = 0;                   ///< Positions that the run appends to each row.
  bool restart = false;  ///< Some states that are no sequence start over: Lease::restart() before the run.
};

/// May a run that appends `count` positions start at `positions`?
///
/// `positions` has one value for all batch rows, or one per row; it is empty for a method
/// without a position input, and then nothing is checked. Nothing is allocated on success.
///
/// A sequence takes any run with 0 <= position <= length and position + count <= capacity.
/// Any other state can't be rewound: it takes a run that starts where it is, or one that
/// starts over at its initial length (0), for which it has to be initialised anew.
///
/// Errors: kOutOfRange, kInvalidArgument; they name state, row and both values, and no
/// state has changed.
Result<PositionPlan> plan_positions(std::span<State* const> states, std::span<const std::int64_t> positions,
                                    std::int64_t count);

/// True if the planned run needs `state` initialised anew.
bool starts_over(const State& state, const PositionPlan& plan) noexcept;

/// The run is done or queued: lengths advance, states that swap do. Nothing is allocated.
void advance(State& state, const PositionPlan& plan) noexcept;

}  // namespace etrt::internal
