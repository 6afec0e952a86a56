#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "etrt/session.h"
#include "etrt/status.h"
#include "etrt/types.h"

/// The container a TensorRTBackend delegate is stored in. docs/blob_format.md has the
/// layout; TR01 and TR02 are torch_tensorrt's, TR03 is ours.
namespace etrt {

enum class BlobVersion : std::uint8_t { kTR01, kTR02, kTR03 };

enum class AliasKind : std::uint8_t {
  kKvCacheUpdate,  ///< "kv_cache_update": the engine enforces the shared address.
  kUser,           ///< "user": nobody but us knows that they share.
};

enum class Ownership : std::uint8_t {
  kCaller,   ///< The cache is a delegate argument.
  kSession,  ///< The cache is found in the selected session.
};

struct BlobBinding {
  std::string name;
  std::optional<DType> dtype;  ///< nullopt: "" in the file, upstream's preprocess leaves it so.
  std::optional<Shape> shape;  ///< nullopt: [] with an empty dtype; with one, [] is a scalar. -1: dynamic.
  bool is_input = false;
  bool operator==(const BlobBinding&) const = default;
};

struct BlobAlias {
  std::string output;
  std::string input;
  AliasKind kind = AliasKind::kKvCacheUpdate;
  Ownership ownership = Ownership::kCaller;
  std::string state;  ///< Empty for kCaller.
  bool operator==(const BlobAlias&) const = default;
};

struct BlobState {
  std::string id;
  std::string input;   ///< Binding read.
  std::string output;  ///< Binding written; empty if this method only reads the state.
  Update update = Update::kInPlace;
  Ownership ownership = Ownership::kSession;
  DType dtype = DType::kFloat32;
  Shape shape;              ///< Static.
  int sequence_dim = -1;    ///< -1 ("sequence_dim": null): not a sequence.
  std::string initial_key;  ///< Named-data key of the initial bytes; empty: zeros.
  std::int64_t initial_length = 0;
  bool operator==(const BlobState&) const = default;
};

/// How many positions one run appends: an extent of an input, or a constant.
struct BlobCount {
  std::string input;  ///< Empty: `value` is the count.
  int dim = 0;
  std::int64_t value = 1;
  bool operator==(const BlobCount&) const = default;
};

struct BlobPosition {
  std::string input;  ///< An int32 or int64 input binding: scalar, [B], or [T] consecutive indices.
  BlobCount count;
  bool operator==(const BlobPosition&) const = default;
};

/// A parsed container. Everything in it has been validated; `engine` points into the
/// bytes that were parsed.
struct Blob {
  BlobVersion version = BlobVersion::kTR01;
  std::vector<BlobBinding> bindings;
  std::vector<BlobAlias> aliases;
  bool hardware_compatible = false;
  std::int32_t device_id = 0;
  std::string serialized_metadata;
  std::string target_platform;

  // Our keys: all of them in TR03, and in TR01 and TR02 those that say something.
  std::string engine_kind = "tensorrt";  ///< "tensorrt", "tensorrt_rtx", "cpu", ...
  std::string engine_entry;   ///< Which of the engine's entries: a CPU program's method, a profile's index.
  std::string engine_digest;  ///< "xxh3:<16 hex>"; empty in files of others.
  std::string engine_key;     ///< Named-data key of the engine; empty: the bytes are in the blob.
  std::string model_id;
  std::vector<BlobState> states;
  /// Needed where a sequence is written. A method without sequences may have one: its other
  /// states then know how far they are.
  std::optional<BlobPosition> position;

  std::span<const std::byte> engine;  ///< Empty when engine_key is set.
};

/// Reads and validates a container; trailing bytes are allowed.
/// Errors: kInvalidData naming the field and what was wrong. Checks the digest of the
/// bytes in the blob; those under engine_key are checked by check_engine_digest().
Result<Blob> parse_blob(std::span<const std::byte> bytes);

/// The container for `blob`: TR03 if a session owns anything, else TR01 without aliases and
/// TR02 with them (`blob.version` is ignored). Fills in the digest if the blob has engine
/// bytes and none. Errors: as parse_blob; kOutOfMemory.
Result<std::vector<std::byte>> write_blob(const Blob& blob);

/// Everything that parse_blob checks of the metadata, and the engine's digest; for a Blob
/// that didn't come from there. `version` isn't looked at.
Status validate(const Blob& blob);

/// kInvalidData unless `digest` is empty or that of `engine`.
Status check_engine_digest(std::span<const std::byte> engine, const std::string& digest);

}  // namespace etrt
