#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

#include "blob/checks.h"
#include "blob/words.h"

namespace etrt::internal {

namespace {

/// One state, the only one with its id. `path` is "states[i]".
class StateCheck {
 public:
  StateCheck(const Blob& blob, const BlobState& state, std::string path)
      : blob_(blob), state_(state), path_(std::move(path)) {}

  /// A state that the method writes in place is one alias; any other is none.
  Status alias() const {
    const bool aliased = state_.update == Update::kInPlace && !state_.output.empty();
    for (std::size_t i = 0; i < blob_.aliases.size(); ++i) {
      const BlobAlias& alias = blob_.aliases[i];
      const bool joins_output = !state_.output.empty() && alias.output == state_.output;
      if (alias.input != state_.input && !joins_output) continue;
      if (!aliased) {
        return invalid("{}.update: {}, but aliased_io[{}] joins output \"{}\" and input \"{}\"", path_,
                       state_.update == Update::kSwap ? "\"swap\"" : "the method only reads it", i,
                       alias.output, alias.input);
      }
      if (alias.input == state_.input && joins_output) return agrees_with(alias, i);
    }
    if (!aliased) return {};
    return invalid("{}.update: \"in_place\", but no alias joins output \"{}\" and input \"{}\"", path_,
                   state_.output, state_.input);
  }

  Status shape() const {
    if (Status s = check_extents(path_ + ".shape", state_.shape); !s) return s;
    const std::string shape_text = to_string(state_.shape);
    if (std::ranges::any_of(state_.shape.dims(), [](std::int64_t extent) { return extent < 1; })) {
      return invalid("{}.shape: {} has to be static and not empty", path_, shape_text);
    }
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(*state_.shape.elements(), size_of(state_.dtype), &bytes)) {
      return invalid("{}.shape: {} of {} is too large", path_, shape_text, to_string(state_.dtype));
    }
    return {};
  }

  Status matches(const BlobBinding& binding) const {
    if (binding.dtype && *binding.dtype != state_.dtype) {
      return invalid("{}.dtype: {} differs from {} of binding \"{}\"", path_, to_string(state_.dtype),
                     to_string(*binding.dtype), binding.name);
    }
    if (binding.shape && *binding.shape != state_.shape) {
      return invalid("{}.shape: {} differs from {} of binding \"{}\"", path_, to_string(state_.shape),
                     to_string(*binding.shape), binding.name);
    }
    return {};
  }

  Status sequence() const {
    if (Status s = check_text(path_ + ".initial_key", state_.initial_key); !s) return s;
    const int dim = state_.sequence_dim;
    if (dim < -1 || dim >= static_cast<int>(state_.shape.rank())) {
      return invalid("{}.sequence_dim: {} is no dim of {}", path_, dim, to_string(state_.shape));
    }
    if (state_.initial_length < 0) {
      return invalid("{}.initial_length: {} is negative", path_, state_.initial_length);
    }
    if (dim >= 0 && state_.initial_length > state_.shape[static_cast<std::size_t>(dim)]) {
      return invalid("{}.initial_length: {} passes the capacity of {} positions", path_,
                     state_.initial_length, state_.shape[static_cast<std::size_t>(dim)]);
    }
    return {};
  }

 private:
  Status agrees_with(const BlobAlias& alias, std::size_t index) const {
    if (alias.ownership != state_.ownership) {
      return invalid("{}.ownership: \"{}\" differs from \"{}\" of aliased_io[{}]", path_,
                     word_of(kOwnerships, state_.ownership), word_of(kOwnerships, alias.ownership), index);
    }
    if (alias.ownership == Ownership::kSession && alias.state != state_.id) {
      return invalid("{}.id: \"{}\" differs from \"{}\" of aliased_io[{}]", path_, state_.id, alias.state,
                     index);
    }
    return {};
  }

  const Blob& blob_;
  const BlobState& state_;
  std::string path_;
};

/// An input that is no state, so that the host sees it.
Result<const BlobBinding*> find_argument(const Blob& blob, const BindingTable& bindings,
                                         const std::string& path, const std::string& name) {
  Result<const BlobBinding*> binding = bindings.find(path, name, true);
  if (!binding) return binding;
  const auto state = std::ranges::find(blob.states, name, &BlobState::input);
  if (state == blob.states.end()) return binding;
  return invalid("{}: \"{}\" is states[{}], expected an input of the method", path, name,
                 state - blob.states.begin());
}

Status validate_count(const Blob& blob, const BindingTable& bindings) {
  const BlobCount& count = blob.position->count;
  if (count.input.empty()) {
    if (count.value >= 1) return {};
    return invalid("position.count.value: {} is less than 1", count.value);
  }
  const Result<const BlobBinding*> input = find_argument(blob, bindings, "position.count.input", count.input);
  if (!input) return input.status();
  const std::optional<Shape>& shape = (*input)->shape;
  if (count.dim < 0 || (shape && count.dim >= static_cast<int>(shape->rank()))) {
    return invalid("position.count.dim: {} is no dim of {} of \"{}\"", count.dim,
                   to_string(shape.value_or(Shape())), count.input);
  }
  return {};
}

}  // namespace

Status validate_states(const Blob& blob, const BindingTable& bindings) {
  std::unordered_map<std::string_view, std::size_t> ids;
  std::unordered_map<std::string_view, std::size_t> used;
  for (std::size_t i = 0; i < blob.states.size(); ++i) {
    const BlobState& state = blob.states[i];
    const std::string path = formatted("states[{}]", i);
    if (Status s = check_name(path + ".id", state.id); !s) return s;
    if (const auto [first, is_new] = ids.emplace(state.id, i); !is_new) {
      return invalid("{}.id: \"{}\" is the id of states[{}] already", path, state.id, first->second);
    }
    const BlobBinding* ends[2] = {nullptr, nullptr};  // Input and output; no output of one that is only read.
    for (const bool is_input : {true, false}) {
      const std::string& name = is_input ? state.input : state.output;
      if (!is_input && name.empty()) continue;
      const std::string end_path = path + (is_input ? ".input" : ".output");
      const Result<const BlobBinding*> binding = bindings.find(end_path, name, is_input);
      if (!binding) return binding.status();
      if (const auto [first, is_new] = used.emplace(name, i); !is_new) {
        return invalid("{}: \"{}\" belongs to states[{}] already", end_path, name, first->second);
      }
      ends[is_input ? 0 : 1] = *binding;
    }
    const StateCheck check(blob, state, path);
    if (Status s = check.alias(); !s) return s;
    if (Status s = check.shape(); !s) return s;
    for (const BlobBinding* binding : ends) {
      if (binding == nullptr) continue;
      if (Status s = check.matches(*binding); !s) return s;
    }
    if (Status s = check.sequence(); !s) return s;
  }
  return {};
}

Status validate_position(const Blob& blob, const BindingTable& bindings) {
  if (!blob.position) {
    for (std::size_t i = 0; i < blob.states.size(); ++i) {
      if (blob.states[i].sequence_dim < 0 || blob.states[i].output.empty()) continue;
      return invalid("position: is missing, but states[{}] has a sequence_dim", i);
    }
    return {};
  }
  const Result<const BlobBinding*> input =
      find_argument(blob, bindings, "position.input", blob.position->input);
  if (!input) return input.status();
  const BlobBinding& binding = **input;
  if (binding.dtype != DType::kInt32 && binding.dtype != DType::kInt64) {
    return invalid("position.input: \"{}\" is {}, expected int32 or int64", binding.name,
                   binding.dtype ? to_string(*binding.dtype) : "of unknown type");
  }
  if (binding.shape && binding.shape->rank() > 1) {
    return invalid(
        "position.input: \"{}\" is {}, expected a scalar, one position for each batch row, or consecutive "
        "indices",
        binding.name, to_string(*binding.shape));
  }
  return validate_count(blob, bindings);
}

}  // namespace etrt::internal
