#include "engines/tensorrt/standin.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/format.h"
#include "device/host/host_stream.h"

namespace etrt::tensorrt::standin {

namespace {

using nlohmann::json;

constexpr std::string_view kMagic = "stand-in plan\n";
constexpr int kVersion = 1;
enum Index : std::size_t { kCache, kUpdate, kPosition, kCacheOut, kY, kTensors };

/// One queued run: everything as it was when it was queued.
struct Run {
  std::int64_t batch, heads, capacity, head_dim, rows;
  std::array<void*, kTensors> addresses;
  float* scratch;
};

void compute(void* arg) {
  const std::unique_ptr<Run> run(static_cast<Run*>(arg));
  const auto* update = static_cast<const float*>(run->addresses[kUpdate]);
  const auto* position = static_cast<const std::int32_t*>(run->addresses[kPosition]);
  auto* cache_out = static_cast<float*>(run->addresses[kCacheOut]);
  const auto row_floats = static_cast<std::size_t>(run->head_dim);
  const auto cache_floats = static_cast<std::size_t>(run->batch * run->heads * run->capacity) * row_floats;
  if (run->addresses[kCache] != run->addresses[kCacheOut]) {
    std::memcpy(cache_out, run->addresses[kCache], cache_floats * sizeof(float));
  }
  float* y = run->scratch;  // Through scratch, so that two runs on one scratch show.
  for (std::int64_t b = 0; b < run->batch; ++b) {
    for (std::int64_t h = 0; h < run->heads; ++h) {
      const auto head = static_cast<std::size_t>(b * run->heads + h);
      float* rows = cache_out + head * static_cast<std::size_t>(run->capacity) * row_floats;
      for (std::int64_t t = 0; t < run->rows; ++t) {
        const std::int64_t row = position[b] + t;
        if (row < 0 || row >= run->capacity) continue;
        const float* from =
            update + (head * static_cast<std::size_t>(run->rows) + static_cast<std::size_t>(t)) * row_floats;
        std::copy_n(from, row_floats, rows + static_cast<std::size_t>(row) * row_floats);
      }
      for (std::int64_t t = 0; t < run->rows; ++t, y += row_floats) {
        std::fill_n(y, row_floats, 0.0F);
        for (std::int64_t r = 0; r <= position[b] + t && r < run->capacity; ++r) {
          for (std::size_t d = 0; d < row_floats; ++d)
            y[d] += rows[static_cast<std::size_t>(r) * row_floats + d];
        }
      }
    }
  }
  std::memcpy(run->addresses[kY], run->scratch,
              reinterpret_cast<char*>(y) - reinterpret_cast<char*>(run->scratch));
}

/// What a plan shares with its contexts.
struct Shared {
  Spec spec;
  std::shared_ptr<Control> control;
  std::vector<PlanTensor> tensors;
  std::vector<int> profile_users;
};

class StandInContext final : public PlanContext {
 public:
  StandInContext(Shared& shared, std::size_t profile) : shared_(&shared), profile_(profile) {
    const std::lock_guard lock(shared_->control->mutex);
    ++shared_->profile_users[profile_];
    ++shared_->control->contexts;
    ++shared_->control->contexts_made;
  }
  ~StandInContext() override {
    const std::lock_guard lock(shared_->control->mutex);
    --shared_->profile_users[profile_];
    --shared_->control->contexts;
    shared_->control->order += 'c';
  }

  Status set_input_shape(std::size_t tensor, const Shape& shape) override {
    const PlanTensor& t = shared_->tensors[tensor];
    if (!t.is_input || shape.rank() != t.shape.rank()) return error("setInputShape", t.name);
    for (std::size_t i = 0; i < shape.rank(); ++i) {
      if (t.shape[i] != -1 && shape[i] != t.shape[i]) return error("setInputShape", t.name);
    }
    if (tensor == kUpdate) {
      const std::vector<std::int64_t>& range = shared_->spec.profiles[profile_];
      if (shape[2] < range[0] || shape[2] > range[2]) return error("setInputShape", t.name);
      rows_ = shape[2];
    }
    if (tensor == kCache) capacity_ = shape[2];
    return {};
  }

  Result<Shape> shape(std::size_t tensor) const override {
    Shape shape = shared_->tensors[tensor].shape;
    for (const Oddity& oddity : shared_->spec.oddities) {
      if (oddity.what == "data_dependent" && oddity.tensor == shared_->tensors[tensor].name) return shape;
    }
    if (tensor == kUpdate || tensor == kY) shape[2] = rows_;
    if (tensor == kCache || tensor == kCacheOut) shape[2] = capacity_;
    return shape;
  }

  Status set_address(std::size_t tensor, void* data) override {
    if (reinterpret_cast<std::uintptr_t>(data) % 256 != 0)
      return error("setTensorAddress", shared_->tensors[tensor].name);
    addresses_[tensor] = data;
    return {};
  }

  Status set_scratch(void* data, std::size_t bytes) override {
    scratch_ = static_cast<float*>(data);
    scratch_bytes_ = bytes;
    return {};
  }

  Status enqueue(Stream& stream) override {
    if (shared_->control->fail_enqueue) return *shared_->control->fail_enqueue;
    const Spec& spec = shared_->spec;
    if (rows_ < 0 || capacity_ < 0) return error("enqueueV3", "input shapes");
    for (std::size_t i = 0; i < kTensors; ++i) {
      if (addresses_[i] == nullptr) return error("enqueueV3", shared_->tensors[i].name);
    }
    const auto needed =
        static_cast<std::size_t>(spec.batch * spec.heads * rows_ * spec.head_dim) * sizeof(float);
    if (scratch_ == nullptr || scratch_bytes_ < needed) return error("enqueueV3", "device memory");
    if (spec.declares_alias && addresses_[kCache] != addresses_[kCacheOut])
      return error("enqueueV3", "aliased cache_out");
    HostStream* host = as_host_stream(stream);
    if (host == nullptr) return error("enqueueV3", "stream");
    auto run = std::make_unique<Run>(
        Run{spec.batch, spec.heads, capacity_, spec.head_dim, rows_, addresses_, scratch_});
    if (Status s = host->submit(&compute, run.get()); !s) return s;
    run.release();
    return {};
  }

 private:
  static Status error(const char* call, const std::string& what) {
    return {Code::kInternal, formatted("stand-in: {} failed: {}", call, what)};
  }

  Shared* shared_;
  std::size_t profile_;
  std::int64_t rows_ = -1;
  std::int64_t capacity_ = -1;
  std::array<void*, kTensors> addresses_{};
  float* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
};

class StandInPlan final : public Plan {
 public:
  StandInPlan(std::shared_ptr<PlanRuntime> runtime, Spec spec, std::shared_ptr<Control> control)
      : runtime_(std::move(runtime)) {
    shared_.spec = std::move(spec);
    shared_.control = std::move(control);
    shared_.profile_users.resize(shared_.spec.profiles.size(), 0);
    const Spec& s = shared_.spec;
    const Shape cache = {s.batch, s.heads, s.dynamic_capacity ? -1 : s.capacity, s.head_dim};
    const Shape rows = {s.batch, s.heads, -1, s.head_dim};
    shared_.tensors = {
        {"cache", true, DType::kFloat32, "kFLOAT", cache, false, ""},
        {"update", true, DType::kFloat32, "kFLOAT", rows, false, ""},
        {"position", true, DType::kInt32, "kINT32", {s.batch}, false, ""},
        {"cache_out", false, DType::kFloat32, "kFLOAT", cache, false, s.declares_alias ? "cache" : ""},
        {"y", false, DType::kFloat32, "kFLOAT", rows, false, ""}};
    for (const Oddity& oddity : s.oddities) make_odd(oddity);
    ++shared_.control->plans;
  }
  ~StandInPlan() override {
    --shared_.control->plans;
    shared_.control->order += 'p';
  }

  std::span<const PlanTensor> tensors() const noexcept override { return shared_.tensors; }
  std::size_t profiles() const noexcept override { return shared_.spec.profiles.size(); }

  Result<ShapeRange> range(std::size_t tensor, std::size_t profile) const override {
    const Shape& shape = shared_.tensors[tensor].shape;
    ShapeRange range{shape, shape, shape};
    if (tensor == kUpdate) {
      const std::vector<std::int64_t>& rows = shared_.spec.profiles[profile];
      range.min[2] = rows[0];
      range.opt[2] = rows[1];
      range.max[2] = rows[2];
    }
    if (tensor == kCache && shared_.spec.dynamic_capacity) {
      range.min[2] = 1;
      range.opt[2] = range.max[2] = shared_.spec.capacity;
    }
    return range;
  }

  std::string format(std::size_t tensor, std::size_t) const override {
    for (const Oddity& oddity : shared_.spec.oddities) {
      if (oddity.what == "chw4" && oddity.tensor == shared_.tensors[tensor].name) return "CHW4";
    }
    return "";
  }

  std::size_t scratch_bytes(std::size_t profile) const noexcept override {
    const Spec& s = shared_.spec;
    return static_cast<std::size_t>(s.batch * s.heads * s.profiles[profile][2] * s.head_dim) * sizeof(float) +
           s.extra_scratch;
  }
  bool hardware_compatible() const noexcept override { return shared_.spec.hardware_compatible; }
  std::int64_t streamable_weights() const noexcept override { return shared_.spec.streamable_weights; }
  Status set_weight_budget(std::int64_t bytes) override {
    if (shared_.control->contexts != 0) return {Code::kInternal, "stand-in: contexts exist"};
    shared_.control->weight_budget = bytes;
    return {};
  }

  Result<std::unique_ptr<PlanContext>> create_context(std::size_t profile, Stream&) override {
    if (shared_.control->fail_context) return *shared_.control->fail_context;
    if (!shared_.spec.profile_sharing) {
      const std::lock_guard lock(shared_.control->mutex);
      if (shared_.profile_users[profile] != 0) {
        return Status(Code::kUnsupported, formatted("stand-in: profile {} is in use", profile));
      }
    }
    return std::unique_ptr<PlanContext>(std::make_unique<StandInContext>(shared_, profile));
  }

 private:
  void make_odd(const Oddity& oddity) {
    const auto it = std::find_if(shared_.tensors.begin(), shared_.tensors.end(),
                                 [&](const PlanTensor& t) { return t.name == oddity.tensor; });
    if (oddity.what == "fp8") {
      it->dtype.reset();
      it->dtype_name = "kFP8";
    } else if (oddity.what == "on_host") {
      it->on_host = true;
    } else if (oddity.what == "data_dependent") {
      it->shape[2] = -1;
    } else if (oddity.what == "alias_of_nothing") {
      it->aliased_input = "elsewhere";
    } else if (oddity.what == "nameless") {
      it->name.clear();
    }
  }

  std::shared_ptr<PlanRuntime> runtime_;
  Shared shared_;
};

class StandInRuntime final : public PlanRuntime, public std::enable_shared_from_this<StandInRuntime> {
 public:
  StandInRuntime(std::shared_ptr<Control> control, bool declares_aliases, bool is_rtx)
      : control_(std::move(control)), declares_aliases_(declares_aliases), is_rtx_(is_rtx) {}
  ~StandInRuntime() override { control_->order += 'r'; }

  std::string_view name() const noexcept override { return "stand-in 1"; }
  bool declares_aliases() const noexcept override { return declares_aliases_; }
  bool is_rtx() const noexcept override { return is_rtx_; }

  Result<std::unique_ptr<Plan>> load(std::span<const std::byte> bytes, DeviceId) override {
    if (control_->fail_load) return *control_->fail_load;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!text.starts_with(kMagic)) return Status(Code::kInvalidData, "stand-in: these bytes are no plan");
    const json j = json::parse(text.substr(kMagic.size()), nullptr, /*allow_exceptions=*/false);
    if (j.is_discarded()) return Status(Code::kInvalidData, "stand-in: the plan is truncated or corrupt");
    Spec s;
    s.version = j["version"];
    if (s.version != kVersion) {
      return Status(Code::kInvalidData, formatted("stand-in: the plan is of version {} and the runtime of {}",
                                                  s.version, kVersion));
    }
    s.batch = j["batch"];
    s.heads = j["heads"];
    s.capacity = j["capacity"];
    s.head_dim = j["head_dim"];
    s.profiles = j["profiles"];
    s.declares_alias = j["declares_alias"];
    s.profile_sharing = j["profile_sharing"];
    s.hardware_compatible = j["hardware_compatible"];
    s.dynamic_capacity = j["dynamic_capacity"];
    s.streamable_weights = j["streamable_weights"];
    s.extra_scratch = j["extra_scratch"];
    for (const json& o : j["oddities"]) s.oddities.push_back({o[0], o[1]});
    return std::unique_ptr<Plan>(std::make_unique<StandInPlan>(shared_from_this(), std::move(s), control_));
  }

 private:
  std::shared_ptr<Control> control_;
  bool declares_aliases_;
  bool is_rtx_;
};

}  // namespace

std::vector<std::byte> build(const Spec& spec) {
  json oddities = json::array();
  for (const Oddity& oddity : spec.oddities) oddities.push_back({oddity.tensor, oddity.what});
  const std::string text = std::string(kMagic) + json{{"version", spec.version},
                                                      {"batch", spec.batch},
                                                      {"heads", spec.heads},
                                                      {"capacity", spec.capacity},
                                                      {"head_dim", spec.head_dim},
                                                      {"profiles", spec.profiles},
                                                      {"declares_alias", spec.declares_alias},
                                                      {"profile_sharing", spec.profile_sharing},
                                                      {"hardware_compatible", spec.hardware_compatible},
                                                      {"dynamic_capacity", spec.dynamic_capacity},
                                                      {"streamable_weights", spec.streamable_weights},
                                                      {"extra_scratch", spec.extra_scratch},
                                                      {"oddities", oddities}}
                                                     .dump();
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::shared_ptr<PlanRuntime> make_runtime(std::shared_ptr<Control> control, bool declares_aliases,
                                          bool is_rtx) {
  return std::make_shared<StandInRuntime>(std::move(control), declares_aliases, is_rtx);
}

}  // namespace etrt::tensorrt::standin
