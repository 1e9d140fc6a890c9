// The part of onnxruntime's C interface that the provider uses, in its version 23 (onnxruntime 1.23).
//
// onnxruntime hands out tables of functions. A later version only appends to them, so a function is known by its
// place. tests/unit/runtime compares the places and the structures with the installed onnxruntime.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ort {

constexpr uint32_t kVersion = 23;
enum ErrorCode { kFail = 1, kInvalidArgument = 2 };
enum LogLevel { kInfo = 1, kWarning = 2 };
enum HardwareType { kHardwareCpu = 0 };

struct Allocator;
struct DataTransfer;
struct Env;
struct EpDevice;
struct Graph;
struct GraphSupport;
struct HardwareDevice;
struct KernelContext;
struct KeyValuePairs;
struct Logger;
struct MemoryInfo;
struct Node;
struct NodeComputeContext;
struct RunOptions;
struct Session;
struct SessionOptions;
struct Status;  // a null pointer: success
struct SyncStream;
struct TensorInfo;
struct TypeInfo;
struct Value;
struct ValueInfo;

struct ApiBase {
  const void* const* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

// A member of a table: its place, name, result and arguments.
#define ORT_FUNCTION(place, name, result, ...) \
  result (*name)(__VA_ARGS__) = reinterpret_cast<result (*)(__VA_ARGS__)>(const_cast<void*>(table[place]))

struct Api {
  const void* const* table;
  ORT_FUNCTION(0, CreateStatus, Status*, ErrorCode, const char* message);
  ORT_FUNCTION(2, GetErrorMessage, const char*, const Status*);
  ORT_FUNCTION(3, CreateEnv, Status*, LogLevel, const char* name, Env**);
  ORT_FUNCTION(7, CreateSession, Status*, const Env*, const char* path, const SessionOptions*, Session**);
  ORT_FUNCTION(9, Run, Status*, Session*, const RunOptions*, const char* const* input_names,
               const Value* const* inputs, size_t, const char* const* output_names, size_t, Value** outputs);
  ORT_FUNCTION(10, CreateSessionOptions, Status*, SessionOptions**);
  ORT_FUNCTION(24, SetIntraOpNumThreads, Status*, SessionOptions*, int);
  ORT_FUNCTION(51, GetTensorMutableData, Status*, Value*, void**);
  ORT_FUNCTION(55, CastTypeInfoToTensorInfo, Status*, const TypeInfo*, const TensorInfo**);
  ORT_FUNCTION(60, GetTensorElementType, Status*, const TensorInfo*, int*);
  ORT_FUNCTION(61, GetDimensionsCount, Status*, const TensorInfo*, size_t*);
  ORT_FUNCTION(62, GetDimensions, Status*, const TensorInfo*, int64_t* sizes, size_t);
  ORT_FUNCTION(65, GetTensorTypeAndShape, Status*, const Value*, TensorInfo**);
  ORT_FUNCTION(90, KernelContext_GetInput, Status*, const KernelContext*, size_t index, const Value**);
  ORT_FUNCTION(91, KernelContext_GetOutput, Status*, KernelContext*, size_t index, const int64_t* sizes, size_t,
               Value**);
  ORT_FUNCTION(92, ReleaseEnv, void, Env*);
  ORT_FUNCTION(93, ReleaseStatus, void, Status*);
  ORT_FUNCTION(95, ReleaseSession, void, Session*);
  ORT_FUNCTION(96, ReleaseValue, void, Value*);
  ORT_FUNCTION(99, ReleaseTensorTypeAndShapeInfo, void, TensorInfo*);
  ORT_FUNCTION(100, ReleaseSessionOptions, void, SessionOptions*);
  ORT_FUNCTION(237, HasSessionConfigEntry, Status*, const SessionOptions*, const char* key, int*);
  ORT_FUNCTION(238, GetSessionConfigEntry, Status*, const SessionOptions*, const char* key, char* text, size_t*);
  ORT_FUNCTION(247, Logger_LogMessage, Status*, const Logger*, LogLevel, const char* message, const char* file, int line,
               const char* function);
  ORT_FUNCTION(289, GetValueInfoName, Status*, const ValueInfo*, const char**);
  ORT_FUNCTION(290, GetValueInfoTypeInfo, Status*, const ValueInfo*, const TypeInfo**);
  ORT_FUNCTION(307, HardwareDevice_Type, HardwareType, const HardwareDevice*);
  ORT_FUNCTION(317, GetEpApi, const void* const*);
  ORT_FUNCTION(326, ValueInfo_GetInitializerValue, Status*, const ValueInfo*, const Value**);
  ORT_FUNCTION(331, ValueInfo_IsConstantInitializer, Status*, const ValueInfo*, bool*);
  ORT_FUNCTION(334, Graph_GetModelPath, Status*, const Graph*, const char**);
  ORT_FUNCTION(338, Graph_GetNumInputs, Status*, const Graph*, size_t*);
  ORT_FUNCTION(339, Graph_GetInputs, Status*, const Graph*, const ValueInfo**, size_t);
  ORT_FUNCTION(340, Graph_GetNumOutputs, Status*, const Graph*, size_t*);
  ORT_FUNCTION(341, Graph_GetOutputs, Status*, const Graph*, const ValueInfo**, size_t);
  ORT_FUNCTION(344, Graph_GetNumNodes, Status*, const Graph*, size_t*);
  ORT_FUNCTION(345, Graph_GetNodes, Status*, const Graph*, const Node**, size_t);
  ORT_FUNCTION(346, Graph_GetParentNode, Status*, const Graph*, const Node**);
  ORT_FUNCTION(353, Node_GetNumInputs, Status*, const Node*, size_t*);
  ORT_FUNCTION(354, Node_GetInputs, Status*, const Node*, const ValueInfo**, size_t);
  ORT_FUNCTION(355, Node_GetNumOutputs, Status*, const Node*, size_t*);
  ORT_FUNCTION(356, Node_GetOutputs, Status*, const Node*, const ValueInfo**, size_t);
  ORT_FUNCTION(357, Node_GetNumImplicitInputs, Status*, const Node*, size_t*);
  ORT_FUNCTION(358, Node_GetImplicitInputs, Status*, const Node*, const ValueInfo**, size_t);
};

struct Factory;
struct FusionOptions {
  uint32_t version;
  bool drops_constants;  // constants are no inputs of the fused node
};

struct EpApi {
  const void* const* table;
  ORT_FUNCTION(0, CreateEpDevice, Status*, Factory*, const HardwareDevice*, const KeyValuePairs* metadata,
               const KeyValuePairs* options, EpDevice**);
  ORT_FUNCTION(2, EpGraphSupportInfo_AddNodesToFuse, Status*, GraphSupport*, const Node* const*, size_t,
               const FusionOptions*);
};

#undef ORT_FUNCTION

// A compiled region.
struct ComputeInfo {
  uint32_t version;
  Status* (*CreateState)(ComputeInfo*, NodeComputeContext*, void** state);
  Status* (*Compute)(ComputeInfo*, void* state, KernelContext*);
  void (*ReleaseState)(ComputeInfo*, void* state);
};

// A provider in one session. Members without arguments that may be null are not used here.
struct Ep {
  uint32_t version;
  const char* (*GetName)(const Ep*);
  Status* (*GetCapability)(Ep*, const Graph*, GraphSupport*);
  Status* (*Compile)(Ep*, const Graph**, const Node** fused, size_t, ComputeInfo**, Node** contexts);
  void (*ReleaseNodeComputeInfos)(Ep*, ComputeInfo**, size_t);
  void* GetPreferredDataLayout;
  void* ShouldConvertDataLayoutForOp;
  void* SetDynamicOptions;
  void* OnRunStart;
  void* OnRunEnd;
  void* CreateAllocator;
  void* CreateSyncStreamForDevice;
  void* GetCompiledModelCompatibilityInfo;
};

struct Factory {
  uint32_t version;
  const char* (*GetName)(const Factory*);
  const char* (*GetVendor)(const Factory*);
  Status* (*GetSupportedDevices)(Factory*, const HardwareDevice* const*, size_t, EpDevice**, size_t most, size_t* count);
  Status* (*CreateEp)(Factory*, const HardwareDevice* const*, const KeyValuePairs* const*, size_t,
                      const SessionOptions*, const Logger*, Ep**);
  void (*ReleaseEp)(Factory*, Ep*);
  uint32_t (*GetVendorId)(const Factory*);
  const char* (*GetVersion)(const Factory*);
  Status* (*ValidateCompiledModelCompatibilityInfo)(Factory*, const HardwareDevice* const*, size_t, const char*, int*);
  Status* (*CreateAllocator)(Factory*, const MemoryInfo*, const KeyValuePairs*, Allocator**);
  void (*ReleaseAllocator)(Factory*, Allocator*);
  Status* (*CreateDataTransfer)(Factory*, DataTransfer**);
  bool (*IsStreamAware)(const Factory*);
  Status* (*CreateSyncStreamForDevice)(Factory*, const void* device, const KeyValuePairs*, SyncStream**);
};

}  // namespace ort
