#pragma once

#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/span.h>

#include "delegate/handle.h"
#include "etrt/status.h"

namespace etrt {

/// One run of a delegate: resolve, plan, bind, enqueue, commit (docs/state_model.md).
/// `args`: the inputs, then the outputs; aliased outputs may be left out.
/// Heap: none after the first run with the same session and shapes.
Status run(Handle& handle, executorch::runtime::Span<executorch::runtime::EValue*> args);

}  // namespace etrt
