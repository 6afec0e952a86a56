#pragma once

#include <memory>

#include "etrt/status.h"
#include "etrt/types.h"

namespace etrt {

class Device;
class Stream;

/// Selects, on this thread, the stream that runs are queued on until the scope ends, in place
/// of the delegates' own. Scopes nest; the inner one wins. End scopes in reverse order, on
/// the thread that began them.
///
/// Runs on this stream are in order with other work that the caller queues on it, such as
/// another delegate's, and the host waits for nothing but outputs in host memory. So inputs
/// and caller-owned caches must stay valid until the stream has passed the run; positions
/// are read by the host when the run is called. What goes wrong after a run is queued comes
/// from the stream; the session then has to be reset.
///
/// A delegate whose engine is on another device uses its own stream. Without a scope,
/// ExecuTorch's CallerStreamGuard selects the stream where that extension is loaded.
class StreamScope {
 public:
  /// `cuda_stream`: a cudaStream_t of CUDA device `device`, valid until the scope ends;
  /// nullptr is CUDA's default stream. If the device isn't there, runs on it say so.
  explicit StreamScope(void* cuda_stream, int device = 0) noexcept;
  /// A stream of one of etrt's own devices (src/device/device.h), such as a worker queue of
  /// the host device: runs there return once they are queued, and outputs hold their values
  /// once the stream has passed the run.
  explicit StreamScope(Stream& stream) noexcept;
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

  /// For etrt's own layers: the stream of the innermost scope on this thread, if that is one
  /// of `device`; nullptr if not, or if there is no scope. Errors: kDevice.
  static Result<Stream*> innermost(Device& device);

 private:
  DeviceId device_;
  void* cuda_stream_ = nullptr;
  Stream* stream_ = nullptr;          ///< nullptr until a run first needs cuda_stream_.
  std::unique_ptr<Stream> borrowed_;  ///< cuda_stream_, as a Stream.
  StreamScope* previous_;
};

}  // namespace etrt
