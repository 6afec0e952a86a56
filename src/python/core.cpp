// The Python module etrt._core: sessions, counters, errors. Importing it loads the delegate
// library, which registers the backend with ExecuTorch.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/last_error.h"
#include "engine/engine.h"
#include "etrt/etrt.h"
#include "python/engines.h"
#include "python/status_error.h"

namespace nb = nanobind;
using namespace nb::literals;

using etrt::python::check;
using etrt::python::StatusError;

namespace {

nb::dlpack::dtype dlpack_type(etrt::DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto bits = static_cast<std::uint8_t>(etrt::size_of(dtype) * 8);
  switch (dtype) {
    case etrt::DType::kFloat32:
    case etrt::DType::kFloat16:
    case etrt::DType::kFloat64:
      return {static_cast<std::uint8_t>(Code::Float), bits, 1};
    case etrt::DType::kBFloat16:
      return {static_cast<std::uint8_t>(Code::Bfloat), bits, 1};
    case etrt::DType::kUInt8:
      return {static_cast<std::uint8_t>(Code::UInt), bits, 1};
    case etrt::DType::kBool:
      return {static_cast<std::uint8_t>(Code::Bool), bits, 1};
    default:
      return {static_cast<std::uint8_t>(Code::Int), bits, 1};
  }
}

/// What a view keeps alive: the session's memory, and what the session has adopted.
struct Kept {
  std::shared_ptr<etrt::internal::SessionImpl> session;
  nb::object adopted;
};

/// The state's memory as a DLPack array that keeps it alive.
nb::object view(const etrt::Session& session, std::string_view id, std::string_view model_id,
                const nb::object& adopted) {
  etrt::Result<etrt::TensorView> found = session.view(id, model_id);
  check(found.status());
  std::vector<std::size_t> shape;
  for (const std::int64_t extent : found->shape.dims()) shape.push_back(static_cast<std::size_t>(extent));
  nb::capsule owner(new Kept{session.impl(), adopted},
                    [](void* p) noexcept { delete static_cast<Kept*>(p); });
  const bool cuda = found->device.type == etrt::DeviceType::kCuda;
  return nb::cast(
      nb::ndarray<>(found->data, shape.size(), shape.data(), owner, nullptr, dlpack_type(found->dtype),
                    cuda ? nb::device::cuda::value : nb::device::cpu::value, found->device.index));
}

void adopt(etrt::Session& session, std::string_view id, std::uintptr_t data, const std::string& dtype,
           const std::vector<std::int64_t>& shape, int cuda_device, std::int64_t length,
           std::string_view model_id) {
  const std::optional<etrt::DType> type = etrt::dtype_from_string(dtype);
  if (!type) check({etrt::Code::kInvalidArgument, "a state can't be of dtype " + dtype});
  if (shape.size() > etrt::Shape::kMaxRank) {
    check({etrt::Code::kInvalidArgument, "a state has at most " + std::to_string(etrt::Shape::kMaxRank) +
                                             " dims, the memory has " + std::to_string(shape.size())});
  }
  etrt::TensorView memory{reinterpret_cast<void*>(data), *type, etrt::Shape(std::span(shape)), {}};
  if (cuda_device >= 0) memory.device = {etrt::DeviceType::kCuda, cuda_device};
  check(session.adopt(id, memory, length, model_id));
}

nb::dict to_dict(const etrt::StateInfo& state) {
  nb::dict d;
  d["model_id"] = state.model_id;
  d["id"] = state.id;
  d["dtype"] = etrt::to_string(state.dtype);
  d["shape"] = std::vector<std::int64_t>(state.shape.dims().begin(), state.shape.dims().end());
  d["sequence_dim"] = state.sequence_dim < 0 ? nb::none() : nb::object(nb::int_(state.sequence_dim));
  d["update"] = state.update == etrt::Update::kSwap ? "swap" : "in_place";
  d["device"] = etrt::to_string(state.device);
  d["bytes"] = state.bytes;
  d["lengths"] = state.lengths;
  return d;
}

nb::dict stats() {
  const etrt::Stats s = etrt::stats();
  nb::dict d;
  d["runs"] = s.runs;
  d["kv_bytes_copied"] = s.kv_bytes_copied;
  d["rebinds"] = s.rebinds;
  d["graph_replays"] = s.graph_replays;
  d["host_syncs"] = s.host_syncs;
  d["engines"] = s.engines;
  d["engine_bytes"] = s.engine_bytes;
  d["contexts"] = s.contexts;
  d["sessions"] = s.sessions;
  d["session_bytes"] = s.session_bytes;
  return d;
}

const char* name_of(etrt::SessionStatus status) {
  switch (status) {
    case etrt::SessionStatus::kReady:
      return "ready";
    case etrt::SessionStatus::kBusy:
      return "busy";
    case etrt::SessionStatus::kFailed:
      return "failed";
  }
  return "failed";
}

class Scope {
 public:
  explicit Scope(const etrt::Session& session) { scope_.emplace(session); }
  void close() { scope_.reset(); }

 private:
  std::optional<etrt::SessionScope> scope_;
};

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "Sessions, counters and errors of etrt; importing it registers the ExecuTorch backend.";

  const nb::object error_type = nb::module_::import_("etrt.errors").attr("EtrtError");
  m.attr("EtrtError") = error_type;
  nb::register_exception_translator(
      [](const std::exception_ptr& p, void* type) {
        try {
          std::rethrow_exception(p);
        } catch (const StatusError& e) {
          const nb::handle error(static_cast<PyObject*>(type));
          nb::object instance = error(e.status.message(), etrt::to_string(e.status.code()));
          PyErr_SetObject(error.ptr(), instance.ptr());
        }
      },
      error_type.ptr());

  nb::class_<etrt::Session>(m, "Session")
      .def(nb::init<>())
      .def("length", &etrt::Session::length)
      .def("bytes", &etrt::Session::bytes)
      .def_prop_ro("status", [](const etrt::Session& s) { return name_of(s.status()); })
      .def("states",
           [](const etrt::Session& s) {
             nb::list list;
             for (const etrt::StateInfo& state : s.states()) list.append(to_dict(state));
             return list;
           })
      .def(
          "reset", [](etrt::Session& s) { check(s.reset()); }, nb::call_guard<nb::gil_scoped_release>())
      .def("view", &view, "state_id"_a, "model_id"_a, "adopted"_a)
      .def("adopt", &adopt, "state_id"_a, "data"_a, "dtype"_a, "shape"_a, "cuda_device"_a, "length"_a,
           "model_id"_a);
  nb::class_<Scope>(m, "Scope").def(nb::init<const etrt::Session&>()).def("close", &Scope::close);

  m.def("set_default_session", &etrt::set_default_session, "session"_a.none());
  m.def("stats", &stats);
  m.def("engine_kinds", &etrt::engine_kinds);
  etrt::python::add_engine_functions(m);
  m.def("last_error", &etrt::last_error);
  m.def("clear_last_error", [] { etrt::internal::set_last_error({}); });
}
