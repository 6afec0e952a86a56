#include "delegate/run.h"

#include <executorch/runtime/core/exec_aten/exec_aten.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/format.h"
#include "base/stats_counters.h"
#include "delegate/arguments.h"
#include "delegate/caller_stream.h"
#include "state/session_impl.h"

namespace etrt {

namespace et = executorch::runtime;
using executorch::aten::Tensor;
using internal::PositionPlan;
using internal::SelectedSession;
using internal::SessionImpl;
using internal::State;

namespace {

/// Marks a loaded method as running, on one thread.
class Running {
 public:
  explicit Running(std::atomic_flag& flag)
      : flag_(flag), entered_(!flag.test_and_set(std::memory_order_acquire)) {}
  ~Running() {
    if (entered_) flag_.clear(std::memory_order_release);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  bool entered() const noexcept { return entered_; }

 private:
  std::atomic_flag& flag_;
  bool entered_;
};

class Run {
 public:
  Run(Handle& handle, et::Span<et::EValue*> args) : handle_(handle), args_(args) {}

  Status plan() {
    const std::size_t inputs = handle_.inputs.size();
    const std::size_t all = inputs + handle_.outputs.size();
    const std::size_t without_aliased = inputs + handle_.unaliased_outputs;
    if (args_.size() != all && args_.size() != without_aliased) {
      return {Code::kInvalidArgument,
              formatted("the delegate got {} arguments; its blob describes {} inputs and "
                        "{} outputs, {} of them aliased",
                        args_.size(), inputs, handle_.outputs.size(), all - without_aliased)};
    }
    aliased_present_ = args_.size() == all;
    for (std::size_t i = 0; i < inputs; ++i) {
      if (Status s = check_input(handle_.inputs[i], *args_[i], &handle_.input_shapes[i]); !s) return s;
      if (!handle_.inputs[i].is_cache) continue;
      const Device& device = handle_.engine->engine().device();
      if (Status s = check_cache(handle_.inputs[i], args_[i]->toTensor(), device, handle_.stage_caches); !s) {
        return s;
      }
    }
    std::size_t next = inputs;
    for (const Argument& output : handle_.outputs) {
      if (output.alias_of >= 0 && !aliased_present_) continue;
      if (Status s = check_output(output, *args_[next++]); !s) return s;
    }
    return read_position();
  }

  Status execute() {
    std::optional<SelectedSession> selected;
    std::optional<SessionImpl::Lease> lease;
    if (handle_.request) {
      Result<SelectedSession> session = internal::selected_session();
      if (!session) return session.status();
      selected.emplace(std::move(*session));
      Result<SessionImpl::Lease> taken = (*selected)->lease();
      if (!taken) return taken.status();
      lease.emplace(std::move(*taken));
    }
    Result<ContextPool::Lease> pooled =
        handle_.engine->pool(handle_.entry).acquire(selected ? &**selected : nullptr);
    if (!pooled) return pooled.status();
    PooledContext& context = **pooled;
    Result<Stream*> given = caller_stream(handle_.engine->engine().device());
    if (!given) return given.status();
    on_caller_stream_ = *given != nullptr;
    Stream& stream = on_caller_stream_ ? **given : *context.stream;

    PositionPlan positions;
    if (lease) {
      Result<std::span<State* const>> states = lease->states(handle_.request, stream);
      if (!states) return states.status();
      states_ = *states;
      written_ = states_.first(handle_.written_states);
      Result<PositionPlan> planned = internal::plan_positions(written_, handle_.positions, count_);
      if (!planned) return planned.status();
      positions = *planned;
    }
    if (Status s = set_shapes(context); !s) return s;
    if (Status s = bind_arguments(context, stream); !s) return s;
    if (Status s = bind_states(context); !s) return s;
    if (Status s = order(context, lease, stream); !s) return s;

    // From here on the session's contents may change.
    if (Status s = enqueue(context, lease, positions, stream); !s) {
      if (lease) lease->fail(s, stream);
      pooled->discard();
      return s;
    }
    context.last_user = selected ? &**selected : nullptr;
    if (lease) lease->commit(written_, positions);
    internal::add(internal::counters().runs);
    return resize_outputs(context);
  }

 private:
  Status read_position() {
    handle_.positions.clear();
    count_ = 1;
    if (!handle_.position) return {};
    const PositionArgument& position = *handle_.position;
    count_ =
        position.count_argument < 0
            ? position.count
            : handle_.input_shapes[static_cast<std::size_t>(position.count_argument)][position.count_dim];
    const Argument& argument = handle_.inputs[position.argument];
    if (Status s = etrt::read_position(argument, args_[position.argument]->toTensor(), position.rows, count_,
                                       &handle_.positions);
        !s) {
      return s;
    }
    // The engine would drop such rows without a word.
    for (const std::int64_t start : handle_.positions) {
      if (position.capacity < 0 || (start >= 0 && count_ <= position.capacity - start)) continue;
      return {
          Code::kOutOfRange,
          formatted(
              "{} + {} positions don't fit in the caller's caches of capacity {}: start at 0 or later, and "
              "export with a larger capacity for more",
              start, count_, position.capacity)};
    }
    return {};
  }

  Status set_shapes(PooledContext& context) {
    for (std::size_t i = 0; i < handle_.inputs.size(); ++i) {
      if (Status s = context.set_shape(handle_.inputs[i].binding, handle_.input_shapes[i]); !s) return s;
    }
    for (std::size_t i = 0; i < handle_.states.size(); ++i) {
      if (Status s = context.set_shape(handle_.states[i].input, states_[i]->spec.shape); !s) return s;
    }
    return {};
  }

  /// Where an argument's data is for the engine: its own memory, or device memory that is
  /// copied from or to it.
  Result<void*> address(PooledContext& context, const Argument& argument, const Tensor& tensor,
                        Stream& stream) {
    const DeviceType device = stream.device().id().type;
    if (device == DeviceType::kHost || !tensor.device().is_cpu()) return tensor.mutable_data_ptr();
    Buffer& staging = context.staging[argument.binding];
    if (staging.data() == nullptr) {
      const std::size_t bytes =
          static_cast<std::size_t>(argument.max.elements().value_or(0)) * size_of(argument.dtype);
      Result<Buffer> pinned = stream.device().allocate_staging(bytes);
      if (!pinned) return pinned.status();
      Result<Buffer> made = stream.device().allocate(bytes, stream);
      if (!made) return made.status();
      context.pinned[argument.binding] = std::move(*pinned);
      staging = std::move(*made);
    }
    return staging.data();
  }

  static Status bind(PooledContext& context, std::size_t binding, void* data) {
    bool changed = false;
    return context.bind(binding, data, &changed);
  }

  Status bind_arguments(PooledContext& context, Stream& stream) {
    bool other_cache = false;
    for (std::size_t i = 0; i < handle_.inputs.size(); ++i) {
      const Argument& input = handle_.inputs[i];
      Result<void*> data = address(context, input, args_[i]->toTensor(), stream);
      if (!data) return data.status();
      bool moved = false;
      if (Status s = context.bind(input.binding, *data, &moved); !s) return s;
      if (!moved || !input.is_cache) continue;
      internal::add(internal::counters().rebinds);
      other_cache = true;
    }
    if (other_cache) {
      if (Status s = check_overlaps(handle_, args_); !s) {
        forget_caches(context);
        return s;
      }
    }
    std::size_t next = handle_.inputs.size();
    for (const Argument& output : handle_.outputs) {
      if (output.alias_of >= 0) {
        const auto input = static_cast<std::size_t>(output.alias_of);
        if (Status s = bind(context, output.binding, context.bound[handle_.inputs[input].binding]); !s)
          return s;
        // What follows in the program reads the updated cache where it is.
        if (aliased_present_) {
          args_[next++]->toTensor().unsafeGetTensorImpl()->set_data(
              args_[input]->toTensor().mutable_data_ptr());
        }
        continue;
      }
      Result<void*> data = address(context, output, args_[next++]->toTensor(), stream);
      if (!data) return data.status();
      if (Status s = bind(context, output.binding, *data); !s) return s;
    }
    return {};
  }

  Status bind_states(PooledContext& context) {
    for (std::size_t i = 0; i < handle_.states.size(); ++i) {
      bool moved = false;
      if (Status s = context.bind(handle_.states[i].input, states_[i]->read(), &moved); !s) return s;
      if (moved) internal::add(internal::counters().rebinds);
      if (i >= handle_.written_states) continue;
      if (Status s = bind(context, handle_.states[i].output, states_[i]->write()); !s) return s;
    }
    return {};
  }

  /// After the session's earlier work, and the context's.
  static Status order(PooledContext& context, std::optional<SessionImpl::Lease>& lease, Stream& stream) {
    if (context.last_stream != 0 && context.last_stream != stream.id()) {
      if (Status s = stream.wait(*context.done); !s) return s;
    }
    return lease ? lease->order_after_previous(stream) : Status();
  }

  Status enqueue(PooledContext& context, std::optional<SessionImpl::Lease>& lease,
                 const PositionPlan& positions, Stream& stream) {
    if (lease) {
      if (Status s = lease->restart(written_, positions, stream); !s) return s;
    }
    const bool on_host = stream.device().id().type == DeviceType::kHost;
    if (!on_host) {
      if (Status s = copy_inputs(context, stream); !s) return s;
    }
    if (Status s = context.context->enqueue(stream, /*wait=*/!on_caller_stream_); !s) return s;
    if (!on_host) {
      if (Status s = copy_outputs(context, stream); !s) return s;
    }
    if (lease) {
      if (Status s = lease->record(stream); !s) return s;
    }
    context.last_stream = stream.id();
    if (Status s = stream.record(*context.done); !s) return s;
    if (!must_wait(context, on_host)) return {};
    internal::add(internal::counters().host_syncs);
    if (Status s = stream.synchronize(); !s || on_host) return s;
    return each_host_output(context, [&](std::size_t binding, const Tensor& tensor, std::size_t bytes) {
      std::memcpy(tensor.mutable_data_ptr(), context.pinned[binding].data(), bytes);
      return Status();
    });
  }

  /// Whether the host has to see the end of the run: outputs in host memory, or extents that
  /// only the run tells. On the host device the caller's stream is asked to be waited for.
  bool must_wait(PooledContext& context, bool on_host) const {
    if (!on_host) return host_outputs_;
    if (!on_caller_stream_ || context.context->shapes_before_run()) return false;
    return std::any_of(handle_.outputs.begin(), handle_.outputs.end(), [](const Argument& output) {
      return output.alias_of < 0 && !output.shape.is_static();
    });
  }

  /// So that the next run binds the caches, and checks them, again.
  void forget_caches(PooledContext& context) {
    for (const Argument& input : handle_.inputs) {
      if (input.is_cache) context.bound[input.binding] = nullptr;
    }
  }

  Status copy_inputs(PooledContext& context, Stream& stream) {
    // An earlier run that nobody has waited for may still read the pinned memory.
    const bool pinned_is_free = context.done->done();
    for (std::size_t i = 0; i < handle_.inputs.size(); ++i) {
      const Tensor& tensor = args_[i]->toTensor();
      const std::size_t binding = handle_.inputs[i].binding;
      const void* source = tensor.const_data_ptr();
      if (context.bound[binding] == source) continue;
      if (pinned_is_free) {
        source = std::memcpy(context.pinned[binding].data(), source, tensor.nbytes());
      }
      if (Status s = stream.copy(context.bound[binding], source, tensor.nbytes()); !s) return s;
      if (handle_.inputs[i].is_cache) count_staged(tensor.nbytes());
    }
    return {};
  }

  static void count_staged(std::size_t bytes) { internal::add(internal::counters().kv_bytes_copied, bytes); }

  Status copy_outputs(PooledContext& context, Stream& stream) {
    for (std::size_t i = 0; i < handle_.inputs.size(); ++i) {
      if (is_staged_cache(context, i)) count_staged(args_[i]->toTensor().nbytes());
    }
    return each_host_output(context, [&](std::size_t binding, const Tensor&, std::size_t bytes) {
      host_outputs_ = true;
      return stream.copy(context.pinned[binding].data(), context.bound[binding], bytes);
    });
  }

  bool is_staged_cache(const PooledContext& context, std::size_t input) const {
    const Argument& argument = handle_.inputs[input];
    return argument.is_cache && context.bound[argument.binding] != args_[input]->toTensor().const_data_ptr();
  }

  /// Calls `copy(binding, tensor, bytes)` for each result that goes to host memory.
  template <typename Copy>
  Status each_host_output(const PooledContext& context, const Copy& copy) {
    for (std::size_t i = 0; i < handle_.inputs.size(); ++i) {
      if (!is_staged_cache(context, i)) continue;
      const Tensor& tensor = args_[i]->toTensor();
      if (Status s = copy(handle_.inputs[i].binding, tensor, tensor.nbytes()); !s) return s;
    }
    std::size_t next = handle_.inputs.size();
    for (const Argument& output : handle_.outputs) {
      if (output.alias_of >= 0) {
        next += aliased_present_ ? 1 : 0;
        continue;
      }
      const Tensor& tensor = args_[next++]->toTensor();
      if (!tensor.device().is_cpu()) continue;
      Result<Shape> shape = context.context->output_shape(output.binding);
      if (!shape) return shape.status();
      const std::size_t bytes =
          static_cast<std::size_t>(shape->elements().value_or(0)) * size_of(output.dtype);
      if (Status s = copy(output.binding, tensor, bytes); !s) return s;
    }
    return {};
  }

  Status resize_outputs(PooledContext& context) {
    std::size_t next = handle_.inputs.size();
    for (const Argument& output : handle_.outputs) {
      if (output.alias_of >= 0) {
        next += aliased_present_ ? 1 : 0;
        continue;
      }
      Tensor& tensor = args_[next++]->toTensor();
      if (output.shape.is_static()) continue;
      Result<Shape> shape = context.context->output_shape(output.binding);
      if (!shape) return shape.status();
      if (Status s = resize_output(output, tensor, *shape); !s) return s;
    }
    return {};
  }

  Handle& handle_;
  et::Span<et::EValue*> args_;
  std::span<State* const> states_;
  std::span<State* const> written_;  ///< The first of them.
  std::int64_t count_ = 1;
  bool aliased_present_ = false;
  bool on_caller_stream_ = false;
  bool host_outputs_ = false;
};

}  // namespace

Status run(Handle& handle, et::Span<et::EValue*> args) {
  const Running running(handle.running);
  if (!running.entered()) {
    return {Code::kBusy,
            "this loaded method is running on another thread: load a Module or Program for each thread"};
  }
  Run run(handle, args);
  if (Status s = run.plan(); !s) return s;
  return run.execute();
}

}  // namespace etrt
