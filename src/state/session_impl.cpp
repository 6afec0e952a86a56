#include "state/session_impl.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/format.h"
#include "base/stats_counters.h"

namespace etrt::internal {

SessionImpl::SessionImpl() noexcept { add(counters().sessions); }

SessionImpl::~SessionImpl() {
  for (auto& [key, state] : states_) {
    const auto order = std::ranges::find(orders_, state->device, &Order::device);
    if (order == orders_.end()) continue;
    // A copy of the initial value may be queued, and the value goes with the state.
    if (state->spec.initial != nullptr && !order->event->done())
      static_cast<void>(order->event->synchronize());
    for (Buffer& buffer : state->buffers) buffer.release_after(*order->event);
  }
  subtract(counters().session_bytes, bytes_);
  subtract(counters().sessions);
}

SessionImpl::Lease::~Lease() {
  if (session_ != nullptr) {
    session_->flags_.fetch_and(static_cast<std::uint8_t>(~kBusyFlag), std::memory_order_release);
  }
}

Result<std::span<State* const>> SessionImpl::Lease::states(const std::shared_ptr<const StateRequest>& request,
                                                           Stream& stream) {
  std::vector<Answer>& answers = session_->answers_;
  for (const Answer& answer : answers) {
    if (answer.request == request) return std::span<State* const>(answer.states);
  }
  // Requests that nobody else holds can't be asked for again.
  std::erase_if(answers, [](const Answer& answer) { return answer.request.use_count() == 1; });
  Result<std::vector<State*>> states = session_->find_or_create(*request, stream);
  if (!states.ok()) return states.status();
  answers.push_back({request, *std::move(states)});
  return std::span<State* const>(answers.back().states);
}

Status SessionImpl::Lease::order_after_previous(Stream& stream) {
  for (const Order& order : session_->orders_) {
    if (order.device == &stream.device()) return session_->order_after_previous(order, stream);
  }
  return {};
}

Status SessionImpl::Lease::restart(std::span<State* const> states, const PositionPlan& plan, Stream& stream) {
  if (!plan.restart) return {};
  for (State* state : states) {
    if (!starts_over(*state, plan)) continue;
    if (Status queued = initialise(*state, stream); !queued.ok()) return queued;
  }
  return {};
}

Status SessionImpl::Lease::record(Stream& stream) {
  Result<Order*> order = session_->order(stream.device());
  return order.ok() ? session_->record(**order, stream) : order.status();
}

void SessionImpl::Lease::commit(std::span<State* const> states, const PositionPlan& plan) {
  std::lock_guard lock(session_->mutex_);
  for (State* state : states) advance(*state, plan);
}

void SessionImpl::Lease::fail(const Status& why, Stream& stream) {
  // Without an event of this run, only the host can see to it that its work is over.
  if (!record(stream).ok()) static_cast<void>(stream.synchronize());
  {
    std::lock_guard lock(session_->mutex_);
    session_->failure_ = why.message();
  }
  session_->flags_.fetch_or(kFailedFlag, std::memory_order_relaxed);
}

Result<SessionImpl::Lease> SessionImpl::lease() {
  std::uint8_t flags = kReadyFlags;
  if (flags_.compare_exchange_strong(flags, kBusyFlag, std::memory_order_acquire)) return Lease(*this);
  return refusal(flags);
}

void SessionImpl::destroy() noexcept { flags_.fetch_or(kDestroyedFlag, std::memory_order_relaxed); }

Status SessionImpl::refusal(std::uint8_t flags) const {
  if ((flags & kDestroyedFlag) != 0) {
    return {Code::kNoSession,
            "the selected session has been destroyed: select another, and keep a Session alive "
            "for as long as it is selected"};
  }
  if ((flags & kBusyFlag) != 0) {
    return {Code::kBusy,
            "the session is in a run, on this thread or another, and takes one at a time: wait for that "
            "run, or use another session"};
  }
  std::lock_guard lock(mutex_);
  return {Code::kFailed,
          formatted("the session failed in an earlier run, and what its states hold is unknown: "
                    "reset() it, or use another. The failure was: {}",
                    failure_)};
}

std::int64_t SessionImpl::length() const {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::int64_t sequences = kNone;
  std::int64_t others = kNone;
  std::lock_guard lock(mutex_);
  for (const auto& [key, state] : states_) {
    std::int64_t& least = state->spec.is_sequence() ? sequences : others;
    least = std::min(least, std::ranges::min(state->lengths));
  }
  const std::int64_t least = sequences != kNone ? sequences : others;
  return least != kNone ? least : 0;
}

SessionStatus SessionImpl::status() const noexcept {
  const std::uint8_t flags = flags_.load(std::memory_order_relaxed);
  if ((flags & kBusyFlag) != 0) return SessionStatus::kBusy;
  return (flags & kFailedFlag) != 0 ? SessionStatus::kFailed : SessionStatus::kReady;
}

std::size_t SessionImpl::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

std::vector<StateInfo> SessionImpl::states() const {
  std::vector<StateInfo> infos;
  std::lock_guard lock(mutex_);
  infos.reserve(states_.size());
  for (const auto& [key, state] : states_) {
    infos.push_back({.model_id = state->model_id,
                     .id = state->spec.id,
                     .dtype = state->spec.dtype,
                     .shape = state->spec.shape,
                     .sequence_dim = state->spec.sequence_dim,
                     .update = state->spec.update,
                     .device = state->device->id(),
                     .bytes = state->bytes(),
                     .lengths = state->lengths});
  }
  return infos;
}

Status SessionImpl::reset() {
  std::uint8_t flags = flags_.load(std::memory_order_relaxed);
  do {
    if ((flags & ~kFailedFlag) != 0) return refusal(flags);
  } while (!flags_.compare_exchange_weak(flags, flags | kBusyFlag, std::memory_order_acquire));
  Lease lease(*this);
  for (Order& order : orders_) {
    if (order.own_stream != nullptr) continue;
    Result<std::unique_ptr<Stream>> stream = order.device->create_stream();
    if (!stream.ok()) return stream.status();
    order.own_stream = *std::move(stream);
  }
  for (Order& order : orders_) {
    if (Status queued = reinitialise(order); !queued.ok()) {
      lease.fail(queued, *order.own_stream);
      return queued;
    }
  }
  {
    std::lock_guard lock(mutex_);
    for (auto& [key, state] : states_) std::ranges::fill(state->lengths, state->spec.initial_length);
    failure_.clear();
  }
  flags_.fetch_and(static_cast<std::uint8_t>(~kFailedFlag), std::memory_order_relaxed);
  return {};
}

Status SessionImpl::reinitialise(Order& order) {
  Stream& stream = *order.own_stream;
  if (Status queued = order_after_previous(order, stream); !queued.ok()) return queued;
  for (auto& [key, state] : states_) {
    if (state->device != order.device) continue;
    if (Status queued = initialise(*state, stream); !queued.ok()) return queued;
  }
  return record(order, stream);
}

Result<TensorView> SessionImpl::view(std::string_view state_id, std::string_view model_id) {
  Result<Lease> lease = this->lease();
  if (!lease.ok()) return lease.status();
  const Result<State*> known = find(state_id, model_id);
  if (!known.ok()) return known.status();
  const State* found = *known;
  if (found == nullptr) return unknown_state(state_id, model_id, false);
  Result<Order*> order = this->order(*found->device);
  if (!order.ok()) return order.status();
  if (Status done = (*order)->event->synchronize(); !done.ok()) return done;
  return TensorView{.data = found->read(),
                    .dtype = found->spec.dtype,
                    .shape = found->spec.shape,
                    .device = found->device->id()};
}

Status SessionImpl::adopt(std::string_view state_id, const TensorView& memory, std::int64_t length,
                          std::string_view model_id) {
  Result<Lease> lease = this->lease();
  if (!lease.ok()) return lease.status();
  const Result<State*> known = find(state_id, model_id);
  if (!known.ok()) return known.status();
  if (*known == nullptr) {
    adoptions_.insert_or_assign({std::string(model_id), std::string(state_id)}, Adoption{memory, length});
    return {};
  }
  State& state = **known;
  Result<Order*> order = this->order(*state.device);
  if (!order.ok()) return order.status();
  if (Status done = (*order)->event->synchronize(); !done.ok()) return done;
  std::lock_guard lock(mutex_);
  const std::size_t before = state.bytes();
  if (Status adopted = internal::adopt(state, {memory, length}); !adopted.ok()) return adopted;
  bytes_ -= before;
  subtract(counters().session_bytes, before);
  return {};
}

Result<State*> SessionImpl::find(std::string_view state_id, std::string_view model_id) const {
  State* found = nullptr;
  for (const auto& [key, state] : states_) {
    if (key.second != state_id || (!model_id.empty() && key.first != model_id)) continue;
    if (found != nullptr) return unknown_state(state_id, model_id, true);
    found = state.get();
  }
  return found;
}

std::map<SessionImpl::Key, Adoption>::const_iterator SessionImpl::adoption_for(
    const std::string& model_id, const std::string& state_id) const {
  const auto exact = adoptions_.find({model_id, state_id});
  return exact != adoptions_.end() ? exact : adoptions_.find({std::string(), state_id});
}

Status SessionImpl::unknown_state(std::string_view state_id, std::string_view model_id,
                                  bool ambiguous) const {
  std::string known;
  for (const auto& [key, state] : states_) {
    if (ambiguous && key.second != state_id) continue;
    known += formatted("{}\"{}\" of model \"{}\"", known.empty() ? "" : ", ", key.second, key.first);
  }
  if (ambiguous) {
    return {Code::kInvalidArgument,
            formatted("several models have such a state ({}): say which model", known)};
  }
  if (known.empty()) known = "none yet: a run makes the states that it needs";
  return {Code::kNotFound, formatted("the session has no state \"{}\"{}; it has {}", state_id,
                                     model_id.empty() ? "" : formatted(" of model \"{}\"", model_id), known)};
}

Result<SessionImpl::Order*> SessionImpl::order(Device& device) {
  const auto found = std::ranges::find(orders_, &device, &Order::device);
  if (found != orders_.end()) return &*found;
  Result<std::unique_ptr<Event>> event = device.create_event();
  if (!event.ok()) return event.status();
  orders_.push_back({.device = &device, .event = *std::move(event)});
  return &orders_.back();
}

Status SessionImpl::order_after_previous(const Order& order, Stream& stream) {
  return order.last_stream == stream.id() ? Status() : stream.wait(*order.event);
}

Status SessionImpl::record(Order& order, Stream& stream) {
  Status recorded = stream.record(*order.event);
  if (recorded.ok()) order.last_stream = stream.id();
  return recorded;
}

Result<State*> SessionImpl::find(const StateRequest& request, const StateSpec& spec) const {
  const auto found = states_.find({request.model_id, spec.id});
  if (found == states_.end()) return nullptr;
  State* state = found->second.get();
  if (state->device != request.device) {
    return Status(
        Code::kUnsupported,
        formatted("{} is on {} in this session, but this method runs on {}: states don't move between "
                  "devices; use another session",
                  describe(*state), to_string(state->device->id()), to_string(request.device->id())));
  }
  if (std::string text = difference(state->spec, spec); !text.empty()) {
    return Status(Code::kInvalidArgument,
                  formatted("{} {}: use another session, or give the files different model ids",
                            describe(*state), text));
  }
  return state;
}

Result<std::vector<State*>> SessionImpl::find_or_create(const StateRequest& request, Stream& stream) {
  // First what can be refused, then memory, then the queue: an error leaves no state behind.
  std::vector<State*> states;
  std::set<std::string_view> ids;
  for (const StateSpec& spec : request.specs) {
    if (!ids.insert(spec.id).second) {
      return Status(Code::kInvalidArgument,
                    formatted("the method names state \"{}\" of model \"{}\" twice: give "
                              "each its own id",
                              spec.id, request.model_id));
    }
    Result<State*> state = find(request, spec);
    if (!state.ok()) return state.status();
    states.push_back(*state);
  }
  Result<Order*> order = this->order(*request.device);
  if (!order.ok()) return order.status();

  std::vector<std::unique_ptr<State>> created;
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (states[i] != nullptr) continue;
    const auto adoption = adoption_for(request.model_id, request.specs[i].id);
    Result<std::unique_ptr<State>> state = create_state(
        request, request.specs[i], stream, adoption == adoptions_.end() ? nullptr : &adoption->second);
    if (!state.ok()) return state.status();
    states[i] = state->get();
    created.push_back(*std::move(state));
  }
  if (created.empty()) return states;

  Status queued = order_after_previous(**order, stream);
  for (const std::unique_ptr<State>& state : created) {
    const bool initialised = state->spec.initial == nullptr || state->adopted();
    if (queued.ok() && !initialised) queued = initialise(*state, stream);
  }
  if (queued.ok()) queued = record(**order, stream);
  if (!queued.ok()) {
    static_cast<void>(stream.synchronize());  // Copies that are queued read what goes away with `created`.
    return queued;
  }

  std::lock_guard lock(mutex_);
  for (std::unique_ptr<State>& state : created) {
    bytes_ += state->bytes();
    add(counters().session_bytes, state->bytes());
    Key key{state->model_id, state->spec.id};
    if (state->adopted()) adoptions_.erase(adoption_for(key.first, key.second));
    states_.emplace(std::move(key), std::move(state));
  }
  return states;
}

}  // namespace etrt::internal
