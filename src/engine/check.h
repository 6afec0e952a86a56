#pragma once

#include <vector>

#include "blob/blob.h"
#include "engine/engine.h"
#include "etrt/status.h"

namespace etrt {

/// A blob's bindings found in an engine's entry.
struct CheckedBindings {
  std::vector<std::size_t> entry_index;  ///< Of each of the blob's bindings: its index in the entry.
  /// The blob's aliases, in its order; then, caller-owned and of kind kKvCacheUpdate, those that
  /// the engine declares and the blob lacks (upstream's blobs of engines with a cache update).
  std::vector<BlobAlias> aliases;
};

/// Whether the program and the engine's entry mean the same thing. `blob` has passed
/// validate(). Pure. Errors name the binding and what each of the two says of it:
/// - kNotFound: a binding that only one of them has;
/// - kInvalidData: another direction, element type or shape; an alias that contradicts
///   one that the engine declares, or that the engine should declare and doesn't; a
///   state that the engine updates in place and the blob swaps;
/// - kUnsupported: a cache whose extents aren't static.
Result<CheckedBindings> check_bindings(const Blob& blob, const EngineEntry& entry);

}  // namespace etrt
