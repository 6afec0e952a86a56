#include "trt_builder/build.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>

#include "trt_builder/network.h"

namespace etrt::trt_builder {

namespace {

class Logger final : public nvinfer1::ILogger {
 public:
  void log(Severity severity, const nvinfer1::AsciiChar* message) noexcept override {
    if (severity > Severity::kWARNING) return;
    if (severity < Severity::kWARNING) {
      errors_ += errors_.empty() ? "" : "; ";
      errors_ += message;
    } else if (std::getenv("ETRT_BUILDER_WARNINGS") != nullptr) {
      std::cerr << message << '\n';
    }
  }
  const std::string& errors() const noexcept { return errors_; }

 private:
  std::string errors_;
};

/// Input extents for a profile's least, usual and greatest.
void add_profiles(nvinfer1::IBuilder& builder, nvinfer1::IBuilderConfig& config,
                  const nvinfer1::INetworkDefinition& network, const Description& description) {
  using nvinfer1::OptProfileSelector;
  for (const auto& [method, range] : description.profiles) {
    nvinfer1::IOptimizationProfile* profile = builder.createOptimizationProfile();
    for (std::int32_t i = 0; i < network.getNbInputs(); ++i) {
      const ITensor& input = *network.getInput(i);
      const auto with = [&](std::int64_t extent) {
        nvinfer1::Dims dims = input.getDimensions();
        for (std::int32_t d = 0; d < dims.nbDims; ++d) {
          if (dims.d[d] < 0) dims.d[d] = static_cast<std::decay_t<decltype(dims.d[0])>>(extent);
        }
        return dims;
      };
      profile->setDimensions(input.getName(), OptProfileSelector::kMIN, with(range.first));
      profile->setDimensions(input.getName(), OptProfileSelector::kOPT,
                             with((range.first + range.second) / 2));
      profile->setDimensions(input.getName(), OptProfileSelector::kMAX, with(range.second));
    }
    if (config.addOptimizationProfile(profile) < 0)
      throw std::runtime_error("TensorRT refuses profile " + method);
  }
}

void configure(nvinfer1::IBuilderConfig& config, [[maybe_unused]] bool half) {
  if (const char* level = std::getenv("ETRT_BUILDER_LEVEL"); level != nullptr) {
    config.setBuilderOptimizationLevel(std::atoi(level));
  }
#if NV_TENSORRT_MAJOR != 1
  config.clearFlag(nvinfer1::BuilderFlag::kTF32);  // float32 means float32: tests compare bits.
#endif
#if NV_TENSORRT_MAJOR == 8
  config.setFlag(nvinfer1::BuilderFlag::kOBEY_PRECISION_CONSTRAINTS);
  if (half) config.setFlag(nvinfer1::BuilderFlag::kFP16);
  // Several contexts for one profile, as TensorRT 10 has it always.
  config.setPreviewFeature(nvinfer1::PreviewFeature::kPROFILE_SHARING_0806, true);
#endif
}

constexpr std::uint32_t network_flags() {
#if NV_TENSORRT_MAJOR == 8
  return 1U << static_cast<unsigned>(nvinfer1::NetworkDefinitionCreationFlag::kEXPLICIT_BATCH);
#elif NV_TENSORRT_MAJOR == 10
  return 1U << static_cast<unsigned>(nvinfer1::NetworkDefinitionCreationFlag::kSTRONGLY_TYPED);
#else
  return 0;  // Strongly typed always.
#endif
}

}  // namespace

void build(const AddModel& add, bool half, const std::filesystem::path& plan) {
  Logger logger;
  try {
    const std::unique_ptr<nvinfer1::IBuilder> builder(
        static_cast<nvinfer1::IBuilder*>(createInferBuilder_INTERNAL(&logger, getInferLibVersion())));
    if (!builder) throw std::runtime_error("no builder");
    const std::unique_ptr<nvinfer1::INetworkDefinition> definition(builder->createNetworkV2(network_flags()));
    const std::unique_ptr<nvinfer1::IBuilderConfig> config(builder->createBuilderConfig());
    Network network(*definition);
    const Description description = add(network);
    configure(*config, half);
    add_profiles(*builder, *config, *definition, description);
    const std::unique_ptr<nvinfer1::IHostMemory> bytes(builder->buildSerializedNetwork(*definition, *config));
    if (!bytes) throw std::runtime_error("no plan");
    std::ofstream file(plan, std::ios::binary);
    file.write(static_cast<const char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
    if (!file.flush()) throw std::runtime_error("can't write " + plan.string());
    write(description, *definition, std::filesystem::path(plan).replace_extension(".json"));
    std::cout << plan.string() << ": " << bytes->size() << " bytes" << std::endl;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(plan.stem().string() + ": " + error.what() + ": " + logger.errors());
  }
}

}  // namespace etrt::trt_builder
