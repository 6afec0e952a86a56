#include "delegate/model.h"

#include <cstdlib>
#include <utility>

namespace etrt::test {

namespace et = executorch::runtime;
using executorch::aten::ScalarType;
using executorch::extension::make_tensor_ptr;
using executorch::extension::TensorPtr;

std::string models_folder() {
  const char* folder = std::getenv("ETRT_TEST_MODELS");
  return folder == nullptr ? ETRT_TEST_MODELS : folder;
}

std::vector<float> Model::run(const std::string& method, const std::vector<std::int64_t>& tokens,
                              const std::vector<std::int64_t>& position, std::int64_t rows) {
  const auto columns = static_cast<std::int32_t>(static_cast<std::int64_t>(tokens.size()) / rows);
  return run(method, {integers(method, 0, {static_cast<std::int32_t>(rows), columns}, tokens),
                      integers(method, 1, {static_cast<std::int32_t>(position.size())}, position)});
}

std::vector<float> Model::run(const std::string& method, const std::vector<float>& values,
                              const std::vector<std::int32_t>& shape,
                              const std::vector<std::int64_t>& position) {
  std::vector<TensorPtr> inputs{make_tensor_ptr(shape, values)};
  if (!position.empty()) {
    inputs.push_back(integers(method, 1, {static_cast<std::int32_t>(position.size())}, position));
  }
  return run(method, std::move(inputs));
}

std::vector<float> Model::run(const std::string& method, std::vector<TensorPtr> inputs) {
  std::vector<et::EValue> values;
  for (const TensorPtr& input : inputs) values.emplace_back(*input);
  auto outputs = module_.execute(method, values);
  error_ = outputs.error();
  if (!outputs.ok()) return {};
  const auto& first = outputs->front().toTensor();
  const float* data = first.const_data_ptr<float>();
  return {data, data + first.numel()};
}

TensorPtr Model::integers(const std::string& method, std::size_t index, std::vector<std::int32_t> shape,
                          const std::vector<std::int64_t>& values) {
  const auto meta = module_.method_meta(method);
  const auto info = meta.ok() ? meta->input_tensor_meta(index) : et::Result<et::TensorInfo>(meta.error());
  if (info.ok() && info->scalar_type() == ScalarType::Int) {
    return make_tensor_ptr(std::move(shape), std::vector<std::int32_t>(values.begin(), values.end()));
  }
  return make_tensor_ptr(std::move(shape), values);
}

}  // namespace etrt::test
