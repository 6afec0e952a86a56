#include "delegate/load.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/digest.h"
#include "base/format.h"
#include "blob/blob.h"
#include "delegate/engine_source.h"
#include "engine/check.h"

namespace etrt {

namespace {

/// Resolves the names of one blob against the entry of its engine.
class Loader {
 public:
  Loader(Handle& handle, const Blob& blob, const executorch::runtime::NamedDataMap* data)
      : handle_(handle), blob_(blob), data_(data) {}

  Status load(const LoadOptions& options) {
    if (Status s = find_engine(options); !s) return s;
    if (Status s = find_entry(); !s) return s;
    const EngineEntry& entry = handle_.engine->engine().entries()[handle_.entry];
    Result<CheckedBindings> checked = check_bindings(blob_, entry);
    if (!checked) return checked.status();
    for (std::size_t i = 0; i < blob_.bindings.size(); ++i) {
      binding_of_[blob_.bindings[i].name] = checked->entry_index[i];
    }
    add_arguments(entry, *checked);
    if (Status s = add_states(); !s) return s;
    if (Status s = add_position(); !s) return s;
    handle_.input_shapes.resize(handle_.inputs.size());
    handle_.stage_caches = options.stage_host_caches;
    return {};
  }

 private:
  Status find_engine(const LoadOptions& options) {
    EngineIdentity identity;
    identity.kind = blob_.engine_kind;
    identity.key = blob_.engine_key.empty() ? blob_.engine_digest : blob_.engine_key;
    identity.options.device_id = blob_.device_id;
    identity.options.hardware_compatible = blob_.hardware_compatible;
    identity.options.target_platform = blob_.target_platform;
    identity.options.weight_streaming_budget = options.weight_streaming_budget;
    if (identity.key.empty()) identity.key = digest(blob_.engine);
    Result<std::shared_ptr<SharedEngine>> engine =
        find_or_load_engine(identity, [&] { return engine_bytes(blob_, data_); });
    if (!engine) return engine.status();
    handle_.engine = std::move(*engine);
    return {};
  }

  Status find_entry() {
    const std::span<const EngineEntry> entries = handle_.engine->engine().entries();
    if (blob_.engine_entry.empty() && !entries.empty()) return {};  // Upstream's blobs use profile 0.
    const auto it = std::find_if(entries.begin(), entries.end(),
                                 [&](const EngineEntry& e) { return e.name == blob_.engine_entry; });
    if (it == entries.end()) {
      std::vector<std::string> names;
      for (const EngineEntry& e : entries) names.push_back(e.name);
      return {Code::kInvalidData, formatted("engine_entry \"{}\" isn't in the engine, which has: {}",
                                            blob_.engine_entry, joined(names))};
    }
    handle_.entry = static_cast<std::size_t>(it - entries.begin());
    return {};
  }

  bool is_session_binding(const std::string& name) const {
    return std::any_of(blob_.states.begin(), blob_.states.end(), [&](const BlobState& s) {
      return s.ownership == Ownership::kSession && (s.input == name || s.output == name);
    });
  }

  void add_arguments(const EngineEntry& entry, const CheckedBindings& checked) {
    for (std::size_t i = 0; i < blob_.bindings.size(); ++i) {
      const BlobBinding& declared = blob_.bindings[i];
      if (is_session_binding(declared.name)) continue;
      const EngineBinding& binding = entry.bindings[checked.entry_index[i]];
      Argument argument;
      argument.binding = checked.entry_index[i];
      argument.name = declared.name;
      argument.dtype = binding.dtype;
      argument.shape = declared.shape.value_or(binding.shape);
      argument.min = binding.min_shape;
      argument.max = binding.max_shape;
      // An engine without names knows upper bounds only; the blob says which extents vary.
      for (std::size_t d = 0; binding.name.empty() && d < argument.shape.rank(); ++d) {
        if (argument.shape[d] < 0) argument.min[d] = 1;
      }
      (declared.is_input ? handle_.inputs : handle_.outputs).push_back(std::move(argument));
    }
    for (Argument& output : handle_.outputs) {
      const auto alias = std::find_if(checked.aliases.begin(), checked.aliases.end(),
                                      [&](const BlobAlias& a) { return a.output == output.name; });
      if (alias != checked.aliases.end()) output.alias_of = input_argument(alias->input);
      if (output.alias_of < 0) {
        ++handle_.unaliased_outputs;
      } else {
        handle_.inputs[static_cast<std::size_t>(output.alias_of)].is_cache = true;
      }
    }
  }

  int input_argument(const std::string& name) const {
    const auto it = std::find_if(handle_.inputs.begin(), handle_.inputs.end(),
                                 [&](const Argument& a) { return a.name == name; });
    return it == handle_.inputs.end() ? -1 : static_cast<int>(it - handle_.inputs.begin());
  }

  Status add_states() {
    internal::StateRequest request;
    request.model_id = blob_.model_id;
    request.device = &handle_.engine->engine().device();
    std::vector<const BlobState*> states;
    for (const BlobState& state : blob_.states) {
      if (state.ownership == Ownership::kSession) states.push_back(&state);
    }
    // Those that a run commits first: see Handle::written_states.
    std::stable_partition(states.begin(), states.end(),
                          [](const BlobState* s) { return !s->output.empty(); });
    for (const BlobState* declared : states) {
      const BlobState& state = *declared;
      internal::StateSpec spec;
      spec.id = state.id;
      spec.dtype = state.dtype;
      spec.shape = state.shape;
      spec.sequence_dim = state.sequence_dim;
      spec.update = state.update;
      spec.initial_length = state.initial_length;
      if (!state.initial_key.empty()) {
        Result<std::vector<std::byte>> bytes =
            named_bytes(data_, state.initial_key, formatted("the initial value of state \"{}\"", state.id));
        if (!bytes) return bytes.status();
        if (bytes->size() != spec.bytes()) {
          return {Code::kInvalidData,
                  formatted("the initial value of state \"{}\" has {} bytes; {} {} has {}", state.id,
                            bytes->size(), to_string(state.dtype), to_string(state.shape), spec.bytes())};
        }
        spec.initial = std::make_shared<const std::vector<std::byte>>(std::move(*bytes));
      }
      handle_.states.push_back({binding_of_.at(state.input), 0});
      if (!state.output.empty()) {
        handle_.states.back().output = binding_of_.at(state.output);
        ++handle_.written_states;
      }
      request.specs.push_back(std::move(spec));
    }
    if (!request.specs.empty()) handle_.request = internal::intern(std::move(request));
    return {};
  }

  Status add_position() {
    if (!blob_.position) return {};
    PositionArgument position;
    position.argument = static_cast<std::size_t>(input_argument(blob_.position->input));
    position.count = blob_.position->count.value;
    if (const std::string& name = blob_.position->count.input; !name.empty()) {
      position.count_argument = input_argument(name);
      position.count_dim = static_cast<std::size_t>(blob_.position->count.dim);
    }
    std::optional<std::int64_t> rows;
    for (const BlobState& state : blob_.states) {
      if (state.sequence_dim < 0) continue;
      const std::int64_t capacity = state.shape[static_cast<std::size_t>(state.sequence_dim)];
      if (state.ownership == Ownership::kCaller && (position.capacity < 0 || capacity < position.capacity)) {
        position.capacity = capacity;
      }
      const std::int64_t own = state.sequence_dim > 0 ? state.shape[0] : 1;
      if (rows && *rows != own) {
        return {Code::kInvalidData, formatted("state \"{}\" has {} batch rows, others of the method have {}",
                                              state.id, own, *rows)};
      }
      rows = own;
    }
    position.rows = rows.value_or(1);
    handle_.position = position;
    handle_.positions.reserve(static_cast<std::size_t>(position.rows));
    return {};
  }

  Handle& handle_;
  const Blob& blob_;
  const executorch::runtime::NamedDataMap* data_;
  std::unordered_map<std::string, std::size_t> binding_of_;
};

}  // namespace

Result<std::unique_ptr<Handle>> load_handle(std::span<const std::byte> blob_bytes,
                                            const executorch::runtime::NamedDataMap* data, const char* method,
                                            const LoadOptions& options) {
  Result<Blob> blob = parse_blob(blob_bytes);
  if (!blob) return blob.status();
  auto handle = std::make_unique<Handle>();
  handle->method = method == nullptr ? "" : method;
  if (Status s = Loader(*handle, *blob, data).load(options); !s) return s;
  return Result<std::unique_ptr<Handle>>(std::move(handle));
}

}  // namespace etrt
