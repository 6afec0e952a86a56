// trt_builder FOLDER MODEL...: writes FOLDER/MODEL.plan and FOLDER/MODEL.json for this GPU.
// Models: append, tiny_decoder, tiny_decoder_half, tiny_batch2, gated_delta, initial, no_state,
// reverse, and smollm2:WEIGHTS.safetensors, in float16, from smollm2_weights.py.
// ETRT_BUILDER_LEVEL, 0 to 5, is TensorRT's optimization level: low ones build sooner.

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "device/device.h"
#include "trt_builder/build.h"
#include "trt_builder/decoder.h"
#include "trt_builder/small_models.h"
#include "trt_builder/weights.h"

namespace etrt::trt_builder {
namespace {

AddModel decoder(const DecoderConfig& config) {
  return [config](Network& network) {
    FormulaWeights weights;
    return add_decoder(network, weights, config);
  };
}

const std::map<std::string, AddModel>& models() {
  static const std::map<std::string, AddModel> all{
      {"append", add_append},
      {"tiny_decoder", decoder({})},
      {"tiny_decoder_half", decoder({.type = DataType::kHALF, .last_only = true})},
      {"tiny_batch2", decoder({.batch = 2})},
      {"gated_delta", add_gated_delta},
      {"initial", add_initial},
      {"no_state", add_no_state},
      {"reverse", add_reverse},
  };
  return all;
}

/// SmolLM2-135M.
DecoderConfig smollm2() {
  return {.layers = 30,
          .width = 576,
          .heads = 9,
          .kv_heads = 3,
          .inner = 1536,
          .vocabulary = 49152,
          .capacity = 2048,
          .most_tokens = 512,
          .rope_theta = 100000,
          .type = DataType::kHALF,
          .last_only = true};
}

int run(const std::filesystem::path& folder, const std::string& name) {
  if (const std::size_t colon = name.find(':'); colon != std::string::npos) {
    FileWeights weights(name.substr(colon + 1));
    build([&](Network& network) { return add_decoder(network, weights, smollm2()); }, /*half=*/true,
          folder / (name.substr(0, colon) + ".plan"));
    return 0;
  }
  const auto it = models().find(name);
  if (it == models().end()) {
    std::cerr << "no model " << name << "; there are:";
    for (const auto& [known, add] : models()) std::cerr << ' ' << known;
    std::cerr << ", smollm2:WEIGHTS.safetensors\n";
    return 2;
  }
  build(it->second, name.ends_with("_half"), folder / (name + ".plan"));
  return 0;
}

}  // namespace
}  // namespace etrt::trt_builder

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: trt_builder FOLDER MODEL...\n";
    return 2;
  }
  if (const auto device = etrt::find_device({etrt::DeviceType::kCuda, 0}); !device) {
    std::cout << "no plans are built: " << device.status().message() << '\n';
    return 77;  // What ctest knows as skipped.
  }
  try {
    std::filesystem::create_directories(argv[1]);
    for (int i = 2; i < argc; ++i) {
      if (const int code = etrt::trt_builder::run(argv[1], argv[i]); code != 0) return code;
    }
  } catch (const std::exception& error) {
    std::cerr << "trt_builder: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
