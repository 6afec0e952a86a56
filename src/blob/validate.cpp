#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

#include "blob/blob.h"
#include "blob/checks.h"

namespace etrt {

namespace internal {

namespace {

/// Bytes of the UTF-8 sequence at the start of `text`; 0 if it isn't one. As RFC 3629: no
/// surrogates, nothing above U+10FFFF, nothing longer than needed.
std::size_t utf8_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (size == 0 || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < size; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return size;
}

}  // namespace

Status check_text(const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = utf8_sequence(text);
    if (size == 0) return invalid("{}: is no valid UTF-8", path);
    text.remove_prefix(size);
  }
  return {};
}

Status check_name(const std::string& path, std::string_view name) {
  if (Status s = check_text(path, name); !s) return s;
  if (name.find_first_not_of(" \t\n\r\f\v") == std::string_view::npos) return invalid("{}: is blank", path);
  if (name.find('\0') != std::string_view::npos) return invalid("{}: has a NUL in it", path);
  return {};
}

Status check_extents(const std::string& path, const Shape& shape) {
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    if (shape[i] < -1) {
      return invalid("{}[{}]: {} is negative; -1 says that it isn't known", path, i, shape[i]);
    }
  }
  if (shape.is_static() && !shape.elements()) return invalid("{}: {} is too large", path, to_string(shape));
  return {};
}

Status BindingTable::fill(const std::vector<BlobBinding>& bindings) {
  bindings_ = &bindings;
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    const BlobBinding& binding = bindings[i];
    const std::string path = formatted("io_bindings[{}]", i);
    if (Status s = check_name(path + ".name", binding.name); !s) return s;
    if (const auto [first, is_new] = index_.emplace(binding.name, i); !is_new) {
      return invalid("{}.name: \"{}\" is the name of io_bindings[{}] already", path, binding.name,
                     first->second);
    }
    if (!binding.shape) continue;
    if (Status s = check_extents(path + ".shape", *binding.shape); !s) return s;
  }
  return {};
}

Result<const BlobBinding*> BindingTable::find(const std::string& path, const std::string& name,
                                              bool is_input) const {
  if (Status s = check_name(path, name); !s) return s;
  const auto it = index_.find(name);
  if (it == index_.end()) return invalid("{}: \"{}\" is none of io_bindings", path, name);
  const BlobBinding& binding = (*bindings_)[it->second];
  if (binding.is_input != is_input) {
    return invalid("{}: \"{}\" is {}, expected {}", path, name, is_input ? "an output" : "an input",
                   is_input ? "an input" : "an output");
  }
  return &binding;
}

}  // namespace internal

namespace {

using internal::BindingTable;
using internal::check_name;
using internal::check_text;
using internal::invalid;

/// Whether one memory can be both, as far as both are known.
Status check_same_tensor(const std::string& path, const BlobBinding& output, const BlobBinding& input) {
  if (output.dtype && input.dtype && *output.dtype != *input.dtype) {
    return invalid("{}: output \"{}\" is {}, but input \"{}\" is {}", path, output.name,
                   to_string(*output.dtype), input.name, to_string(*input.dtype));
  }
  if (output.shape && input.shape && *output.shape != *input.shape) {
    return invalid("{}: output \"{}\" is {}, but input \"{}\" is {}", path, output.name,
                   to_string(*output.shape), input.name, to_string(*input.shape));
  }
  return {};
}

Status check_alias_state(const std::string& path, const BlobAlias& alias,
                         const std::vector<BlobState>& states) {
  if (alias.ownership == Ownership::kCaller) {
    if (alias.state.empty()) return {};
    return invalid("{}: \"{}\" is given, but the caller owns the memory", path, alias.state);
  }
  if (Status s = check_name(path, alias.state); !s) return s;
  const auto state = std::ranges::find(states, alias.state, &BlobState::id);
  if (state == states.end()) return invalid("{}: \"{}\" is none of the states", path, alias.state);
  if (state->input == alias.input && state->output == alias.output) return {};
  return invalid(
      "{}: joins output \"{}\" and input \"{}\", but states[{}] has output \"{}\" and input \"{}\"", path,
      alias.output, alias.input, state - states.begin(), state->output, state->input);
}

Status validate_aliases(const Blob& blob, const BindingTable& bindings) {
  std::unordered_map<std::string_view, std::size_t> outputs;
  std::unordered_map<std::string_view, std::size_t> inputs;
  for (std::size_t i = 0; i < blob.aliases.size(); ++i) {
    const BlobAlias& alias = blob.aliases[i];
    const std::string path = formatted("aliased_io[{}]", i);
    const Result<const BlobBinding*> output = bindings.find(path + ".output", alias.output, false);
    if (!output) return output.status();
    const Result<const BlobBinding*> input = bindings.find(path + ".input", alias.input, true);
    if (!input) return input.status();
    if (const auto [first, is_new] = outputs.emplace(alias.output, i); !is_new) {
      return invalid("{}.output: \"{}\" is in aliased_io[{}] already", path, alias.output, first->second);
    }
    if (const auto [first, is_new] = inputs.emplace(alias.input, i); !is_new) {
      return invalid("{}.input: \"{}\" is in aliased_io[{}] already", path, alias.input, first->second);
    }
    if (Status s = check_same_tensor(path, **output, **input); !s) return s;
    if (Status s = check_alias_state(path + ".state", alias, blob.states); !s) return s;
  }
  return {};
}

bool is_digest(std::string_view text) {
  constexpr std::string_view kPrefix = "xxh3:";
  return text.size() == kPrefix.size() + 16 && text.starts_with(kPrefix) &&
         text.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

Status validate_engine(const Blob& blob) {
  if (Status s = check_name("engine", blob.engine_kind); !s) return s;
  if (Status s = check_text("engine_entry", blob.engine_entry); !s) return s;
  if (Status s = check_text("engine_digest", blob.engine_digest); !s) return s;
  if (!blob.engine_digest.empty() && !is_digest(blob.engine_digest)) {
    return invalid("engine_digest: \"{}\" is not xxh3: and 16 lowercase hex digits", blob.engine_digest);
  }
  if (Status s = check_text("engine_key", blob.engine_key); !s) return s;
  if (!blob.engine_key.empty() && !blob.engine.empty()) {
    return invalid("engine_size: {}, but engine_key \"{}\" says that the bytes are elsewhere",
                   blob.engine.size(), blob.engine_key);
  }
  if (blob.engine_key.empty() && blob.engine.empty()) {
    return invalid("engine_size: 0, and no engine_key says where the engine is");
  }
  if (blob.engine.empty()) return {};
  return check_engine_digest(blob.engine, blob.engine_digest);
}

Status validate_model_id(const Blob& blob) {
  const auto is_session = [](const auto& item) { return item.ownership == Ownership::kSession; };
  if (std::ranges::any_of(blob.aliases, is_session) || std::ranges::any_of(blob.states, is_session)) {
    return check_name("model_id", blob.model_id);
  }
  return check_text("model_id", blob.model_id);
}

}  // namespace

Status validate(const Blob& blob) {
  BindingTable bindings;
  if (Status s = bindings.fill(blob.bindings); !s) return s;
  if (Status s = validate_aliases(blob, bindings); !s) return s;
  if (Status s = check_text("serialized_metadata", blob.serialized_metadata); !s) return s;
  if (Status s = check_text("target_platform", blob.target_platform); !s) return s;
  if (Status s = validate_engine(blob); !s) return s;
  if (Status s = validate_model_id(blob); !s) return s;
  if (Status s = internal::validate_states(blob, bindings); !s) return s;
  return internal::validate_position(blob, bindings);
}

}  // namespace etrt
