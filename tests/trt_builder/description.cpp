#include "trt_builder/description.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "trt_builder/network.h"

namespace etrt::trt_builder {

namespace {

using Json = nlohmann::ordered_json;

std::string dtype_name(DataType type) {
  switch (type) {
    case DataType::kFLOAT:
      return "float32";
    case DataType::kHALF:
      return "float16";
    case DataType::kINT32:
      return "int32";
    default:
      throw std::runtime_error("no name for element type " + std::to_string(static_cast<int>(type)));
  }
}

Json describe(const ITensor& tensor, bool is_input) {
  Json shape = Json::array();
  const nvinfer1::Dims dims = tensor.getDimensions();
  for (std::int32_t i = 0; i < dims.nbDims; ++i) {
    if (dims.d[i] < 0) {
      shape.push_back("n");
    } else {
      shape.push_back(dims.d[i]);
    }
  }
  return {{"name", tensor.getName()},
          {"dtype", dtype_name(tensor.getType())},
          {"shape", shape},
          {"is_input", is_input}};
}

}  // namespace

void write(const Description& description, const nvinfer1::INetworkDefinition& network,
           const std::filesystem::path& path) {
  Json json;
  bool dynamic = false;
  for (std::int32_t i = 0; i < network.getNbInputs(); ++i) {
    json["bindings"].push_back(describe(*network.getInput(i), true));
    dynamic = dynamic || json["bindings"].back().at("shape").dump().find('n') != std::string::npos;
  }
  for (std::int32_t i = 0; i < network.getNbOutputs(); ++i) {
    json["bindings"].push_back(describe(*network.getOutput(i), false));
  }
  for (const auto& [output, input] : description.aliases) {
    bool layer = false;  // Network::append() has updated it.
    for (const auto& [id, state] : description.states) {
      layer = layer || (state.input == input && state.sequence_dim >= 0);
    }
    const char* kind = layer && has_kv_cache_update() ? "kv_cache_update" : "user";
    json["aliases"][output] = {{"input", input}, {"kind", kind}};
  }
  for (const auto& [id, state] : description.states) {
    json["states"][id] = {{"input", state.input}, {"update", state.swap ? "swap" : "in_place"}};
    if (state.sequence_dim >= 0) json["states"][id]["sequence_dim"] = state.sequence_dim;
    if (!state.initial.empty()) json["states"][id]["initial"] = state.initial;
  }
  if (!description.position.empty()) json["position"] = description.position;
  json["model_id"] = path.stem().string();
  std::size_t index = 0;
  for (const auto& [method, range] : description.profiles) {
    Json& profile = json["profiles"][method] = {{"index", index++}};
    if (dynamic) profile["extents"]["n"] = {range.first, range.second};
  }
  std::ofstream file(path);
  file << json.dump(1) << '\n';
  if (!file.flush()) throw std::runtime_error("can't write " + path.string());
}

}  // namespace etrt::trt_builder
