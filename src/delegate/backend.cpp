#include <executorch/runtime/backend/interface.h>

#include <cstring>
#include <memory>
#include <string>

#include "base/format.h"
#include "base/last_error.h"
#include "delegate/error.h"
#include "delegate/load.h"
#include "delegate/run.h"

namespace etrt {

namespace et = executorch::runtime;

et::Error report(const Status& status, const char* method) {
  if (status.ok()) return et::Error::Ok;
  std::string text =
      method == nullptr || *method == '\0'
          ? formatted("{}: {}", to_string(status.code()), status.message())
          : formatted("{}: method \"{}\": {}", to_string(status.code()), method, status.message());
  ET_LOG(Error, "etrt: %s", text.c_str());
  internal::set_last_error(std::move(text));
  switch (status.code()) {
    case Code::kOk:
      return et::Error::Ok;
    case Code::kInvalidArgument:
      return et::Error::InvalidArgument;
    case Code::kInvalidData:
      return et::Error::InvalidProgram;
    case Code::kUnsupported:
      return et::Error::NotSupported;
    case Code::kNotFound:
      return et::Error::NotFound;
    case Code::kNoSession:
    case Code::kBusy:
    case Code::kFailed:
      return et::Error::InvalidState;
    case Code::kOutOfRange:
      return et::Error::InvalidArgument;
    case Code::kOutOfMemory:
      return et::Error::MemoryAllocationFailed;
    case Code::kDevice:
      return et::Error::AccessFailed;
    case Code::kInternal:
      return et::Error::Internal;
  }
  return et::Error::Internal;
}

namespace {

constexpr const char* kBudgetKey = "weight_streaming_budget";

constexpr const char* kStageKey = "stage_host_caches";

/// An option as the caller of load() gives it, else as the program's compile specs do, else "".
std::string option(et::BackendInitContext& context, et::ArrayRef<et::CompileSpec> specs, const char* key) {
  if (const auto given = context.get_runtime_spec<const char*>(key); given.ok()) return *given;
  if (const auto number = context.get_runtime_spec<int>(key); number.ok()) return std::to_string(*number);
  if (const auto flag = context.get_runtime_spec<bool>(key); flag.ok()) return *flag ? "1" : "0";
  for (const et::CompileSpec& spec : specs) {
    if (std::strcmp(spec.key, key) != 0) continue;
    std::string text(static_cast<const char*>(spec.value.buffer), spec.value.nbytes);
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }
  return {};
}

Result<LoadOptions> read_options(et::BackendInitContext& context, et::ArrayRef<et::CompileSpec> specs) {
  LoadOptions options;
  const std::string stage = option(context, specs, kStageKey);
  if (!stage.empty() && stage != "0" && stage != "1") {
    return Status(Code::kInvalidArgument, formatted("{} is \"{}\"; expected 0 or 1", kStageKey, stage));
  }
  options.stage_host_caches = stage == "1";
  const std::string text = option(context, specs, kBudgetKey);
  if (text.empty()) return options;
  char* end = nullptr;
  errno = 0;
  options.weight_streaming_budget = std::strtoll(text.c_str(), &end, 10);
  if (errno != 0 || *end != '\0' || options.weight_streaming_budget < 0) {
    return Status(Code::kInvalidArgument,
                  formatted("{} is \"{}\"; expected a decimal number of bytes", kBudgetKey, text));
  }
  return options;
}

class TensorRTBackend final : public et::BackendInterface {
 public:
  bool is_available() const override { return true; }

  et::Result<et::DelegateHandle*> init(et::BackendInitContext& context, et::FreeableBuffer* processed,
                                       et::ArrayRef<et::CompileSpec> specs) const override {
    const char* method = context.get_method_name();
    Result<LoadOptions> options = read_options(context, specs);
    if (!options) return report(options.status(), method);
    Result<std::unique_ptr<Handle>> handle =
        load_handle({static_cast<const std::byte*>(processed->data()), processed->size()},
                    context.get_named_data_map(), method, *options);
    processed->Free();
    if (!handle) return report(handle.status(), method);
    return static_cast<et::DelegateHandle*>(handle->release());
  }

  et::Error execute(et::BackendExecutionContext&, et::DelegateHandle* opaque,
                    et::Span<et::EValue*> args) const override {
    auto& handle = *static_cast<Handle*>(opaque);
    const Status status = run(handle, args);
    return status.ok() ? et::Error::Ok : report(status, handle.method.c_str());
  }

  void destroy(et::DelegateHandle* opaque) const override { delete static_cast<Handle*>(opaque); }
};

/// Registers when the library is loaded.
struct Registration {
  Registration() {
    static TensorRTBackend backend;
    const et::Error error = et::register_backend({"TensorRTBackend", &backend});
    if (error != et::Error::Ok) {
      ET_LOG(
          Error,
          "etrt: ExecuTorch refused the backend \"TensorRTBackend\" (error 0x%x): another TensorRT delegate "
          "is in this process, load only one",
          static_cast<unsigned>(error));
    }
  }
} registration;

}  // namespace

}  // namespace etrt
