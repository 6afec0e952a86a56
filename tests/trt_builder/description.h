#pragma once

#include <NvInfer.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace etrt::trt_builder {

struct DescribedState {
  std::string input;
  int sequence_dim = -1;            ///< -1: no sequence.
  bool swap = false;                ///< Its output must be other memory than its input.
  std::vector<float> initial = {};  ///< Empty: zeros.
};

/// What the plan doesn't say of itself.
struct Description {
  /// Method -> least and greatest extent of the inputs' one dynamic dim; in the order of the profiles.
  std::vector<std::pair<std::string, std::pair<std::int64_t, std::int64_t>>> profiles;
  std::map<std::string, std::string> aliases;    ///< Output -> input.
  std::map<std::string, DescribedState> states;  ///< By id.
  std::string position;                          ///< Empty: none.
};

/// Writes `description` as a bindings file of `etrt wrap`.
void write(const Description& description, const nvinfer1::INetworkDefinition& network,
           const std::filesystem::path& path);

}  // namespace etrt::trt_builder
