#include "delegate/plan_delegate.h"

#include <executorch/extension/tensor/tensor.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "blob/blob.h"
#include "engines/tensorrt/gpu/plans.h"

namespace etrt::test {

namespace et = executorch::runtime;
using Json = nlohmann::json;

namespace {

/// An extent that a profile fixes is static.
Shape shape_of(const Json& extents, const Json& profile) {
  std::vector<std::int64_t> shape;
  for (const Json& extent : extents) {
    if (extent.is_number()) {
      shape.push_back(extent);
    } else {
      const Json& range = profile.at("extents").at(extent.get<std::string>());
      shape.push_back(range.at(0) == range.at(1) ? range.at(0).get<std::int64_t>() : -1);
    }
  }
  return Shape(std::span<const std::int64_t>(shape));
}

/// What `etrt wrap` writes for a method: session-owned states of one engine.
Blob blob_of(const Json& json, const std::string& method) {
  const Json& profile = json.at("profiles").at(method);
  Blob blob;
  blob.engine_kind = find_engine_loader("tensorrt").ok() ? "tensorrt" : "tensorrt_rtx";
  blob.engine_entry = std::to_string(profile.at("index").get<int>());
  blob.model_id = json.at("model_id");
  for (const Json& binding : json.at("bindings")) {
    blob.bindings.push_back({binding.at("name"), dtype_from_string(binding.at("dtype").get<std::string>()),
                             shape_of(binding.at("shape"), profile), binding.at("is_input")});
  }
  for (const auto& [id, described] : json.at("states").items()) {
    BlobState state;
    state.id = id;
    state.input = described.at("input");
    state.sequence_dim = described.value("sequence_dim", -1);
    state.update = described.at("update") == "swap" ? Update::kSwap : Update::kInPlace;
    for (const auto& [output, alias] : json.at("aliases").items()) {
      if (alias.at("input") != state.input) continue;
      state.output = output;
      const AliasKind kind = alias.at("kind") == "user" ? AliasKind::kUser : AliasKind::kKvCacheUpdate;
      if (state.update == Update::kInPlace) {
        blob.aliases.push_back({output, state.input, kind, Ownership::kSession, id});
      }
    }
    for (const BlobBinding& binding : blob.bindings) {
      if (binding.name != state.input) continue;
      state.dtype = *binding.dtype;
      state.shape = *binding.shape;
    }
    blob.states.push_back(std::move(state));
  }
  if (json.contains("position")) {
    const bool one = shape_of(json.at("bindings").at(0).at("shape"), profile).is_static();
    BlobCount count;
    if (!one) count = {json.at("bindings").at(0).at("name"), 1, 1};
    blob.position = BlobPosition{json.at("position"), count};
  }
  return blob;
}

}  // namespace

PlanDelegate::PlanDelegate(const std::string& name, const std::vector<std::byte>& bytes,
                           const std::string& method)
    : backend_(et::get_backend_class("TensorRTBackend")) {
  std::ifstream file(plans_folder() / (name + ".json"));
  Blob blob = blob_of(Json::parse(file), method);
  for (const BlobBinding& binding : blob.bindings) {
    bool state = false;
    for (const BlobState& s : blob.states) state = state || s.output == binding.name;
    if (binding.is_input || state) continue;
    std::size_t count = 1;
    for (const std::int64_t extent : binding.shape->dims()) {
      output_shape_.push_back(static_cast<std::int32_t>(extent));
      count *= static_cast<std::size_t>(extent);
    }
    output_.resize(count);
  }
  blob.engine = bytes;
  const Result<std::vector<std::byte>> container = write_blob(blob);
  if (!container) throw std::runtime_error(container.status().message());
  et::MemoryAllocator allocator(0, nullptr);
  et::BackendInitContext context(&allocator, nullptr, method.c_str());
  et::FreeableBuffer processed(container->data(), container->size(), nullptr);
  auto handle = backend_->init(context, &processed, {});
  if (handle.ok()) handle_ = *handle;
}

PlanDelegate::~PlanDelegate() {
  if (handle_ != nullptr) backend_->destroy(handle_);
}

std::vector<float> PlanDelegate::run(const std::vector<std::int32_t>& tokens, std::int32_t position) {
  using executorch::aten::ScalarType;
  using executorch::extension::make_tensor_ptr;
  auto ids = make_tensor_ptr({1, static_cast<std::int32_t>(tokens.size())}, tokens);
  auto at = make_tensor_ptr({1}, std::vector<std::int32_t>{position});
  auto out = make_tensor_ptr(output_shape_, output_.data(), ScalarType::Float);
  std::array<et::EValue, 3> values{et::EValue(*ids), et::EValue(*at), et::EValue(*out)};
  std::array<et::EValue*, 3> arguments{&values[0], &values[1], &values[2]};
  et::BackendExecutionContext context;
  const et::Error error = backend_->execute(context, handle_, {arguments.data(), arguments.size()});
  return error == et::Error::Ok ? output_ : std::vector<float>{};
}

}  // namespace etrt::test
