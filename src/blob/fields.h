#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "blob/words.h"
#include "etrt/status.h"
#include "etrt/types.h"

namespace etrt::internal {

/// Parses JSON strictly: no comments, no byte order mark, no key twice in one object (which
/// of the two counts differs from reader to reader), at most 32 levels. kInvalidData says
/// where it's wrong.
Result<nlohmann::json> parse_json(std::string_view text);

enum class Need { kRequired, kOptional };

/// The fields of one JSON object, read one after another. The first error is kept in the
/// Status given, with the path of the field; after it nothing is read. A field that is
/// optional and absent leaves its target as it was.
class Fields {
 public:
  /// `value` and `status` outlive this; `path` is "" for the outermost object.
  Fields(const nlohmann::json& value, std::string path, Status& status);

  bool has(const char* key) const;
  bool is_null(const char* key) const;
  std::string path(const char* key) const;

  void read(const char* key, std::string& out, Need need);
  void read(const char* key, bool& out, Need need);
  void read(const char* key, std::int32_t& out, Need need);
  void read(const char* key, std::int64_t& out, Need need);
  void read(const char* key, Shape& out, Need need);
  /// nullopt for "".
  void read(const char* key, std::optional<DType>& out, Need need);
  void read(const char* key, DType& out, Need need);

  template <typename E, std::size_t N>
  void read(const char* key, const Words<E, N>& words, E& out, Need need) {
    std::string word;
    if (!has(key) && need == Need::kOptional) return;
    read(key, word, need);
    if (!status_.ok()) return;
    if (const std::optional<E> value = value_of(words, word)) {
      out = *value;
    } else {
      fail_word(path(key), word, list_of(words));
    }
  }

  /// The object in field `key`, which is required.
  Fields object(const char* key);

  /// Calls f(Fields) for each object in the array.
  template <typename F>
  void for_each(const char* key, Need need, F&& f) {
    const nlohmann::json* items = find(key, nlohmann::json::value_t::array, need);
    if (items == nullptr) return;
    for (std::size_t i = 0; i < items->size() && status_.ok(); ++i) {
      Fields item((*items)[i], path(key) + "[" + std::to_string(i) + "]", status_);
      if (status_.ok()) f(item);
    }
  }

  void fail(const std::string& path, const std::string& message);

 private:
  const nlohmann::json* find(const char* key, nlohmann::json::value_t type, Need need);
  /// Of an element of any type.
  std::optional<std::int64_t> integer(const nlohmann::json& value, const std::string& path);
  void fail_word(const std::string& path, const std::string& word, const std::string& allowed);

  const nlohmann::json& value_;
  std::string path_;
  Status& status_;
};

}  // namespace etrt::internal
