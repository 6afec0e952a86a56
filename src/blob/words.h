#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "blob/blob.h"

/// The words of the metadata for the values of enums.
namespace etrt::internal {

template <typename E, std::size_t N>
using Words = std::array<std::pair<std::string_view, E>, N>;

inline constexpr Words<AliasKind, 2> kAliasKinds{
    {{"kv_cache_update", AliasKind::kKvCacheUpdate}, {"user", AliasKind::kUser}}};
inline constexpr Words<Ownership, 2> kOwnerships{
    {{"caller", Ownership::kCaller}, {"session", Ownership::kSession}}};
inline constexpr Words<Update, 2> kUpdates{{{"in_place", Update::kInPlace}, {"swap", Update::kSwap}}};
inline constexpr Words<BlobVersion, 3> kMagics{
    {{"TR01", BlobVersion::kTR01}, {"TR02", BlobVersion::kTR02}, {"TR03", BlobVersion::kTR03}}};

template <typename E, std::size_t N>
std::optional<E> value_of(const Words<E, N>& words, std::string_view word) {
  for (const auto& [name, value] : words) {
    if (name == word) return value;
  }
  return std::nullopt;
}

template <typename E, std::size_t N>
std::string_view word_of(const Words<E, N>& words, E wanted) {
  for (const auto& [name, value] : words) {
    if (value == wanted) return name;
  }
  return {};
}

/// "caller, session", for messages.
template <typename E, std::size_t N>
std::string list_of(const Words<E, N>& words) {
  std::string list;
  for (const auto& [name, value] : words) list.append(list.empty() ? "" : ", ").append(name);
  return list;
}

}  // namespace etrt::internal
