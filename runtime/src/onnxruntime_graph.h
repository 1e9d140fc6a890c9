// onnxruntime's graph, and the part of it that a library computes.
#pragma once

#include <mallorn_runtime.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "onnxruntime_interface.h"

namespace mallorn {

// Throws Refused with onnxruntime's message, if the call failed.
inline void Check(const ort::Api& api, ort::Status* status) {
  if (status == nullptr) return;
  std::string message = api.GetErrorMessage(status);
  api.ReleaseStatus(status);
  throw Refused("onnxruntime: " + message);
}

// onnxruntime's names of element types, as the metadata of libraries have them; empty for strings and other types.
inline const char* TypeName(int type) {
  static const char* const kNames[] = {"", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "",
                                       "bool", "float16", "float64", "uint32", "uint64", "", "", "bfloat16"};
  return type < 0 || type >= static_cast<int>(sizeof kNames / sizeof *kNames) ? "" : kNames[type];
}

// What a graph or node has, by its functions for the number and for the items.
template <typename Owner, typename Item>
std::vector<const Item*> List(const ort::Api& api, const Owner* owner, ort::Status* (*count)(const Owner*, size_t*),
                              ort::Status* (*get)(const Owner*, const Item**, size_t)) {
  size_t size = 0;
  Check(api, count(owner, &size));
  std::vector<const Item*> items(size);
  if (size != 0) Check(api, get(owner, items.data(), size));
  return items;
}

// The name of a value; empty for a missing optional one.
inline std::string NameOf(const ort::Api& api, const ort::ValueInfo* info) {
  const char* name = "";
  if (info != nullptr) Check(api, api.GetValueInfoName(info, &name));
  return name;
}

// The sizes of a tensor; kFree where they are free.
inline void ReadSizes(const ort::Api& api, const ort::TensorInfo* info, std::vector<int64_t>* sizes) {
  size_t rank = 0;
  Check(api, api.GetDimensionsCount(info, &rank));
  sizes->resize(rank);
  Check(api, api.GetDimensions(info, sizes->data(), rank));
}

inline void ReadSizes(const ort::Api& api, const ort::Value* value, std::vector<int64_t>* sizes) {
  ort::TensorInfo* info = nullptr;
  Check(api, api.GetTensorTypeAndShape(value, &info));
  std::unique_ptr<ort::TensorInfo, void (*)(ort::TensorInfo*)> owner(info, api.ReleaseTensorTypeAndShapeInfo);
  ReadSizes(api, info, sizes);
}

struct Weight {
  int64_t elements;
  std::vector<char> bytes;
};

struct GraphNode {
  const ort::Node* node;
  std::vector<std::string> inputs, implicit_inputs, outputs;  // names; implicit inputs are those of subgraphs
};

// The graph of a model with its names. onnxruntime has already optimised it, and kept the meaning of each name.
class GraphView {
 public:
  GraphView(const ort::Api& api, const ort::Graph* graph) : api_(api) {
    for (const ort::Node* node : List(api, graph, api.Graph_GetNumNodes, api.Graph_GetNodes)) {
      GraphNode view{node, Names(List(api, node, api.Node_GetNumInputs, api.Node_GetInputs)),
                     Names(List(api, node, api.Node_GetNumImplicitInputs, api.Node_GetImplicitInputs)),
                     Names(List(api, node, api.Node_GetNumOutputs, api.Node_GetOutputs))};
      for (const std::string& name : view.outputs) producers_[name] = nodes_.size();
      for (const auto* names : {&view.inputs, &view.implicit_inputs}) {
        for (const std::string& name : *names) consumers_[name].push_back(nodes_.size());
      }
      nodes_.push_back(std::move(view));
    }
    inputs_ = Names(List(api, graph, api.Graph_GetNumInputs, api.Graph_GetInputs));
    for (std::string& name : Names(List(api, graph, api.Graph_GetNumOutputs, api.Graph_GetOutputs))) outputs_.insert(name);
  }

  const std::vector<GraphNode>& nodes() const { return nodes_; }
  const std::vector<std::string>& inputs() const { return inputs_; }
  bool IsOutput(const std::string& name) const { return outputs_.count(name) != 0; }

  // Whether the graph has any of these tensors.
  bool HasAny(const std::vector<TensorSpec>& specs) const {
    return std::any_of(specs.begin(), specs.end(), [&](auto& spec) { return values_.count(spec.name) != 0; });
  }

  // The node that computes a tensor; -1 for an input or a constant.
  int64_t Producer(const std::string& name) const {
    auto found = producers_.find(name);
    return found == producers_.end() ? -1 : static_cast<int64_t>(found->second);
  }

  // Whether nobody reads the node's results, or only such nodes do.
  bool IsDead(size_t index) const {
    auto [known, is_new] = dead_.emplace(index, false);
    if (!is_new) return known->second;
    const std::vector<std::string>& results = nodes_[index].outputs;
    return dead_[index] = std::all_of(results.begin(), results.end(), [this](const std::string& result) {
             const std::vector<size_t>& readers = Consumers(result);
             return !IsOutput(result) &&
                    std::all_of(readers.begin(), readers.end(), [this](size_t reader) { return IsDead(reader); });
           });
  }

  const std::vector<size_t>& Consumers(const std::string& name) const {
    static const std::vector<size_t> kNone;
    auto found = consumers_.find(name);
    return found == consumers_.end() ? kNone : found->second;
  }

  bool IsConstant(const std::string& name) const {
    bool is_constant = false;
    auto found = values_.find(name);
    if (found != values_.end()) Check(api_, api_.ValueInfo_IsConstantInitializer(found->second, &is_constant));
    return is_constant;
  }

  // The value of a weight that is an input of the graph, too, so that callers may replace it; null if it is none.
  const ort::Value* ReplaceableWeight(const std::string& name) const {
    auto found = values_.find(name);
    const ort::Value* value = nullptr;
    if (found == values_.end() || std::count(inputs_.begin(), inputs_.end(), name) == 0) return value;
    Check(api_, api_.ValueInfo_GetInitializerValue(found->second, &value));
    return value;
  }

  // A copy of such a weight; null for text and other types that no library takes.
  std::shared_ptr<const Weight> Copy(const std::string& name, const ort::Value* value) const {
    TensorSpec spec = Declared(name);
    if (spec.dtype.empty()) return nullptr;
    int64_t elements = 1;
    ReadSizes(api_, value, &spec.shape);
    for (int64_t size : spec.shape) elements *= size;
    void* data = nullptr;
    Check(api_, api_.GetTensorMutableData(const_cast<ort::Value*>(value), &data));
    const char* first = static_cast<const char*>(data);
    size_t bytes = ffi::GetDataSize(static_cast<size_t>(elements), ffi::StringToDLDataType(spec.dtype));
    return std::make_shared<const Weight>(Weight{elements, {first, first + bytes}});
  }

  // Type and sizes that the graph declares, as far as it does.
  TensorSpec Declared(const std::string& name) const {
    TensorSpec spec{name, "", {}, {}};
    const ort::TypeInfo* type = nullptr;
    auto found = values_.find(name);
    if (found != values_.end()) Check(api_, api_.GetValueInfoTypeInfo(found->second, &type));
    const ort::TensorInfo* tensor = nullptr;
    if (type != nullptr) Check(api_, api_.CastTypeInfoToTensorInfo(type, &tensor));
    if (tensor == nullptr) return spec;
    int element = 0;
    Check(api_, api_.GetTensorElementType(tensor, &element));
    spec.dtype = TypeName(element);
    ReadSizes(api_, tensor, &spec.shape);
    return spec;
  }

 private:
  std::vector<std::string> Names(const std::vector<const ort::ValueInfo*>& infos) {
    std::vector<std::string> names;
    for (const ort::ValueInfo* info : infos) {
      names.push_back(NameOf(api_, info));
      if (info != nullptr) values_.emplace(names.back(), info);
    }
    return names;
  }

  const ort::Api& api_;
  std::vector<GraphNode> nodes_;
  std::vector<std::string> inputs_;
  std::set<std::string> outputs_;
  std::map<std::string, const ort::ValueInfo*> values_;
  std::map<std::string, size_t> producers_;
  std::map<std::string, std::vector<size_t>> consumers_;
  mutable std::map<size_t, bool> dead_;
};

// The nodes between a library's inputs and outputs.
struct Region {
  std::set<size_t> nodes;
  std::map<std::string, std::shared_ptr<const Weight>> weights;  // those that callers may replace
  std::set<std::string> inputs;  // those of the library that nodes read
  bool is_model = false;         // inputs and outputs are those of the model
  bool has_other_sizes = false;  // the graph allows sizes that the library does not take

  // Throws Refused, with the reason, if the graph has no such nodes, or others depend on what is inside.
  static Region Find(const GraphView& graph, const LibraryFile& library) {
    Region region;
    std::map<std::string, const TensorSpec*> inputs, outputs;
    for (const TensorSpec& spec : library.inputs) inputs[spec.name] = &spec;
    std::vector<size_t> pending;
    for (const TensorSpec& spec : library.outputs) {
      outputs[spec.name] = &spec;
      if (inputs.count(spec.name) != 0) continue;  // passed on
      int64_t producer = graph.Producer(spec.name);
      if (producer >= 0) pending.push_back(static_cast<size_t>(producer));
      if (producer < 0 && !graph.IsOutput(spec.name)) {
        throw Refused("onnxruntime's graph does not compute its output " + spec.name);
      }
    }
    std::set<std::string> explicit_inputs;
    while (!pending.empty()) {
      size_t index = pending.back();
      pending.pop_back();
      if (!region.nodes.insert(index).second) continue;
      const GraphNode& node = graph.nodes()[index];
      for (const auto* names : {&node.inputs, &node.implicit_inputs}) {
        for (const std::string& name : *names) {
          if (name.empty() || graph.IsConstant(name)) continue;
          int64_t producer = graph.Producer(name);
          if (inputs.count(name) != 0) {
            region.inputs.insert(name);
            if (names == &node.inputs) explicit_inputs.insert(name);
          } else if (producer < 0) {
            if (region.weights.count(name) != 0) continue;
            const ort::Value* value = graph.ReplaceableWeight(name);
            auto weight = value == nullptr ? nullptr : graph.Copy(name, value);
            if (weight == nullptr) throw Refused("the region also reads " + name + ", which callers set");
            region.weights[name] = weight;
          } else {
            pending.push_back(static_cast<size_t>(producer));
          }
        }
      }
      for (const std::string& name : node.outputs) {  // nodes whose results nobody reads
        for (size_t consumer : graph.Consumers(name)) {
          if (graph.IsDead(consumer)) pending.push_back(consumer);
        }
      }
    }
    if (region.nodes.empty()) throw Refused("onnxruntime computes its outputs when it loads the model");
    for (const std::string& name : region.inputs) {
      // onnxruntime 1.23 does not hand such a tensor to the provider.
      if (explicit_inputs.count(name) == 0) throw Refused("only a subgraph reads its input " + name);
      region.CompareSizes(graph, *inputs.at(name), library, true);
    }
    for (const TensorSpec& spec : library.inputs) {
      if (region.inputs.count(spec.name) == 0 && std::count(spec.shape.begin(), spec.shape.end(), kFree) != 0) {
        throw Refused("onnxruntime's graph does not read its input " + spec.name);
      }
    }
    for (const auto& [name, spec] : outputs) {
      if (graph.Producer(name) >= 0 && inputs.count(name) == 0) region.CompareSizes(graph, *spec, library, false);
    }
    region.CheckClosed(graph, outputs);
    const std::vector<std::string>& all = graph.inputs();
    region.is_model = std::all_of(all.begin(), all.end(), [&](const std::string& name) {
      return region.inputs.count(name) != 0 || region.weights.count(name) != 0 || graph.IsConstant(name) ||
             (graph.Consumers(name).empty() && !graph.IsOutput(name));  // calls of the fallback may leave it out
    });
    for (const auto& [name, spec] : outputs) region.is_model &= graph.IsOutput(name);
    if (!region.is_model && !region.weights.empty()) {
      throw Refused("the region also reads " + region.weights.begin()->first +
                    ", which callers may set: if it is a weight, remove it from the model's inputs");
    }
    return region;
  }

 private:
  // Throws Refused if the graph declares another type or size than the library has.
  void CompareSizes(const GraphView& graph, const TensorSpec& spec, const LibraryFile& library, bool is_input) {
    TensorSpec declared = graph.Declared(spec.name);
    bool is_same = declared.dtype == spec.dtype, has_rank = declared.shape.size() == spec.shape.size();
    if (!has_rank && declared.shape.empty()) {  // unknown
      has_other_sizes |= is_input;
    } else {
      is_same &= has_rank;
    }
    for (size_t i = 0; is_same && has_rank && i < spec.shape.size(); ++i) {
      if (!is_input) {  // follows from the inputs, whatever the file says
      } else if (declared.shape[i] == kFree) {
        has_other_sizes = true;
      } else if (spec.shape[i] == kFree) {
        auto range = library.ranges.find(spec.free_sizes[i]);
        is_same = range == library.ranges.end() || (range->second.first <= declared.shape[i] &&
                                                   declared.shape[i] <= range->second.second);
      } else {
        is_same = spec.shape[i] == declared.shape[i];
      }
    }
    if (!is_same) {
      throw Refused("its " + spec.name + " is " + detail::Describe(spec.dtype, spec.shape) + ", the model's is " +
                    detail::Describe(declared.dtype.empty() ? "another type" : declared.dtype, declared.shape) +
                    ": tune the model with these sizes, or a range of sizes (--dynamic)");
    }
  }

  void CheckClosed(const GraphView& graph, const std::map<std::string, const TensorSpec*>& outputs) const {
    std::vector<size_t> pending;
    for (size_t index : nodes) {
      for (const std::string& name : graph.nodes()[index].outputs) {
        bool is_used = graph.IsOutput(name);
        for (size_t consumer : graph.Consumers(name)) {
          if (nodes.count(consumer) != 0) continue;
          is_used = true;
          pending.push_back(consumer);
        }
        if (is_used && outputs.count(name) == 0) throw Refused(name + ", which it keeps inside, is read outside");
      }
    }
    std::set<size_t> after(pending.begin(), pending.end());
    while (!pending.empty()) {
      size_t index = pending.back();
      pending.pop_back();
      for (const std::string& name : graph.nodes()[index].outputs) {
        for (size_t consumer : graph.Consumers(name)) {
          if (nodes.count(consumer) != 0) throw Refused("its input depends on its output, by " + name);
          if (after.insert(consumer).second) pending.push_back(consumer);
        }
      }
    }
  }
};

}  // namespace mallorn
