// Two conversations on one loaded program, interleaved token by token.
//
//   two_conversations MODEL.pte TOKEN...     (a program with methods prefill and decode)

#include <etrt/etrt.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

using executorch::extension::make_tensor_ptr;
using executorch::extension::Module;

/// Appends `tokens` to the conversation that is selected; the most likely next token.
std::int64_t append(Module& model, const char* method, const std::vector<std::int64_t>& tokens,
                    std::int64_t position) {
  auto input = make_tensor_ptr({1, static_cast<std::int32_t>(tokens.size())}, tokens);
  auto start = make_tensor_ptr({1}, std::vector<std::int64_t>{position});
  auto outputs = model.execute(method, {*input, *start});
  if (!outputs.ok()) {
    std::fprintf(stderr, "%s\n", etrt::last_error());
    std::exit(1);
  }
  const auto& logits = outputs->front().toTensor();
  const float* end = logits.const_data_ptr<float>() + logits.numel();
  const float* begin = end - logits.size(logits.dim() - 1);
  return std::max_element(begin, end) - begin;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL.pte TOKEN...\n", argv[0]);
    return 2;
  }
  std::vector<std::int64_t> prompt;
  for (int i = 2; i < argc; ++i) prompt.push_back(std::atoll(argv[i]));

  Module model(argv[1], Module::LoadMode::Mmap);
  etrt::Session sessions[2];
  std::int64_t token[2];
  for (int s : {0, 1}) {
    etrt::SessionScope use(sessions[s]);
    token[s] = append(model, "prefill", prompt, 0);
    std::reverse(prompt.begin(), prompt.end());  // The second conversation starts otherwise.
  }
  for (int step = 0; step < 8; ++step) {
    for (int s : {0, 1}) {
      etrt::SessionScope use(sessions[s]);
      std::printf("conversation %d, position %ld: %ld\n", s, static_cast<long>(sessions[s].length()),
                  static_cast<long>(token[s]));
      token[s] = append(model, "decode", {token[s]}, sessions[s].length());
    }
  }
}
