#pragma once

/// etrt: a TensorRT delegate for ExecuTorch whose KV caches have an owner.
///
///   #include <etrt/etrt.h>
///   #include <executorch/extension/module/module.h>
///   #include <executorch/extension/tensor/tensor.h>
///
///   int main() {
///     executorch::extension::Module model("model.pte");
///     etrt::Session chat;                        // one conversation's caches
///     etrt::SessionScope use(chat);              // for this thread, until the end of the scope
///     auto token = executorch::extension::make_tensor_ptr({1, 1}, std::vector<int64_t>{42});
///     auto position = executorch::extension::make_tensor_ptr({1}, std::vector<int64_t>{0});
///     auto logits = model.execute("decode", {token, position});
///     return logits.ok() && chat.length() == 1 ? 0 : 1;
///   }
///
/// CMake: find_package(etrt) and link etrt::delegate.

#include "etrt/session.h"  // IWYU pragma: export
#include "etrt/stats.h"    // IWYU pragma: export
#include "etrt/status.h"   // IWYU pragma: export
#include "etrt/stream.h"   // IWYU pragma: export
#include "etrt/types.h"    // IWYU pragma: export
