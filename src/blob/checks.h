#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/format.h"
#include "blob/blob.h"
#include "etrt/status.h"

/// Pieces of validate().
namespace etrt::internal {

/// kInvalidData with the text `field: what was wrong`.
template <typename... Args>
Status invalid(fmt::format_string<Args...> format, Args&&... args) {
  return {Code::kInvalidData, formatted(format, std::forward<Args>(args)...)};
}

/// Valid UTF-8.
Status check_text(const std::string& path, std::string_view text);
/// Also not blank, and without a NUL, where an engine would take it to end.
Status check_name(const std::string& path, std::string_view name);
/// Every extent is -1 or more; the elements can be counted if there is no -1.
Status check_extents(const std::string& path, const Shape& shape);

/// The blob's bindings by name. Built while names are checked, so that each is there once.
class BindingTable {
 public:
  /// Errors name io_bindings[i].
  Status fill(const std::vector<BlobBinding>& bindings);

  /// The binding, if it exists and has that direction.
  Result<const BlobBinding*> find(const std::string& path, const std::string& name, bool is_input) const;

 private:
  std::unordered_map<std::string_view, std::size_t> index_;
  const std::vector<BlobBinding>* bindings_ = nullptr;
};

/// states and position; aliases and bindings have been checked.
Status validate_states(const Blob& blob, const BindingTable& bindings);
Status validate_position(const Blob& blob, const BindingTable& bindings);

}  // namespace etrt::internal
