/* A libcuda.so.1 for machines without NVIDIA's driver. TVM's CUDA runtime library links to these functions and
 * calls none of them while kernels are compiled; each reports CUDA_ERROR_NO_DEVICE. */

enum { NO_DEVICE = 100 };

int cuDeviceGetName(void) { return NO_DEVICE; }
int cuFuncSetAttribute(void) { return NO_DEVICE; }
int cuLaunchKernelEx(void) { return NO_DEVICE; }
int cuModuleGetFunction(void) { return NO_DEVICE; }
int cuModuleLoadData(void) { return NO_DEVICE; }
int cuModuleUnload(void) { return NO_DEVICE; }
int cuTensorMapEncodeTiled(void) { return NO_DEVICE; }

static int say(const char** text) {
  *text = "this machine has no CUDA driver";
  return 0;
}
int cuGetErrorName(int error, const char** text) { return (void)error, say(text); }
int cuGetErrorString(int error, const char** text) { return (void)error, say(text); }
