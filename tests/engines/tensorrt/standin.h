#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engines/tensorrt/plan.h"

/// A runtime of plans that computes on the host device, with what of TensorRT's behaviour
/// the adapter relies on or guards against:
/// - rows appended outside the cache are dropped, and nobody is told;
/// - addresses must be multiples of 256, and are taken when a run is queued;
/// - a run is asynchronous: it happens when its stream comes to it;
/// - an output that a plan declares aliased must have its input's address;
/// - shapes outside the profile are refused; a context needs its profile, scratch,
///   addresses and shapes before a run; without profile sharing (TensorRT 8.6) two
///   contexts can't have one profile;
/// - errors come as a code and words of the runtime's.
///
/// Every plan computes, for n new rows of each head of a cache [B, H, S, D]:
///   cache_out = cache with cache[b, h, position[b] + t] = update[b, h, t]    t in [0, n)
///   y[b, h, t] = sum of cache_out[b, h, r] over r <= position[b] + t, r < S
/// Inputs: cache float32, update float32 [B, H, n, D], position int32 [B].
/// Outputs: cache_out, y float32 [B, H, n, D].
namespace etrt::tensorrt::standin {

/// A change to one tensor, for what an adapter must refuse.
struct Oddity {
  std::string tensor;
  std::string what;  ///< "fp8", "chw4", "on_host", "data_dependent", "nameless", "alias_of_nothing".
};

struct Spec {
  int version = 1;  ///< Plans of another version than the runtime's are refused.
  std::int64_t batch = 1;
  std::int64_t heads = 2;
  std::int64_t capacity = 16;
  std::int64_t head_dim = 4;
  std::vector<std::vector<std::int64_t>> profiles = {{1, 4, 8}, {1, 1, 1}};  ///< Least, best, most of n.
  bool declares_alias = false;
  bool profile_sharing = true;
  bool hardware_compatible = false;
  bool dynamic_capacity = false;
  std::int64_t streamable_weights = 0;
  std::uint64_t extra_scratch = 0;  ///< Bytes on top of what a run needs.
  std::vector<Oddity> oddities = {};
};

/// The serialized plan.
std::vector<std::byte> build(const Spec& spec);

/// Faults to inject, and what the plans of a runtime were asked for. Shared by a runtime
/// and its plans; for the test while no other thread uses them.
struct Control {
  std::mutex mutex;  ///< Over the counts, for the stand-in's own use.
  std::optional<Status> fail_load;
  std::optional<Status> fail_context;
  std::optional<Status> fail_enqueue;
  std::int64_t weight_budget = -1;  ///< As last set on a plan.
  int plans = 0;                    ///< Alive.
  int contexts = 0;                 ///< Alive.
  int contexts_made = 0;
  std::string order;  ///< Letters: 'r' runtime ended, 'p' a plan ended, 'c' a context ended.
};

std::shared_ptr<PlanRuntime> make_runtime(std::shared_ptr<Control> control, bool declares_aliases = false,
                                          bool is_rtx = false);

}  // namespace etrt::tensorrt::standin
