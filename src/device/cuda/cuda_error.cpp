#include "device/cuda/cuda_error.h"

#include "base/format.h"

namespace etrt::internal {

// The errors that CUDA's reference marks with "this leaves the process in an inconsistent
// state and any further CUDA work will return the same error".
bool is_sticky(cudaError_t error) noexcept {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

Status cuda_status(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  if (cudaPeekAtLastError() == error) (void)cudaGetLastError();
  const Code code = error == cudaErrorMemoryAllocation ? Code::kOutOfMemory : Code::kDevice;
  return {code,
          formatted("cuda: {}: {} ({}){}", what, cudaGetErrorName(error), cudaGetErrorString(error),
                    is_sticky(error) ? ". CUDA refuses all further work in this process: end it and start "
                                       "again; compute-sanitizer can find the cause"
                                     : "")};
}

}  // namespace etrt::internal
