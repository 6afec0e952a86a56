#include "delegate/engine_source.h"

#include <cstring>
#include <memory>
#include <utility>

#include "base/format.h"

namespace etrt {

namespace et = executorch::runtime;

namespace {

std::span<const std::byte> bytes_of(const et::FreeableBuffer& buffer) {
  return {static_cast<const std::byte*>(buffer.data()), buffer.size()};
}

Result<et::FreeableBuffer> find(const et::NamedDataMap* data, const std::string& key,
                                const std::string& what) {
  if (data == nullptr) {
    return Status(Code::kNotFound, formatted("{} is named data \"{}\", but the program was loaded without "
                                             "named data",
                                             what, key));
  }
  et::Result<et::FreeableBuffer> buffer = data->get_data(key);
  if (!buffer.ok()) {
    return Status(Code::kNotFound, formatted("{} is missing: the program has no named data \"{}\" "
                                             "(ExecuTorch error 0x{:x}). The file is truncated, or its "
                                             "data file wasn't given",
                                             what, key, static_cast<unsigned>(buffer.error())));
  }
  return std::move(*buffer);
}

/// Whether named data is memory of the caller's that the program points into (a program
/// loaded from a buffer), and so may be gone before the engine is. Such memory has one
/// address however often it is asked for; a loaded or mapped segment has a new one.
/// Asked with the small entry that accompanies each engine, since a loader that reads
/// files would read the engine twice.
bool is_lent(const et::NamedDataMap* data, const std::string& key) {
  const std::string probe = key + ".info";
  et::Result<et::FreeableBuffer> first = data->get_data(probe);
  et::Result<et::FreeableBuffer> second = data->get_data(probe);
  return !first.ok() || !second.ok() || first->data() == second->data();
}

EngineBytes copy_of(std::span<const std::byte> bytes) {
  // ExecuTorch programs want 16-byte alignment; new gives that for std::byte arrays.
  auto owned = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  return {*owned, owned};
}

}  // namespace

Result<EngineBytes> engine_bytes(const Blob& blob, const et::NamedDataMap* data) {
  if (blob.engine_key.empty()) return copy_of(blob.engine);
  Result<et::FreeableBuffer> found = find(data, blob.engine_key, "the engine");
  if (!found) return found.status();
  if (Status s = check_engine_digest(bytes_of(*found), blob.engine_digest); !s) return s;
  if (is_lent(data, blob.engine_key)) return copy_of(bytes_of(*found));
  auto owned = std::make_shared<et::FreeableBuffer>(std::move(*found));
  return EngineBytes{bytes_of(*owned), owned};
}

Result<std::vector<std::byte>> named_bytes(const et::NamedDataMap* data, const std::string& key,
                                           const std::string& what) {
  Result<et::FreeableBuffer> found = find(data, key, what);
  if (!found) return found.status();
  const std::span<const std::byte> bytes = bytes_of(*found);
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

}  // namespace etrt
