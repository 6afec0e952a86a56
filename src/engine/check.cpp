#include "engine/check.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/format.h"

namespace etrt {

namespace {

std::string_view direction(bool is_input) { return is_input ? "an input" : "an output"; }

/// Each blob extent is one that the engine can have.
bool shapes_agree(const Shape& blob, const EngineBinding& engine) {
  if (blob.rank() != engine.max_shape.rank()) return false;
  for (std::size_t i = 0; i < blob.rank(); ++i) {
    if (blob[i] != -1 && (blob[i] < engine.min_shape[i] || blob[i] > engine.max_shape[i])) return false;
  }
  return true;
}

std::string range_text(const EngineBinding& engine) {
  if (engine.min_shape == engine.max_shape) return to_string(engine.max_shape);
  return formatted("{} to {}", to_string(engine.min_shape), to_string(engine.max_shape));
}

Status check_binding(const BlobBinding& blob, const EngineBinding& engine, const std::string& entry) {
  if (blob.is_input != engine.is_input) {
    return {Code::kInvalidData, formatted("binding \"{}\" is {} in the program and {} of the engine",
                                          blob.name, direction(blob.is_input), direction(engine.is_input))};
  }
  if (blob.dtype && *blob.dtype != engine.dtype) {
    return {
        Code::kInvalidData,
        formatted("binding \"{}\" is {} in the program and {} in the engine: export the program again with "
                  "this engine",
                  blob.name, to_string(*blob.dtype), to_string(engine.dtype))};
  }
  if (blob.shape && !shapes_agree(*blob.shape, engine)) {
    return {Code::kInvalidData,
            formatted("binding \"{}\" has shape {} in the program; the engine's entry \"{}\" allows {}",
                      blob.name, to_string(*blob.shape), entry, range_text(engine))};
  }
  return {};
}

/// The blob's bindings, matched with the entry's.
struct Match {
  const Blob& blob;
  const EngineEntry& entry;
  std::vector<std::size_t> entry_index;  // Of each of the blob's bindings.

  /// validate() has made sure that the blob has a binding of that name.
  std::size_t entry_index_of(const std::string& name) const {
    const auto it = std::find_if(blob.bindings.begin(), blob.bindings.end(),
                                 [&](const BlobBinding& b) { return b.name == name; });
    return entry_index[static_cast<std::size_t>(it - blob.bindings.begin())];
  }
  const EngineBinding& operator[](const std::string& name) const {
    return entry.bindings[entry_index_of(name)];
  }
  /// The program's name of the entry's binding.
  const std::string& name_of(std::size_t index) const {
    const auto it = std::find(entry_index.begin(), entry_index.end(), index);
    return blob.bindings[static_cast<std::size_t>(it - entry_index.begin())].name;
  }
};

/// Input and output can share memory at all: one element type, one static shape.
Status check_cache(const Match& match, const std::string& input_name, const std::string& output_name) {
  const EngineBinding& input = match[input_name];
  const EngineBinding& output = match[output_name];
  for (const EngineBinding* b : {&input, &output}) {
    if (!b->max_shape.elements() || b->min_shape != b->max_shape) {
      return {
          Code::kUnsupported,
          formatted("cache \"{}\" may be {} in the engine: a cache needs a static shape, since its memory "
                    "can't grow. Build the engine with a fixed capacity",
                    b == &input ? input_name : output_name, range_text(*b))};
    }
  }
  if (input.dtype != output.dtype || input.max_shape != output.max_shape) {
    return {
        Code::kInvalidData,
        formatted("input \"{}\" is {} {} in the engine and output \"{}\" is {} {}: they can't be one cache",
                  input_name, to_string(input.dtype), to_string(input.max_shape), output_name,
                  to_string(output.dtype), to_string(output.max_shape))};
  }
  return {};
}

Status check_alias(const Match& match, const BlobAlias& alias) {
  const EngineBinding& output = match[alias.output];
  if (output.declared_alias >= 0) {
    const auto declared = static_cast<std::size_t>(output.declared_alias);
    if (declared != match.entry_index_of(alias.input)) {
      return {
          Code::kInvalidData,
          formatted("output \"{}\" shares the memory of \"{}\" in the program, and of \"{}\" in the engine, "
                    "which enforces it: export the program again with this engine",
                    alias.output, alias.input, match.name_of(declared))};
    }
  } else if (match.entry.declares_aliases && alias.kind == AliasKind::kKvCacheUpdate) {
    return {
        Code::kInvalidData,
        formatted(
            "the program says that the engine updates \"{}\" in place through output \"{}\" "
            "(kv_cache_update), and the engine declares no such alias: export the program again with this "
            "engine, or give the alias kind \"user\"",
            alias.input, alias.output)};
  }
  return check_cache(match, alias.input, alias.output);
}

Status check_state(const Match& match, const BlobState& state) {
  const bool written = !state.output.empty();
  if (written) {
    if (Status s = check_cache(match, state.input, state.output); !s) return s;
  }
  const EngineBinding& input = match[state.input];
  if (state.dtype != input.dtype || state.shape != input.max_shape) {
    return {Code::kInvalidData,
            formatted(
                "state \"{}\" is {} {} in the program, and its binding \"{}\" is {} {} in the engine: export "
                "the program again with this engine",
                state.id, to_string(state.dtype), to_string(state.shape), state.input, to_string(input.dtype),
                to_string(input.max_shape))};
  }
  const int declared = written ? match[state.output].declared_alias : -1;
  if (state.update == Update::kSwap && declared >= 0) {
    return {
        Code::kInvalidData,
        formatted("state \"{}\" is swapped in the program (two buffers), and the engine demands that output "
                  "\"{}\" be the memory of \"{}\": export the program with in-place update",
                  state.id, state.output, match.name_of(static_cast<std::size_t>(declared)))};
  }
  return {};
}

/// Adds what the engine declares and the blob doesn't say.
Status add_declared(const Match& match, std::vector<BlobAlias>& aliases) {
  for (std::size_t i = 0; i < match.entry.bindings.size(); ++i) {
    const int declared = match.entry.bindings[i].declared_alias;
    if (declared < 0) continue;
    const std::string& output = match.name_of(i);
    const std::string& input = match.name_of(static_cast<std::size_t>(declared));
    if (std::any_of(aliases.begin(), aliases.end(), [&](const BlobAlias& a) { return a.output == output; }))
      continue;
    const auto other =
        std::find_if(aliases.begin(), aliases.end(), [&](const BlobAlias& a) { return a.input == input; });
    if (other != aliases.end()) {
      return {
          Code::kInvalidData,
          formatted(
              "input \"{}\" shares the memory of output \"{}\" in the program, and of \"{}\" in the engine, "
              "which enforces it: export the program again with this engine",
              input, other->output, output)};
    }
    if (Status s = check_cache(match, input, output); !s) return s;
    aliases.push_back({.output = output,
                       .input = input,
                       .kind = AliasKind::kKvCacheUpdate,
                       .ownership = Ownership::kCaller,
                       .state = {}});
  }
  return {};
}

/// Engines that name their bindings are matched by name, others by place among the
/// inputs and among the outputs.
Result<std::vector<std::size_t>> match_by_name(const Blob& blob, const EngineEntry& entry) {
  std::vector<std::size_t> matched;
  std::vector<bool> used(entry.bindings.size(), false);
  for (const BlobBinding& binding : blob.bindings) {
    const int index = entry.find(binding.name);
    if (index < 0) {
      return Status(
          Code::kNotFound,
          formatted("the program's {} \"{}\" isn't among the bindings of the engine's entry \"{}\": export "
                    "the program again with this engine",
                    binding.is_input ? "input" : "output", binding.name, entry.name));
    }
    matched.push_back(static_cast<std::size_t>(index));
    used[static_cast<std::size_t>(index)] = true;
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    return Status(
        Code::kNotFound,
        formatted("{} \"{}\" of the engine's entry \"{}\" isn't among the program's bindings: export the "
                  "program again with this engine",
                  entry.bindings[i].is_input ? "input" : "output", entry.bindings[i].name, entry.name));
  }
  return matched;
}

Result<std::vector<std::size_t>> match_by_place(const Blob& blob, const EngineEntry& entry) {
  std::vector<std::size_t> matched;
  for (const bool inputs : {true, false}) {
    const auto blobs = std::count_if(blob.bindings.begin(), blob.bindings.end(),
                                     [&](const BlobBinding& b) { return b.is_input == inputs; });
    const auto engines = std::count_if(entry.bindings.begin(), entry.bindings.end(),
                                       [&](const EngineBinding& b) { return b.is_input == inputs; });
    if (blobs != engines) {
      return Status(
          Code::kNotFound,
          formatted("the program has {} {}puts and the engine's entry \"{}\" has {}: export the program "
                    "again with this engine",
                    blobs, inputs ? "in" : "out", entry.name, engines));
    }
  }
  std::size_t next[2] = {0, 0};  // Where to go on looking for an output, an input.
  for (const BlobBinding& binding : blob.bindings) {
    std::size_t& i = next[binding.is_input ? 1 : 0];
    while (entry.bindings[i].is_input != binding.is_input) ++i;
    matched.push_back(i++);
  }
  return matched;
}

}  // namespace

Result<CheckedBindings> check_bindings(const Blob& blob, const EngineEntry& entry) {
  const bool named = std::none_of(entry.bindings.begin(), entry.bindings.end(),
                                  [](const EngineBinding& b) { return b.name.empty(); });
  Result<std::vector<std::size_t>> indices = named ? match_by_name(blob, entry) : match_by_place(blob, entry);
  if (!indices) return indices.status();
  const Match match{blob, entry, std::move(*indices)};
  for (std::size_t i = 0; i < blob.bindings.size(); ++i) {
    if (Status s = check_binding(blob.bindings[i], entry.bindings[match.entry_index[i]], entry.name); !s)
      return s;
  }
  for (const BlobState& state : blob.states) {
    if (Status s = check_state(match, state); !s) return s;
  }
  for (const BlobAlias& alias : blob.aliases) {
    if (Status s = check_alias(match, alias); !s) return s;
  }
  CheckedBindings checked;
  checked.aliases = blob.aliases;
  if (Status s = add_declared(match, checked.aliases); !s) return s;
  checked.entry_index = match.entry_index;
  return checked;
}

}  // namespace etrt
