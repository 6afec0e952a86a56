#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace etrt {

/// An input of an entry and the output that is its next value, as indices of its bindings.
struct AliasedPair {
  std::size_t input = 0;
  std::size_t output = 0;
};

/// Whether the outputs of `pairs` may share their inputs' memory: runs the entry with outputs
/// of their own and with shared memory, on the same made-up inputs, at the least and greatest
/// extents, and compares every output bit for bit. The names of those that differ; empty if none
/// does, which is evidence and no proof. Integers in the inputs are 0 and 1, floats in [-1, 1].
/// Queues on a stream of its own and waits. Errors: kInvalidArgument for a pair of unequal
/// tensors; those of the engine.
Result<std::vector<std::string>> outputs_that_differ_in_place(Engine& engine, std::size_t entry,
                                                              std::span<const AliasedPair> pairs);

}  // namespace etrt
