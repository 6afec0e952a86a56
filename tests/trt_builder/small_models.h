#pragma once

#include "trt_builder/description.h"
#include "trt_builder/network.h"

/// The test programs beside the decoder, with the same names, inputs and outputs as those of
/// tests/python/make_models.py, but for int32 in place of int64.
namespace etrt::trt_builder {

/// What tests/conformance/engine_suite.h wants: capacity 16, 2 heads of 4, 1 to 8 rows or 1.
Description add_append(Network& network);

/// x float32 [1, T, 16], position int32 [1] -> y as x, with three kinds of state: a window of
/// a causal convolution and a recurrent memory, which swap, and a cache.
Description add_gated_delta(Network& network);

/// x float32 [4] is added to a state that starts as 0.5, 1.5, 2.5, 3.5; y is the state before that.
Description add_initial(Network& network);

/// x float32 [1, 4] -> y as x.
Description add_no_state(Network& network);

/// x float32 [1]; turns a state of 2^20 elements round and adds x; y is x. Not safe
/// where the state's input and output share memory.
Description add_reverse(Network& network);

}  // namespace etrt::trt_builder
