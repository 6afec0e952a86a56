#include "engines/cpu/bytes_loader.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace etrt {

namespace et = executorch::runtime;

namespace {

#ifdef __linux__

/// Only pages that come from a file unchanged can be dropped: others would come back as zeros, or
/// without what was written to them. /proc/self/smaps says both (proc_pid_smaps(5)): the mapping's
/// line its inode and rights, "Anonymous" how much of it is no longer the file's.
bool is_unchanged_file_mapping(std::span<const std::byte> bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  std::ifstream maps("/proc/self/smaps");
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t low = 0;
    std::uintptr_t high = 0;
    unsigned long inode = 0;
    unsigned long anonymous_kb = 0;
    char rights[5] = {};
    if (!found) {
      const int fields =
          std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %lu", &low, &high, rights, &inode);
      if (fields != 4 || begin < low || begin >= high) continue;
      if (high - begin < bytes.size() || inode == 0 || std::strncmp(rights, "r-", 2) != 0) return false;
      found = true;
    } else if (std::sscanf(line.c_str(), "Anonymous: %lu kB", &anonymous_kb) == 1) {
      return anonymous_kb == 0;
    }
  }
  return false;
}

void drop(void* /*context*/, void* data, std::size_t size) {
  // Whole pages, neighbours' bytes included: they can be read again too.
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t before = reinterpret_cast<std::uintptr_t>(data) % page;
  auto* start = static_cast<std::byte*>(data) - before;
  const std::size_t bytes = (before + size + page - 1) / page * page;
  // Some loaders lock what they map. If this fails the pages stay, which costs memory alone.
  munlock(start, bytes);
  madvise(start, bytes, MADV_DONTNEED);
}

#else

bool is_unchanged_file_mapping(std::span<const std::byte> /*bytes*/) { return false; }
void drop(void* /*context*/, void* /*data*/, std::size_t /*size*/) {}

#endif

}  // namespace

BytesLoader::BytesLoader(std::span<const std::byte> bytes)
    : bytes_(bytes), mapped_(is_unchanged_file_mapping(bytes)) {
  // The check of the digest has read all of it.
  if (mapped_) drop(nullptr, const_cast<std::byte*>(bytes.data()), bytes.size());
}

et::Result<et::FreeableBuffer> BytesLoader::load(std::size_t offset, std::size_t size,
                                                 const SegmentInfo& /*info*/) const {
  if (offset > bytes_.size() || size > bytes_.size() - offset) return et::Error::InvalidArgument;
  return et::FreeableBuffer(bytes_.data() + offset, size, mapped_ ? drop : nullptr);
}

et::Error BytesLoader::load_into(std::size_t offset, std::size_t size, const SegmentInfo& info,
                                 void* buffer) const {
  et::Result<et::FreeableBuffer> loaded = load(offset, size, info);
  if (!loaded.ok()) return loaded.error();
  if (size > 0) std::memcpy(buffer, loaded->data(), size);
  return et::Error::Ok;
}

}  // namespace etrt
