#include "state/state.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "base/format.h"

namespace etrt::internal {
namespace {

bool same_bytes(const std::vector<std::byte>* a, const std::vector<std::byte>* b) noexcept {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

/// "dim 2", "no dim".
std::string sequence_text(const StateSpec& spec) {
  return spec.is_sequence() ? formatted("dim {}", spec.sequence_dim) : "no dim";
}

std::string_view update_text(Update update) { return update == Update::kSwap ? "by swap" : "in place"; }

Status check(const StateSpec& spec) {
  if (!spec.shape.is_static() || spec.bytes() == std::numeric_limits<std::size_t>::max()) {
    return {Code::kInvalidArgument,
            formatted("has shape {}: a state needs extents that are known and whose bytes can be counted",
                      to_string(spec.shape))};
  }
  if (spec.bytes() == 0) {
    return {Code::kInvalidArgument,
            formatted("has shape {}: a state needs at least one element", to_string(spec.shape))};
  }
  if (spec.sequence_dim >= static_cast<int>(spec.shape.rank())) {
    return {Code::kInvalidArgument,
            formatted("has sequence dim {}, but shape {}", spec.sequence_dim, to_string(spec.shape))};
  }
  if (spec.initial != nullptr && spec.initial->size() != spec.bytes()) {
    return {Code::kInvalidArgument,
            formatted("has {} bytes of initial contents, but {} bytes as {} {}", spec.initial->size(),
                      spec.bytes(), to_string(spec.dtype), to_string(spec.shape))};
  }
  const std::int64_t most = spec.is_sequence() ? spec.capacity() : std::numeric_limits<std::int64_t>::max();
  if (spec.initial_length < 0 || spec.initial_length > most) {
    return {Code::kInvalidArgument,
            formatted("has initial length {}, but it has to be in [0, {}]", spec.initial_length, most)};
  }
  return {};
}

}  // namespace

std::size_t StateSpec::bytes() const noexcept {
  const std::optional<std::int64_t> elements = shape.elements();
  const std::size_t element = size_of(dtype);
  constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  if (!elements || static_cast<std::size_t>(*elements) > kNever / element) return kNever;
  return static_cast<std::size_t>(*elements) * element;
}

std::size_t StateSpec::rows() const noexcept {
  return sequence_dim > 0 ? static_cast<std::size_t>(shape[0]) : 1;
}

bool operator==(const StateSpec& a, const StateSpec& b) noexcept {
  return a.id == b.id && a.dtype == b.dtype && a.shape == b.shape && a.sequence_dim == b.sequence_dim &&
         a.update == b.update && a.initial_length == b.initial_length &&
         same_bytes(a.initial.get(), b.initial.get());
}

std::string difference(const StateSpec& present, const StateSpec& wanted) {
  const auto text = [](std::string_view verb, std::string a, std::string b) {
    return formatted("{} {} in this session, but this method declares {}", verb, a, b);
  };
  if (present.dtype != wanted.dtype || !(present.shape == wanted.shape)) {
    return text("is", formatted("{} {}", to_string(present.dtype), to_string(present.shape)),
                formatted("{} {}", to_string(wanted.dtype), to_string(wanted.shape)));
  }
  if (present.sequence_dim != wanted.sequence_dim) {
    return text("is a sequence along", sequence_text(present), sequence_text(wanted));
  }
  if (present.update != wanted.update) {
    return text("is updated", std::string(update_text(present.update)),
                std::string(update_text(wanted.update)));
  }
  if (present.initial_length != wanted.initial_length) {
    return text("has initial length", std::to_string(present.initial_length),
                std::to_string(wanted.initial_length));
  }
  if (!same_bytes(present.initial.get(), wanted.initial.get())) {
    return text("has", "one initial value", "another");
  }
  return {};
}

std::shared_ptr<const StateRequest> intern(StateRequest request) {
  // Never destroyed: programs with static lifetime may be unloaded after this would be.
  static std::mutex& mutex = *new std::mutex;
  static auto& known = *new std::vector<std::weak_ptr<const StateRequest>>;
  std::lock_guard lock(mutex);
  std::erase_if(known, [](const std::weak_ptr<const StateRequest>& entry) { return entry.expired(); });
  for (const std::weak_ptr<const StateRequest>& entry : known) {
    std::shared_ptr<const StateRequest> equal = entry.lock();
    if (equal != nullptr && *equal == request) return equal;
  }
  // Not make_shared: an entry whose request is gone then holds a control block, not the specs.
  std::shared_ptr<const StateRequest> added(new StateRequest(std::move(request)));
  known.push_back(added);
  return added;
}

std::string describe(const State& state) {
  return formatted("state \"{}\" of model \"{}\"", state.spec.id, state.model_id);
}

Status adopt(State& state, const Adoption& adoption) {
  const TensorView& memory = adoption.memory;
  const StateSpec& spec = state.spec;
  const auto refused = [&](Code code, const std::string& why) -> Status {
    return {code, formatted("{} can't adopt the memory: {}", describe(state), why)};
  };
  if (spec.update == Update::kSwap) {
    return refused(
        Code::kUnsupported,
        "it swaps between two buffers, so the memory would be left behind; copy to view() instead");
  }
  if (memory.dtype != spec.dtype || !(memory.shape == spec.shape)) {
    return refused(Code::kInvalidArgument,
                   formatted("it is {} {}, expected {} {}", to_string(memory.dtype), to_string(memory.shape),
                             to_string(spec.dtype), to_string(spec.shape)));
  }
  if (memory.device != state.device->id()) {
    return refused(Code::kInvalidArgument, formatted("it is on {}, expected {}", to_string(memory.device),
                                                     to_string(state.device->id())));
  }
  if (memory.data == nullptr) return refused(Code::kInvalidArgument, "it is a null pointer");
  if (memory.device.type != DeviceType::kHost &&
      reinterpret_cast<std::uintptr_t>(memory.data) % Device::kAlignment != 0) {
    return refused(Code::kInvalidArgument,
                   formatted("{} isn't aligned to {} bytes", memory.data, Device::kAlignment));
  }
  const std::int64_t most = spec.is_sequence() ? spec.capacity() : std::numeric_limits<std::int64_t>::max();
  if (adoption.length < 0 || adoption.length > most) {
    return refused(Code::kInvalidArgument,
                   formatted("its length is {}, expected one in [0, {}]", adoption.length, most));
  }
  state.buffers[0] = Buffer::borrow(memory.data, spec.bytes());
  state.lengths.assign(spec.rows(), adoption.length);
  return {};
}

Result<std::unique_ptr<State>> create_state(const StateRequest& request, const StateSpec& spec,
                                            Stream& stream, const Adoption* adoption) {
  auto state = std::make_unique<State>();
  state->model_id = request.model_id;
  state->spec = spec;
  state->device = request.device;
  if (Status valid = check(spec); !valid.ok()) {
    return Status(valid.code(), formatted("{} {}", describe(*state), valid.message()));
  }
  if (adoption != nullptr) {
    if (Status adopted = adopt(*state, *adoption); !adopted.ok()) return adopted;
    return state;
  }
  const int buffers = spec.update == Update::kSwap ? 2 : 1;
  for (int i = 0; i < buffers; ++i) {
    Result<Buffer> buffer = request.device->allocate_zeroed(spec.bytes(), stream);
    if (!buffer.ok()) {
      return Status(buffer.status().code(),
                    formatted("{} ({} {}) needs {} x {} bytes on {}: {}", describe(*state),
                              to_string(spec.dtype), to_string(spec.shape), buffers, spec.bytes(),
                              to_string(request.device->id()), buffer.status().message()));
    }
    state->buffers[i] = *std::move(buffer);
  }
  state->lengths.assign(spec.rows(), spec.initial_length);
  return state;
}

Status initialise(State& state, Stream& stream) {
  if (state.spec.initial != nullptr) {
    return stream.copy(state.read(), state.spec.initial->data(), state.spec.bytes());
  }
  return stream.fill(state.read(), 0, state.spec.bytes());
}

}  // namespace etrt::internal
