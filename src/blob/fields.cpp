#include "blob/fields.h"

#include <array>
#include <limits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/format.h"

namespace etrt::internal {

namespace {

using Json = nlohmann::json;
using Type = Json::value_t;

constexpr std::size_t kMaxDepth = 32;

/// Sees the text without building anything of it.
class StrictCheck final : public nlohmann::json_sax<Json> {
 public:
  std::string problem;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }

  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    problem = formatted("key \"{}\" appears twice in one object", name);
    return false;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    problem = formatted("no valid JSON at byte {}", position);
    return false;
  }

 private:
  bool enter() {
    keys_.emplace_back();
    if (keys_.size() <= kMaxDepth) return true;
    problem = formatted("nests deeper than {} levels", kMaxDepth);
    return false;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::unordered_set<std::string>> keys_;  // Of each open object or array.
};

std::string_view type_name(Type type) {
  switch (type) {
    case Type::null:
      return "null";
    case Type::object:
      return "an object";
    case Type::array:
      return "an array";
    case Type::string:
      return "a string";
    case Type::boolean:
      return "a boolean";
    case Type::number_integer:
    case Type::number_unsigned:
      return "an integer";
    case Type::number_float:
    case Type::binary:
    case Type::discarded:
      break;
  }
  return "a number";
}

std::string list_of_dtypes() {
  std::string list;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64, DType::kInt8,
                            DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kBool}) {
    list.append(list.empty() ? "" : ", ").append(to_string(dtype));
  }
  return list;
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  // nlohmann takes a NUL for the end of the text, and skips a byte order mark.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return Status(Code::kInvalidData, formatted("metadata: no valid JSON at byte {}: a NUL", nul + 1));
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    return Status(Code::kInvalidData, "metadata: no valid JSON at byte 1: a byte order mark");
  }
  StrictCheck check;
  if (!Json::sax_parse(text, &check)) return Status(Code::kInvalidData, "metadata: " + check.problem);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

Fields::Fields(const Json& value, std::string path, Status& status)
    : value_(value), path_(std::move(path)), status_(status) {
  if (value.is_object()) return;
  fail(path_.empty() ? "metadata" : path_, formatted("is {}, expected an object", type_name(value.type())));
}

bool Fields::has(const char* key) const { return value_.contains(key); }

bool Fields::is_null(const char* key) const { return has(key) && value_.at(key).is_null(); }

std::string Fields::path(const char* key) const { return path_.empty() ? key : path_ + "." + key; }

void Fields::read(const char* key, std::string& out, Need need) {
  if (const Json* value = find(key, Type::string, need)) out = value->get_ref<const std::string&>();
}

void Fields::read(const char* key, bool& out, Need need) {
  if (const Json* value = find(key, Type::boolean, need)) out = value->get<bool>();
}

void Fields::read(const char* key, std::int32_t& out, Need need) {
  std::int64_t wide = out;
  read(key, wide, need);
  if (!status_.ok()) return;
  if (wide < std::numeric_limits<std::int32_t>::min() || wide > std::numeric_limits<std::int32_t>::max()) {
    return fail(path(key), formatted("{} is outside int32", wide));
  }
  out = static_cast<std::int32_t>(wide);
}

void Fields::read(const char* key, std::int64_t& out, Need need) {
  const Json* value = find(key, Type::number_integer, need);
  if (value == nullptr) return;
  if (const auto read = integer(*value, path(key))) out = *read;
}

void Fields::read(const char* key, Shape& out, Need need) {
  const Json* items = find(key, Type::array, need);
  if (items == nullptr) return;
  if (items->size() > Shape::kMaxRank) {
    return fail(path(key), formatted("has rank {}, at most {} is possible", items->size(), Shape::kMaxRank));
  }
  std::array<std::int64_t, Shape::kMaxRank> extents{};
  for (std::size_t i = 0; i < items->size(); ++i) {
    const auto extent = integer((*items)[i], formatted("{}[{}]", path(key), i));
    if (!extent) return;
    extents[i] = *extent;
  }
  out = Shape(std::span(extents).first(items->size()));
}

void Fields::read(const char* key, std::optional<DType>& out, Need need) {
  std::string word;
  if (!has(key) && need == Need::kOptional) return;
  read(key, word, need);
  if (!status_.ok()) return;
  out = dtype_from_string(word);
  if (!out && !word.empty()) fail_word(path(key), word, list_of_dtypes());
}

void Fields::read(const char* key, DType& out, Need need) {
  std::optional<DType> dtype = out;
  read(key, dtype, need);
  if (!status_.ok()) return;
  if (!dtype) return fail_word(path(key), "", list_of_dtypes());
  out = *dtype;
}

Fields Fields::object(const char* key) {
  static const Json kEmpty = Json::object();
  const Json* value = find(key, Type::object, Need::kRequired);
  return Fields(value == nullptr ? kEmpty : *value, path(key), status_);
}

void Fields::fail(const std::string& path, const std::string& message) {
  if (status_.ok()) status_ = {Code::kInvalidData, path + ": " + message};
}

const Json* Fields::find(const char* key, Type type, Need need) {
  if (!status_.ok()) return nullptr;
  const auto it = value_.find(key);
  if (it == value_.end()) {
    if (need == Need::kRequired) fail(path(key), "is missing");
    return nullptr;
  }
  const bool matches = type == Type::number_integer ? it->is_number_integer() : it->type() == type;
  if (matches) return &*it;
  fail(path(key), formatted("is {}, expected {}", type_name(it->type()), type_name(type)));
  return nullptr;
}

std::optional<std::int64_t> Fields::integer(const Json& value, const std::string& path) {
  if (!value.is_number_integer()) {
    fail(path, formatted("is {}, expected an integer", type_name(value.type())));
    return std::nullopt;
  }
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
    fail(path, formatted("{} is outside int64", value.get<std::uint64_t>()));
    return std::nullopt;
  }
  return value.get<std::int64_t>();
}

void Fields::fail_word(const std::string& path, const std::string& word, const std::string& allowed) {
  fail(path, formatted("\"{}\" is none of {}", word, allowed));
}

}  // namespace etrt::internal
