// Reads frames from standard input until it ends: a u32 size, then a blob. Answers each with
// a frame on standard output: a byte 1 and the blob as write_blob() writes it, or a byte 0
// and the error's text; before the byte, a u32 size of what follows it. Host byte order.

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "blob/blob.h"

namespace {

void answer(bool ok, std::span<const std::byte> payload) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  const std::uint8_t flag = ok ? 1 : 0;
  std::fwrite(&size, sizeof(size), 1, stdout);
  std::fwrite(&flag, sizeof(flag), 1, stdout);
  std::fwrite(payload.data(), 1, payload.size(), stdout);
  std::fflush(stdout);
}

void refuse(const std::string& message) { answer(false, std::as_bytes(std::span(message))); }

}  // namespace

int main() {
  std::uint32_t size = 0;
  while (std::fread(&size, sizeof(size), 1, stdin) == 1) {
    std::vector<std::byte> bytes(size);
    if (std::fread(bytes.data(), 1, size, stdin) != size) return 1;
    const etrt::Result<etrt::Blob> blob = etrt::parse_blob(bytes);
    if (!blob) {
      refuse(blob.status().message());
      continue;
    }
    const etrt::Result<std::vector<std::byte>> written = etrt::write_blob(*blob);
    if (written) {
      answer(true, *written);
    } else {
      refuse(written.status().message());
    }
  }
  return 0;
}
