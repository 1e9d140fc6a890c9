// Calls a library with inputs of ones and prints the first numbers of its outputs: call model.so [THREADS]
#include <mallorn_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>

// All bytes are zero, apart from float32, which is filled with ones.
mallorn::ffi::Tensor MakeInput(const mallorn::TensorSpec& spec) {
  std::vector<int64_t> shape = spec.shape;
  std::replace(shape.begin(), shape.end(), mallorn::kFree, int64_t{1});
  mallorn::ffi::Tensor tensor = mallorn::Empty(shape, spec.dtype);
  std::memset(tensor.data_ptr(), 0, mallorn::ffi::GetDataSize(tensor.numel(), tensor.dtype()));
  if (spec.dtype == "float32") std::fill_n(static_cast<float*>(tensor.data_ptr()), tensor.numel(), 1.0f);
  return tensor;
}

int main(int argc, char** argv) {
  try {
    mallorn::Session session(argc > 1 ? argv[1] : "model.so", argc > 2 ? std::atoi(argv[2]) : 0);
    mallorn::Tensors inputs;
    for (const mallorn::TensorSpec& spec : session.inputs()) inputs.emplace(spec.name, MakeInput(spec));
    for (const auto& [name, tensor] : session.Run(inputs)) {
      std::cout << name << ":";
      const float* numbers = static_cast<const float*>(tensor.data_ptr());
      int64_t count = tensor.dtype().code == kDLFloat ? std::min<int64_t>(tensor.numel(), 4) : 0;
      for (int64_t i = 0; i < count; ++i) std::cout << " " << numbers[i];
      std::cout << "\n";
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
