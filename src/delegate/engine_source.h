#pragma once

#include <executorch/runtime/core/freeable_buffer.h>
#include <executorch/runtime/core/named_data_map.h>

#include <string>

#include "blob/blob.h"
#include "engine/engine.h"

namespace etrt {

/// The engine's bytes, wherever the blob says they are, checked against its digest.
/// They stay valid as long as the owner, also after the program is gone: memory that
/// the program only lends is copied.
/// `data` may be nullptr if the blob has the bytes in it.
/// Errors: kNotFound for a key that the program lacks, kInvalidData for another digest.
Result<EngineBytes> engine_bytes(const Blob& blob, const executorch::runtime::NamedDataMap* data);

/// A copy of the named data under `key`. kNotFound names the key and `what` it is for.
Result<std::vector<std::byte>> named_bytes(const executorch::runtime::NamedDataMap* data,
                                           const std::string& key, const std::string& what);

}  // namespace etrt
