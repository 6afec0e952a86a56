#pragma once

#include <string>

#include "blob/blob.h"

/// Containers written out by hand, and what each of them says.
namespace etrt::test {

using namespace std::string_literals;  // NOLINT(google-build-using-namespace): NULs in literals.

/// torch_tensorrt's writer, engine without alias.
inline const std::string kUpstreamTR01 =
    "TR01"
    "\x20\x00\x00\x00"                  // metadata at 32
    "\xfe\x00\x00\x00"                  // 254 bytes
    "\x20\x01\x00\x00"                  // engine at 288
    "\x0c\x00\x00\x00\x00\x00\x00\x00"  // 12 bytes
    "\x01\x00\x00\x00\x00\x00\x00\x00"s
    R"({"io_bindings":[{"name":"x","dtype":"","shape":[],"is_input":true},)"
    R"({"name":"y","dtype":"","shape":[],"is_input":false}],"aliased_io":[],)"
    R"("hardware_compatible":true,"device_id":1,"serialized_metadata":"{\"a\": \"\u00e9\"}",)"
    R"("target_platform":"linux_x86_64"})"
    "\0\0"
    "engine-bytes"s;

/// The same from our writer.
inline const std::string kTR01 =
    "TR01"
    "\x20\x00\x00\x00"                  // metadata at 32
    "\x26\x01\x00\x00"                  // 294 bytes
    "\x50\x01\x00\x00"                  // engine at 336
    "\x0c\x00\x00\x00\x00\x00\x00\x00"  // 12 bytes
    "\x01\x00\x00\x00\x00\x00\x00\x00"s
    R"({"io_bindings":[{"name":"x","dtype":"","shape":[],"is_input":true},)"
    R"({"name":"y","dtype":"","shape":[],"is_input":false}],"aliased_io":[],)"
    R"("hardware_compatible":true,"device_id":1,"serialized_metadata":"{\"a\": \"\u00e9\"}",)"
    R"("target_platform":"linux_x86_64","engine_digest":"xxh3:2b4069c87f9d3f99"})"
    "\0\0\0\0\0\0\0\0\0\0"
    "engine-bytes"s;

inline Blob blob_of_tr01() {
  Blob blob;
  blob.version = BlobVersion::kTR01;
  blob.bindings = {{"x", std::nullopt, std::nullopt, true}, {"y", std::nullopt, std::nullopt, false}};
  blob.hardware_compatible = true;
  blob.device_id = 1;
  blob.serialized_metadata = "{\"a\": \"\xc3\xa9\"}";
  blob.target_platform = "linux_x86_64";
  return blob;
}

/// torch_tensorrt's writer, engine with aliases.
inline const std::string kUpstreamTR02 =
    "TR02"
    "\x20\x00\x00\x00"                  // metadata at 32
    "\x26\x02\x00\x00"                  // 550 bytes
    "\x50\x02\x00\x00"                  // engine at 592
    "\x08\x00\x00\x00\x00\x00\x00\x00"  // 8 bytes
    "\x01\x00\x00\x00\x00\x00\x00\x00"s
    R"({"io_bindings":[{"name":"x","dtype":"","shape":[],"is_input":true},)"
    R"({"name":"in_k","dtype":"","shape":[],"is_input":true},)"
    R"({"name":"in_u","dtype":"","shape":[],"is_input":true},)"
    R"({"name":"y","dtype":"","shape":[],"is_input":false},)"
    R"({"name":"out_k","dtype":"","shape":[],"is_input":false},)"
    R"({"name":"out_u","dtype":"","shape":[],"is_input":false}],)"
    R"("aliased_io":[{"output":"out_k","input":"in_k","kind":"kv_cache_update"},)"
    R"({"output":"out_u","input":"in_u","kind":"user"}],)"
    R"("hardware_compatible":false,"device_id":0,"serialized_metadata":"","target_platform":""})"
    "\0\0\0\0\0\0\0\0\0\0"
    "\x00\x01\x02\x03\x04\x05\x06\x07"s;

/// The same from our writer.
inline const std::string kTR02 =
    "TR02"
    "\x20\x00\x00\x00"                  // metadata at 32
    "\x4e\x02\x00\x00"                  // 590 bytes
    "\x70\x02\x00\x00"                  // engine at 624
    "\x08\x00\x00\x00\x00\x00\x00\x00"  // 8 bytes
    "\x01\x00\x00\x00\x00\x00\x00\x00"s
    R"({"io_bindings":[{"name":"x","dtype":"","shape":[],"is_input":true},)"
    R"({"name":"in_k","dtype":"","shape":[],"is_input":true},)"
    R"({"name":"in_u","dtype":"","shape":[],"is_input":true},)"
    R"({"name":"y","dtype":"","shape":[],"is_input":false},)"
    R"({"name":"out_k","dtype":"","shape":[],"is_input":false},)"
    R"({"name":"out_u","dtype":"","shape":[],"is_input":false}],)"
    R"("aliased_io":[{"output":"out_k","input":"in_k","kind":"kv_cache_update"},)"
    R"({"output":"out_u","input":"in_u","kind":"user"}],)"
    R"("hardware_compatible":false,"device_id":0,"serialized_metadata":"","target_platform":"",)"
    R"("engine_digest":"xxh3:3a1c2d7c85af88f8"})"
    "\0\0"
    "\x00\x01\x02\x03\x04\x05\x06\x07"s;

inline Blob blob_of_tr02() {
  Blob blob;
  blob.version = BlobVersion::kTR02;
  for (const char* name : {"x", "in_k", "in_u"})
    blob.bindings.push_back({name, std::nullopt, std::nullopt, true});
  for (const char* name : {"y", "out_k", "out_u"}) {
    blob.bindings.push_back({name, std::nullopt, std::nullopt, false});
  }
  blob.aliases = {{"out_k", "in_k", AliasKind::kKvCacheUpdate, Ownership::kCaller, ""},
                  {"out_u", "in_u", AliasKind::kUser, Ownership::kCaller, ""}};
  return blob;
}

/// A KV cache and a convolution's state that the session owns, and a cache that the caller owns.
inline const std::string kTR03Metadata =
    R"({"io_bindings":[{"name":"tokens","dtype":"int64","shape":[1,-1],"is_input":true},)"
    R"({"name":"position","dtype":"int64","shape":[1],"is_input":true},)"
    R"({"name":"k","dtype":"float32","shape":[1,2,8,4],"is_input":true},)"
    R"({"name":"conv","dtype":"float32","shape":[1,3,4],"is_input":true},)"
    R"({"name":"cache","dtype":"float16","shape":[1,4],"is_input":true},)"
    R"({"name":"logits","dtype":"float32","shape":[1,10],"is_input":false},)"
    R"({"name":"k_out","dtype":"float32","shape":[1,2,8,4],"is_input":false},)"
    R"({"name":"conv_out","dtype":"float32","shape":[1,3,4],"is_input":false},)"
    R"({"name":"cache_out","dtype":"float16","shape":[1,4],"is_input":false}],)"
    R"("aliased_io":[{"output":"k_out","input":"k","kind":"kv_cache_update",)"
    R"("ownership":"session","state":"layers.0.k"},)"
    R"({"output":"cache_out","input":"cache","kind":"user","ownership":"caller","state":""}],)"
    R"("hardware_compatible":false,"device_id":0,"serialized_metadata":"","target_platform":"",)"
    R"("engine":"cpu","engine_entry":"decode","engine_digest":"xxh3:2b4069c87f9d3f99","engine_key":"",)"
    R"("model_id":"toy",)"
    R"("states":[{"id":"layers.0.k","input":"k","output":"k_out","update":"in_place",)"
    R"("ownership":"session","dtype":"float32","shape":[1,2,8,4],"sequence_dim":2,)"
    R"("initial_key":"initial.k","initial_length":3},)"
    R"({"id":"layers.0.conv","input":"conv","output":"conv_out","update":"swap",)"
    R"("ownership":"session","dtype":"float32","shape":[1,3,4],"sequence_dim":null,)"
    R"("initial_key":"","initial_length":0}],)"
    R"("position":{"input":"position","count":{"input":"tokens","dim":1}}})";

inline const std::string kTR03 =
    "TR03"
    "\x20\x00\x00\x00"                  // metadata at 32
    "\xc1\x05\x00\x00"                  // 1473 bytes
    "\xf0\x05\x00\x00"                  // engine at 1520
    "\x0c\x00\x00\x00\x00\x00\x00\x00"  // 12 bytes
    "\x01\x00\x00\x00\x00\x00\x00\x00"s +
    kTR03Metadata +
    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    "engine-bytes"s;

inline Blob blob_of_tr03() {
  Blob blob;
  blob.version = BlobVersion::kTR03;
  blob.bindings = {{"tokens", DType::kInt64, Shape{1, -1}, true},
                   {"position", DType::kInt64, Shape{1}, true},
                   {"k", DType::kFloat32, Shape{1, 2, 8, 4}, true},
                   {"conv", DType::kFloat32, Shape{1, 3, 4}, true},
                   {"cache", DType::kFloat16, Shape{1, 4}, true},
                   {"logits", DType::kFloat32, Shape{1, 10}, false},
                   {"k_out", DType::kFloat32, Shape{1, 2, 8, 4}, false},
                   {"conv_out", DType::kFloat32, Shape{1, 3, 4}, false},
                   {"cache_out", DType::kFloat16, Shape{1, 4}, false}};
  blob.aliases = {{"k_out", "k", AliasKind::kKvCacheUpdate, Ownership::kSession, "layers.0.k"},
                  {"cache_out", "cache", AliasKind::kUser, Ownership::kCaller, ""}};
  blob.engine_kind = "cpu";
  blob.engine_entry = "decode";
  blob.engine_digest = "xxh3:2b4069c87f9d3f99";
  blob.model_id = "toy";
  BlobState k;
  k.id = "layers.0.k";
  k.input = "k";
  k.output = "k_out";
  k.shape = {1, 2, 8, 4};
  k.sequence_dim = 2;
  k.initial_key = "initial.k";
  k.initial_length = 3;
  BlobState conv;
  conv.id = "layers.0.conv";
  conv.input = "conv";
  conv.output = "conv_out";
  conv.update = Update::kSwap;
  conv.shape = {1, 3, 4};
  blob.states = {k, conv};
  blob.position = BlobPosition{"position", {"tokens", 1, 1}};
  return blob;
}

}  // namespace etrt::test
