
#include <optional>
#include <string>
#include <utility>

#include "base/digest.h"
#include "base/format.h"
#include "blob/blob.h"
#include "blob/container.h"
#include "blob/fields.h"
#include "blob/words.h"

namespace etrt {

namespace {

using internal::Container;
using internal::Fields;
using internal::Need;

BlobBinding read_binding(Fields& item) {
  BlobBinding binding;
  item.read("name", binding.name, Need::kRequired);
  item.read("dtype", binding.dtype, Need::kOptional);
  Shape shape;
  item.read("shape", shape, Need::kOptional);
  if (binding.dtype || shape.rank() > 0) binding.shape = shape;
  item.read("is_input", binding.is_input, Need::kRequired);
  return binding;
}

/// `ours`: of the keys that TR03 has to have.
BlobAlias read_alias(Fields& item, Need ours) {
  BlobAlias alias;
  item.read("output", alias.output, Need::kRequired);
  item.read("input", alias.input, Need::kRequired);
  item.read("kind", internal::kAliasKinds, alias.kind, ours);
  item.read("ownership", internal::kOwnerships, alias.ownership, ours);
  item.read("state", alias.state, ours);
  return alias;
}

BlobState read_state(Fields& item) {
  BlobState state;
  item.read("id", state.id, Need::kRequired);
  item.read("input", state.input, Need::kRequired);
  item.read("output", state.output, Need::kRequired);
  item.read("update", internal::kUpdates, state.update, Need::kRequired);
  item.read("ownership", internal::kOwnerships, state.ownership, Need::kRequired);
  item.read("dtype", state.dtype, Need::kRequired);
  item.read("shape", state.shape, Need::kRequired);
  if (!item.is_null("sequence_dim")) {
    item.read("sequence_dim", state.sequence_dim, Need::kRequired);
    if (state.sequence_dim < 0) {
      item.fail(item.path("sequence_dim"),
                formatted("{} is negative; null says that there is none", state.sequence_dim));
    }
  }
  item.read("initial_key", state.initial_key, Need::kOptional);
  item.read("initial_length", state.initial_length, Need::kOptional);
  return state;
}

BlobPosition read_position(Fields&& item) {
  BlobPosition position;
  item.read("input", position.input, Need::kRequired);
  Fields count = item.object("count");
  if (count.has("input") == count.has("value")) {
    count.fail(item.path("count"), formatted("has {} of input and value, expected one of them",
                                             count.has("input") ? "both" : "none"));
  } else if (count.has("value")) {
    count.read("value", position.count.value, Need::kRequired);
  } else {
    count.read("input", position.count.input, Need::kRequired);
    if (position.count.input.empty()) count.fail(count.path("input"), "is blank");
    count.read("dim", position.count.dim, Need::kRequired);
  }
  return position;
}

Result<Blob> read_metadata(const Container& parts) {
  const Result<nlohmann::json> json = internal::parse_json(parts.metadata);
  if (!json) return json.status();
  Blob blob;
  blob.version = parts.version;
  blob.engine = parts.engine;
  const Need ours = parts.version == BlobVersion::kTR03 ? Need::kRequired : Need::kOptional;

  Status status;
  Fields top(*json, "", status);
  top.for_each("io_bindings", Need::kRequired,
               [&](Fields& item) { blob.bindings.push_back(read_binding(item)); });
  top.for_each("aliased_io", parts.version == BlobVersion::kTR01 ? Need::kOptional : Need::kRequired,
               [&](Fields& item) { blob.aliases.push_back(read_alias(item, ours)); });
  top.read("hardware_compatible", blob.hardware_compatible, Need::kOptional);
  top.read("device_id", blob.device_id, Need::kOptional);
  top.read("serialized_metadata", blob.serialized_metadata, Need::kOptional);
  top.read("target_platform", blob.target_platform, Need::kOptional);
  top.read("engine", blob.engine_kind, ours);
  top.read("engine_entry", blob.engine_entry, Need::kOptional);
  top.read("engine_digest", blob.engine_digest, Need::kOptional);
  top.read("engine_key", blob.engine_key, Need::kOptional);
  top.read("model_id", blob.model_id, Need::kOptional);
  top.for_each("states", ours, [&](Fields& item) { blob.states.push_back(read_state(item)); });
  if (top.has("position")) blob.position = read_position(top.object("position"));
  if (!status) return status;
  return blob;
}

/// Whether the magic says of the metadata what it has to.
Status check_version(const Blob& blob) {
  const auto is_session = [](const auto& item) { return item.ownership == Ownership::kSession; };
  if (blob.version == BlobVersion::kTR03) {
    if (std::ranges::any_of(blob.states, is_session)) return {};
    return {Code::kInvalidData, "states: none is owned by the session, which magic TR03 says"};
  }
  if (blob.version == BlobVersion::kTR02 && blob.aliases.empty()) {
    return {Code::kInvalidData, "aliased_io: is empty, but magic TR02 says that there are aliases"};
  }
  const auto check = [&](const char* name, const auto& items) -> Status {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (!is_session(items[i])) continue;
      return {Code::kInvalidData, formatted("{}[{}].ownership: \"session\" needs magic TR03, the blob has {}",
                                            name, i, internal::word_of(internal::kMagics, blob.version))};
    }
    return {};
  };
  if (Status s = check("aliased_io", blob.aliases); !s) return s;
  return check("states", blob.states);
}

}  // namespace

Result<Blob> parse_blob(std::span<const std::byte> bytes) {
  const Result<Container> parts = internal::split_container(bytes);
  if (!parts) return parts.status();
  Result<Blob> blob = read_metadata(*parts);
  if (!blob) return blob;
  if (Status s = validate(*blob); !s) return s;
  if (Status s = check_version(*blob); !s) return s;
  return blob;
}

Status check_engine_digest(std::span<const std::byte> engine, const std::string& declared) {
  if (declared.empty()) return {};
  const std::string actual = digest(engine);
  if (actual == declared) return {};
  return {
      Code::kInvalidData,
      formatted("engine_digest: {} is declared, but the {} bytes of the engine have {}: the file is damaged",
                declared, engine.size(), actual)};
}

}  // namespace etrt
