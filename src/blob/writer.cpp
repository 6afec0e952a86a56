#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/digest.h"
#include "blob/blob.h"
#include "blob/container.h"
#include "blob/words.h"

namespace etrt {

namespace {

using Json = nlohmann::ordered_json;
using internal::word_of;

BlobVersion version_for(const Blob& blob) {
  const auto is_session = [](const auto& item) { return item.ownership == Ownership::kSession; };
  if (std::ranges::any_of(blob.states, is_session) || std::ranges::any_of(blob.aliases, is_session)) {
    return BlobVersion::kTR03;
  }
  return blob.aliases.empty() ? BlobVersion::kTR01 : BlobVersion::kTR02;
}

Json shape_json(const Shape& shape) {
  Json extents = Json::array();
  for (const std::int64_t extent : shape.dims()) extents.push_back(extent);
  return extents;
}

Json binding_json(const BlobBinding& binding) {
  return {{"name", binding.name},
          {"dtype", binding.dtype ? to_string(*binding.dtype) : ""},
          {"shape", shape_json(binding.shape.value_or(Shape()))},
          {"is_input", binding.is_input}};
}

Json alias_json(const BlobAlias& alias, bool ours) {
  Json json = {
      {"output", alias.output}, {"input", alias.input}, {"kind", word_of(internal::kAliasKinds, alias.kind)}};
  if (ours) {
    json["ownership"] = word_of(internal::kOwnerships, alias.ownership);
    json["state"] = alias.state;
  }
  return json;
}

Json state_json(const BlobState& state) {
  return {{"id", state.id},
          {"input", state.input},
          {"output", state.output},
          {"update", word_of(internal::kUpdates, state.update)},
          {"ownership", word_of(internal::kOwnerships, state.ownership)},
          {"dtype", to_string(state.dtype)},
          {"shape", shape_json(state.shape)},
          {"sequence_dim", state.sequence_dim < 0 ? Json(nullptr) : Json(state.sequence_dim)},
          {"initial_key", state.initial_key},
          {"initial_length", state.initial_length}};
}

Json position_json(const BlobPosition& position) {
  Json json;
  json["input"] = position.input;
  Json& count = json["count"];
  if (position.count.input.empty()) {
    count["value"] = position.count.value;
  } else {
    count["input"] = position.count.input;
    count["dim"] = position.count.dim;
  }
  return json;
}

/// Upstream's keys in upstream's order, then ours: all in TR03, those that say something in
/// TR01 and TR02.
std::string metadata_text(const Blob& blob, bool ours) {
  Json json;
  json["io_bindings"] = Json::array();
  for (const BlobBinding& binding : blob.bindings) json["io_bindings"].push_back(binding_json(binding));
  json["aliased_io"] = Json::array();
  for (const BlobAlias& alias : blob.aliases) json["aliased_io"].push_back(alias_json(alias, ours));
  json["hardware_compatible"] = blob.hardware_compatible;
  json["device_id"] = blob.device_id;
  json["serialized_metadata"] = blob.serialized_metadata;
  json["target_platform"] = blob.target_platform;

  const auto add = [&](const char* key, const std::string& value, std::string_view unsaid) {
    if (ours || value != unsaid) json[key] = value;
  };
  const bool lacks_digest = blob.engine_digest.empty() && !blob.engine.empty();
  add("engine", blob.engine_kind, Blob().engine_kind);
  add("engine_entry", blob.engine_entry, "");
  add("engine_digest", lacks_digest ? digest(blob.engine) : blob.engine_digest, "");
  add("engine_key", blob.engine_key, "");
  add("model_id", blob.model_id, "");
  if (ours || !blob.states.empty()) {
    json["states"] = Json::array();
    for (const BlobState& state : blob.states) json["states"].push_back(state_json(state));
  }
  if (blob.position) json["position"] = position_json(*blob.position);
  // As Python's json.dumps(data, separators=(",", ":")).
  return json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/true);
}

}  // namespace

Result<std::vector<std::byte>> write_blob(const Blob& blob) {
  if (Status s = validate(blob); !s) return s;
  const BlobVersion version = version_for(blob);
  const std::string metadata = metadata_text(blob, version == BlobVersion::kTR03);
  return internal::join_container({version, metadata, blob.engine});
}

}  // namespace etrt
