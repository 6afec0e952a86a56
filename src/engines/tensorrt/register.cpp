#include "base/log.h"
#include "engine/engine.h"
#include "engines/tensorrt/loader.h"
#include "engines/tensorrt/nvinfer_shim.h"

/// Makes the engine kind of the linked library known when this library is loaded.
namespace etrt::tensorrt {

namespace {

bool register_loader() {
  // Never destroyed: programs may be loaded while static objects end.
  static TensorRtLoader& loader = *new TensorRtLoader(&make_nvinfer_runtime, [](std::int32_t index) {
    return find_device({DeviceType::kCuda, index});
  });
  const Status status = register_engine_loader(linked_with_rtx() ? "tensorrt_rtx" : "tensorrt", loader);
  if (!status) log(LogLevel::kError, status.message());
  return status.ok();
}

[[maybe_unused]] const bool registered = register_loader();

}  // namespace

}  // namespace etrt::tensorrt
