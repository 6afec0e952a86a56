#include "trt_builder/weights.h"

#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>

namespace etrt::trt_builder {

namespace {

std::size_t count(const Extents& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  return static_cast<std::size_t>(elements);
}

}  // namespace

ITensor* FormulaWeights::constant(Network& network, const std::string& name, const Extents& shape,
                                  DataType type) {
  std::uint64_t seed = 0;
  for (const char c : name) seed = seed * 31 + static_cast<unsigned char>(c);
  std::vector<float> values(count(shape));
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Knuth's multiplicative hash, as in tests/python/models.py.
    values[i] = static_cast<float>((i + seed % 100003 * 7919) * 2654435761U % 65536U) / 65536.0F - 0.5F;
  }
  return network.constant(shape, values, type);
}

FileWeights::FileWeights(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error("can't read " + path.string());
  bytes_.resize(static_cast<std::size_t>(file.tellg()));
  file.seekg(0);
  file.read(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
  std::uint64_t header = 0;
  if (bytes_.size() < sizeof(header)) throw std::runtime_error(path.string() + " is no .safetensors file");
  std::memcpy(&header, bytes_.data(), sizeof(header));
  if (header > bytes_.size() - sizeof(header)) throw std::runtime_error(path.string() + " is truncated");
  const char* begin = bytes_.data() + sizeof(header);
  const auto json = nlohmann::json::parse(begin, begin + header);
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") continue;
    const std::string type = entry.at("dtype");
    if (type != "F32" && type != "F16") continue;
    tensors_[name] = {type == "F32" ? DataType::kFLOAT : DataType::kHALF, entry.at("shape").get<Extents>(),
                      begin + header + entry.at("data_offsets").at(0).get<std::size_t>()};
  }
}

ITensor* FileWeights::constant(Network& network, const std::string& name, const Extents& shape,
                               DataType type) {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) throw std::runtime_error("the file has no weights " + name);
  const Values& stored = it->second;
  if (stored.shape != shape) throw std::runtime_error("the file has another shape of " + name);
  if (stored.type == type) return network.constant(stored);
  std::vector<float> values(count(shape));
  const auto* data = static_cast<const std::byte*>(stored.data);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (stored.type == DataType::kFLOAT) {
      std::memcpy(&values[i], data + i * sizeof(float), sizeof(float));
    } else {
      _Float16 half{};
      std::memcpy(&half, data + i * sizeof(half), sizeof(half));
      values[i] = static_cast<float>(half);
    }
  }
  return network.constant(shape, values, type);
}

}  // namespace etrt::trt_builder
