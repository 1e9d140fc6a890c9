// An execution provider for onnxruntime: regions of a model for which a directory has libraries run in these.
//
// onnxruntime loads this file (register_execution_provider_library), and asks for each session which nodes the
// provider takes. It takes the nodes between the inputs and outputs of a library that was compiled from the same
// file (ADR 0119). Everything else stays in onnxruntime, and a warning says why.
#include <mallorn_runtime.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "onnxruntime_graph.h"
#include "onnxruntime_interface.h"
#include "sha256.h"

namespace mallorn {
namespace {

namespace fs = std::filesystem;
constexpr char kName[] = "MallornExecutionProvider", kPrefix[] = "ep.mallornexecutionprovider.";

// Returns an error of onnxruntime in place of an exception.
template <typename Body>
ort::Status* Guard(const ort::Api& api, Body body) {
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    return api.CreateStatus(ort::kFail, error.what());
  }
}

struct Options {
  std::string directory;
  std::string model;   // path of the model, for sessions of bytes
  std::string digest;  // of the model, for sessions of bytes
  int threads = 0;     // 0: as many as the model was tuned for
};

// What changes when a file is replaced; empty if there is none.
std::vector<int64_t> IdentityOf(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return {};
  return {int64_t(status.st_dev), int64_t(status.st_ino), int64_t(status.st_size), int64_t(status.st_mtim.tv_sec),
          int64_t(status.st_mtim.tv_nsec)};
}

// A digest of a file, computed once for all sessions of this process; empty if it cannot be read.
std::string DigestOf(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::pair<std::vector<int64_t>, std::string>> known;
  const std::vector<int64_t> identity = IdentityOf(path);
  std::lock_guard<std::mutex> lock(mutex);
  auto& [of, digest] = known[path];
  if (of != identity || digest.empty()) digest = Sha256::OfFile(path);
  of = identity;
  return digest;
}

// The library of a file, which all sessions share while one has it. A file that was replaced is loaded by another
// name, because the loader knows libraries by their path. `warning` is set if the library has other threads.
std::shared_ptr<LoadedLibrary> Load(const LibraryFile& file, int threads, std::string* warning) {
  struct Known {
    std::vector<int64_t> identity;
    std::weak_ptr<LoadedLibrary> library;
    int threads = 0;
  };
  static std::mutex mutex;
  static std::map<std::string, Known> all;
  const std::string path = fs::canonical(file.path).string();
  std::lock_guard<std::mutex> lock(mutex);
  Known& known = all[path];
  const std::vector<int64_t> identity = IdentityOf(path);
  std::shared_ptr<LoadedLibrary> library = known.identity == identity ? known.library.lock() : nullptr;
  if (library == nullptr) {
    std::string name = path, folder;
    if (!known.identity.empty() && known.identity != identity) {
      folder = (fs::temp_directory_path() / "mallorn-XXXXXX").string();
      if (mkdtemp(&folder[0]) == nullptr) throw Refused("no folder can be made for " + folder);
      name = folder + "/model.so";
      fs::create_symlink(path, name);
    }
    library = std::make_shared<LoadedLibrary>(file, name);
    if (!folder.empty()) fs::remove_all(folder);
    known = {identity, library, 0};
  }
  if (threads != 0 && known.threads != 0 && known.threads != threads) {
    *warning = file.path + " runs on " + std::to_string(known.threads) +
               " threads, as another session of this process has set them";
  } else if (threads != 0 && known.threads == 0) {
    library->SetThreads(threads);
    known.threads = threads;
  }
  return library;
}

// Copies a result to memory that onnxruntime allocates.
void CopyOutput(const ort::Api& api, ort::KernelContext* context, size_t index, const void* data, ffi::ShapeView sizes,
                DLDataType type) {
  ort::Value* value = nullptr;
  void* into = nullptr;
  Check(api, api.KernelContext_GetOutput(context, index, sizes.data(), sizes.size(), &value));
  Check(api, api.GetTensorMutableData(value, &into));
  size_t bytes = ffi::GetDataSize(static_cast<size_t>(sizes.Product()), type);
  if (bytes != 0) std::memcpy(into, data, bytes);
}

// A model in onnxruntime alone, for calls with sizes that a library does not take. Created by the first such call.
class Fallback {
 public:
  Fallback(const ort::Api& api, std::string model, int threads) : api_(api), model_(std::move(model)), threads_(threads) {}

  ~Fallback() {
    if (session_ != nullptr) api_.ReleaseSession(session_);
    if (env_ != nullptr) api_.ReleaseEnv(env_);
  }

  // Computes the outputs, which have these types by name.
  void Run(const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
           const std::vector<DLDataType>& types, ort::KernelContext* context) {
    Create();
    std::vector<const char*> input_names, output_names;
    std::vector<const ort::Value*> values(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      input_names.push_back(inputs[i].c_str());
      Check(api_, api_.KernelContext_GetInput(context, i, &values[i]));
    }
    for (const std::string& name : outputs) output_names.push_back(name.c_str());
    std::vector<ort::Value*> results(outputs.size(), nullptr);
    struct Release {
      const ort::Api& api;
      std::vector<ort::Value*>& values;
      ~Release() {
        for (ort::Value* value : values) {
          if (value != nullptr) api.ReleaseValue(value);
        }
      }
    } release{api_, results};
    Check(api_, api_.Run(session_, nullptr, input_names.data(), values.data(), values.size(), output_names.data(),
                         output_names.size(), results.data()));
    for (size_t i = 0; i < results.size(); ++i) {
      std::vector<int64_t> sizes;
      ReadSizes(api_, results[i], &sizes);
      void* data = nullptr;
      Check(api_, api_.GetTensorMutableData(results[i], &data));
      CopyOutput(api_, context, i, data, {sizes.data(), sizes.size()}, types[i]);
    }
  }

 private:
  void Create() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (session_ != nullptr) return;
    if (env_ == nullptr) Check(api_, api_.CreateEnv(ort::kWarning, "mallorn", &env_));
    ort::SessionOptions* options = nullptr;
    Check(api_, api_.CreateSessionOptions(&options));
    std::unique_ptr<ort::SessionOptions, void (*)(ort::SessionOptions*)> owner(options, api_.ReleaseSessionOptions);
    if (threads_ != 0) Check(api_, api_.SetIntraOpNumThreads(options, threads_));
    Check(api_, api_.CreateSession(env_, model_.c_str(), options, &session_));
  }

  const ort::Api& api_;
  std::string model_;
  int threads_;
  std::mutex mutex_;
  ort::Env* env_ = nullptr;
  ort::Session* session_ = nullptr;
};

// Aligned memory that grows.
class Buffer {
 public:
  void* Get(size_t bytes) {
    if (bytes > size_ || data_ == nullptr) {
      std::free(data_);
      size_ = std::max<size_t>((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
      data_ = std::aligned_alloc(kAlignment, size_);
      if (data_ == nullptr) throw std::bad_alloc();
    }
    return data_;
  }
  Buffer() = default;
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  ~Buffer() { std::free(data_); }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

// What one call at a time uses: a virtual machine, its arguments and copies of inputs that are not aligned.
struct Machine {
  ffi::Function main;
  std::vector<ffi::Tensor> arguments;
  std::vector<Buffer> copies;
  std::vector<std::vector<int64_t>> sizes;  // of the inputs
  std::vector<void*> data;
};

class Provider;

// A region that a library computes in a session.
class Kernel : public ort::ComputeInfo {
 public:
  Kernel(Provider* provider, const LibraryFile& file, std::shared_ptr<LoadedLibrary> library,
         std::vector<std::string> inputs, std::vector<std::string> outputs, const std::string& fallback,
         const std::map<std::string, std::shared_ptr<const Weight>>& weights);
  void Compute(ort::KernelContext* context);

 private:
  // A machine for one call; it goes back to the idle ones, unless the call fails.
  std::unique_ptr<Machine> Take();
  void PutBack(std::unique_ptr<Machine> machine) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(machine));
  }
  bool TakesSizes(const std::vector<std::vector<int64_t>>& shapes, std::string* reason) const;
  // Whether the caller left the weights as the model has them.
  bool HasOwnWeights(const ort::KernelContext* context, std::string* reason) const;

  Provider* provider_;
  const LibraryFile file_;
  const std::vector<std::string> input_names_, output_names_;  // of the fused node
  std::vector<int> inputs_;    // place among the fused node's inputs, by the library's; -1: not read
  std::vector<size_t> outputs_;  // place among the library's outputs, by the fused node's
  std::vector<std::pair<size_t, std::shared_ptr<const Weight>>> weights_;  // by the fused node's inputs
  std::shared_ptr<LoadedLibrary> library_;
  std::unique_ptr<Fallback> fallback_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Machine>> idle_;
  bool has_warned_ = false;
};

// The provider in one session.
class Provider : public ort::Ep {
 public:
  Provider(const ort::Api& api, const ort::EpApi& ep_api, const ort::Logger* logger, Options options)
      : ort::Ep{}, api(api), options(std::move(options)), ep_api_(ep_api), logger_(logger) {
    version = ort::kVersion;
    ort::Ep::GetName = [](const ort::Ep*) { return kName; };
    ort::Ep::GetCapability = [](ort::Ep* self, const ort::Graph* graph, ort::GraphSupport* support) {
      Provider* provider = static_cast<Provider*>(self);
      return Guard(provider->api, [&] { provider->Claim(graph, support); });
    };
    ort::Ep::Compile = [](ort::Ep* self, const ort::Graph**, const ort::Node** fused, size_t count,
                          ort::ComputeInfo** infos, ort::Node**) {
      Provider* provider = static_cast<Provider*>(self);
      return Guard(provider->api, [&] {
        for (size_t i = 0; i < count; ++i) infos[i] = provider->CreateKernel(fused[i]);
      });
    };
    ort::Ep::ReleaseNodeComputeInfos = [](ort::Ep*, ort::ComputeInfo** infos, size_t count) {
      for (size_t i = 0; i < count; ++i) delete static_cast<Kernel*>(infos[i]);
    };
  }

  void Log(ort::LogLevel level, const std::string& message) const {
    ort::Status* status = api.Logger_LogMessage(logger_, level, message.c_str(), "mallorn_runtime", 0, "mallorn");
    if (status != nullptr) api.ReleaseStatus(status);
  }

  const ort::Api& api;
  const Options options;

 private:
  struct Claimed {
    LibraryFile file;
    std::shared_ptr<LoadedLibrary> library;
    std::string fallback;
    std::set<std::string> outputs;
    std::map<std::string, std::shared_ptr<const Weight>> weights;
  };

  static std::string Field(const ffi::json::Object& object, const char* name) {
    auto found = object.find(ffi::String(name));
    return found == object.end() ? "" : std::string((*found).second.cast<ffi::String>());
  }

  // The files that may be libraries, in the directory or in those of a store; sorted, so that runs agree.
  std::vector<std::string> Candidates() const {
    std::vector<fs::path> folders = {options.directory};
    for (const auto& entry : fs::directory_iterator(options.directory)) {
      if (entry.is_directory() && entry.path().filename() != "regions") folders.push_back(entry.path());
    }
    std::sort(folders.begin() + 1, folders.end());
    std::vector<std::string> paths;
    for (const fs::path& folder : folders) {
      if (fs::exists(folder / "model.so")) paths.push_back((folder / "model.so").string());
      std::vector<std::string> regions;
      if (fs::is_directory(folder / "regions")) {
        for (const auto& entry : fs::directory_iterator(folder / "regions")) {
          if (entry.path().extension() == ".so") regions.push_back(entry.path().string());
        }
      }
      std::sort(regions.begin(), regions.end());
      paths.insert(paths.end(), regions.begin(), regions.end());
    }
    return paths;
  }

  // Throws Refused if weights beside the model are not those that the library was compiled with.
  static void CheckWeights(const LibraryFile& file, const std::string& model) {
    auto found = file.meta.find(ffi::String("weights"));
    if (found == file.meta.end()) {
      throw Refused("an earlier Mallorn compiled it, which did not record where weights are: compile it again");
    }
    for (const auto& [name, digest] : (*found).second.cast<ffi::json::Object>()) {
      std::string path = (fs::path(model).parent_path() / detail::Text(name)).string();
      if (model.empty()) throw Refused("the model has weights in files: create the session by its path");
      if (DigestOf(path) != detail::Text(digest)) throw Refused("it was compiled with other weights than " + path);
    }
  }

  // Throws Refused if the session fixes sizes of the model that are not those with which the library was compiled:
  // a region may have them as constants.
  static void CheckSourceSizes(const LibraryFile& file, const GraphView& graph) {
    auto found = file.meta.find(ffi::String("source_shapes"));
    if (found == file.meta.end()) return;
    for (const auto& [name, sizes] : (*found).second.cast<ffi::json::Object>()) {
      TensorSpec tuned{detail::Text(name), "", {}, {}}, declared = graph.Declared(tuned.name);
      for (const ffi::Any& size : sizes.cast<ffi::json::Array>()) tuned.shape.push_back(size.cast<int64_t>());
      for (size_t i = 0; i < declared.shape.size(); ++i) {
        if (declared.shape[i] == kFree || (i < tuned.shape.size() && declared.shape[i] == tuned.shape[i])) continue;
        throw Refused("it was compiled for " + tuned.name + " of " + detail::Describe("sizes", tuned.shape) +
                      ", the session has " + detail::Describe("sizes", declared.shape));
      }
    }
  }

  // Throws Refused if onnxruntime was faster when both were timed in turn, as the report beside the library says.
  static void CheckTimes(const LibraryFile& file) {
    const std::string path = fs::path(file.path).replace_filename("report.json").string();
    std::ifstream stream(path);
    if (!stream) return;
    std::ostringstream text;
    text << stream.rdbuf();
    double ours = 0, theirs = 0;
    try {
      auto times = detail::ParseMetadata(text.str(), path)[ffi::String("latency_us")].cast<ffi::json::Object>();
      auto median = [&times](const char* engine) {
        return times[ffi::String(engine)].cast<ffi::json::Object>()[ffi::String("median")].cast<double>();
      };
      ours = median("tuned");
      theirs = median("onnxruntime");
    } catch (const std::exception&) {
      return;  // one of them was not timed, or the report is damaged
    }
    if (ours <= theirs) return;
    std::ostringstream words;
    words << "onnxruntime was faster where it was tuned: " << theirs << " us against " << ours << " us";
    throw Refused(words.str());
  }

  // Tells onnxruntime which nodes the libraries compute.
  void Claim(const ort::Graph* graph, ort::GraphSupport* support) {
    const ort::Node* parent = nullptr;
    Check(api, api.Graph_GetParentNode(graph, &parent));
    if (parent != nullptr) return;  // the body of a loop or condition
    const char* path = nullptr;
    Check(api, api.Graph_GetModelPath(graph, &path));
    const std::string model = path != nullptr && *path != 0 ? path : options.model;
    const std::string title = model.empty() ? "the model" : model;
    std::string reasons;
    size_t strangers = 0;
    try {
      const std::string digest = model.empty() ? options.digest : DigestOf(model);
      if (digest.empty()) {
        throw Refused("it was given as bytes: name its file or bytes, mallorn.session_options(..., model=...)");
      }
      std::unique_ptr<GraphView> view;
      std::vector<std::pair<LibraryFile, Region>> found;
      for (const std::string& candidate : Candidates()) {
        try {
          LibraryFile file = LibraryFile::Read(candidate);
          ffi::json::Object digests = file.meta[ffi::String("digests")].cast<ffi::json::Object>();
          std::string source = Field(digests, "source");
          if ((source.empty() ? Field(digests, "model") : source) != digest) {
            ++strangers;
            continue;
          }
          file.CheckMachine();
          CheckWeights(file, model);
          CheckTimes(file);
          if (view == nullptr) view = std::make_unique<GraphView>(api, graph);
          // The body of a loop or condition, whose node onnxruntime 1.23 does not name, has other tensors.
          if (!view->HasAny(file.inputs) && !view->HasAny(file.outputs)) continue;
          CheckSourceSizes(file, *view);
          found.emplace_back(file, Region::Find(*view, file));
        } catch (const std::exception& error) {
          std::string words = error.what();
          if (words.find(candidate) == std::string::npos) words = candidate + ": " + words;
          reasons += (reasons.empty() ? "" : "; ") + words;
        }
      }
      // The library with most nodes first; among equals one that takes all sizes of the graph.
      std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
        if (a.second.nodes.size() != b.second.nodes.size()) return a.second.nodes.size() > b.second.nodes.size();
        return a.second.has_other_sizes < b.second.has_other_sizes;
      });
      std::set<size_t> taken;
      for (const auto& [file, region] : found) {
        const std::set<size_t>& nodes = region.nodes;
        if (std::any_of(nodes.begin(), nodes.end(), [&](size_t node) { return taken.count(node) != 0; })) continue;
        std::string fallback = region.is_model ? model : fs::path(file.path).replace_extension(".onnx").string();
        if ((!region.has_other_sizes && region.weights.empty()) || !fs::exists(fallback)) fallback = "";
        if (!region.weights.empty() && fallback.empty()) {
          reasons += (reasons.empty() ? "" : "; ") + file.path + ": it was given as bytes, and callers may set weights";
          continue;
        }
        if (region.has_other_sizes && fallback.empty()) {
          reasons += (reasons.empty() ? "" : "; ") + file.path +
                     ": the model takes sizes that it does not; fix them with add_free_dimension_override_by_name";
          continue;
        }
        try {
          Claim(*view, file, region, fallback, support);
          taken.insert(nodes.begin(), nodes.end());
        } catch (const std::exception& error) {
          reasons += (reasons.empty() ? "" : "; ") + file.path + ": " + error.what();
        }
      }
      if (found.empty() && strangers != 0 && reasons.empty()) {
        throw Refused("none of the " + std::to_string(strangers) + " libraries in " + options.directory +
                      " was compiled from it: mallorn tune " + title + " --out DIRECTORY");
      }
    } catch (const std::exception& error) {
      reasons = error.what();
    }
    if (!reasons.empty() && said_.insert(reasons).second) {
      Log(ort::kWarning, "Mallorn leaves " + std::string(claimed_.empty() ? "all" : "a part") + " of " + title +
                             " to onnxruntime: " + reasons);
    }
  }

  void Claim(const GraphView& view, const LibraryFile& file, const Region& region, const std::string& fallback,
             ort::GraphSupport* support) {
    std::string warning;
    Claimed claimed{file, Load(file, options.threads, &warning), fallback, {}, region.weights};
    claimed.library->CreateMain();  // fails if the runtime lacks a function that it calls
    if (!warning.empty()) Log(ort::kWarning, "Mallorn: " + warning);
    std::vector<const ort::Node*> nodes;
    for (size_t index : region.nodes) {
      nodes.push_back(view.nodes()[index].node);
      claimed.outputs.insert(view.nodes()[index].outputs.begin(), view.nodes()[index].outputs.end());
    }
    ort::FusionOptions fusion{ort::kVersion, true};
    Check(api, ep_api_.EpGraphSupportInfo_AddNodesToFuse(support, nodes.data(), nodes.size(), &fusion));
    Log(ort::kInfo, "Mallorn computes " + std::to_string(nodes.size()) + " of " + std::to_string(view.nodes().size()) +
                        " nodes with " + file.path);
    claimed_.push_back(std::move(claimed));
  }

  Kernel* CreateKernel(const ort::Node* fused) {
    std::vector<std::string> inputs, outputs;
    for (auto* info : List(api, fused, api.Node_GetNumInputs, api.Node_GetInputs)) inputs.push_back(NameOf(api, info));
    for (auto* info : List(api, fused, api.Node_GetNumOutputs, api.Node_GetOutputs)) outputs.push_back(NameOf(api, info));
    for (const Claimed& claimed : claimed_) {
      if (!outputs.empty() && claimed.outputs.count(outputs[0]) != 0) {
        return new Kernel(this, claimed.file, claimed.library, inputs, outputs, claimed.fallback, claimed.weights);
      }
    }
    throw Refused("onnxruntime fused nodes that no library of Mallorn computes");
  }

  const ort::EpApi& ep_api_;
  const ort::Logger* logger_;
  std::vector<Claimed> claimed_;
  std::set<std::string> said_;
};

Kernel::Kernel(Provider* provider, const LibraryFile& file, std::shared_ptr<LoadedLibrary> library,
               std::vector<std::string> inputs, std::vector<std::string> outputs, const std::string& fallback,
               const std::map<std::string, std::shared_ptr<const Weight>>& weights)
    : ort::ComputeInfo{},
      provider_(provider),
      file_(file),
      input_names_(std::move(inputs)),
      output_names_(std::move(outputs)),
      library_(std::move(library)) {
  version = ort::kVersion;
  CreateState = [](ort::ComputeInfo* self, ort::NodeComputeContext*, void** state) -> ort::Status* {
    *state = self;
    return nullptr;
  };
  ort::ComputeInfo::Compute = [](ort::ComputeInfo*, void* state, ort::KernelContext* context) {
    Kernel* kernel = static_cast<Kernel*>(static_cast<ort::ComputeInfo*>(state));
    return Guard(kernel->provider_->api, [&] { kernel->Compute(context); });
  };
  ReleaseState = [](ort::ComputeInfo*, void*) {};
  for (const TensorSpec& spec : file_.inputs) {
    auto place = std::find(input_names_.begin(), input_names_.end(), spec.name);
    inputs_.push_back(place == input_names_.end() ? -1 : static_cast<int>(place - input_names_.begin()));
  }
  for (size_t i = 0; i < input_names_.size(); ++i) {
    auto weight = weights.find(input_names_[i]);
    if (weight != weights.end()) weights_.emplace_back(i, weight->second);
  }
  for (const std::string& name : output_names_) {
    auto place = std::find_if(file_.outputs.begin(), file_.outputs.end(), [&](auto& spec) { return spec.name == name; });
    if (place == file_.outputs.end()) throw Refused(file_.path + " has no output " + name);
    outputs_.push_back(static_cast<size_t>(place - file_.outputs.begin()));
  }
  if (!fallback.empty()) {
    fallback_ = std::make_unique<Fallback>(provider->api, fallback, provider->options.threads);
  }
}

std::unique_ptr<Machine> Kernel::Take() {
  std::unique_ptr<Machine> machine;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      machine = std::move(idle_.back());
      idle_.pop_back();
      return machine;
    }
  }
  machine = std::make_unique<Machine>();
  machine->main = library_->CreateMain();
  machine->arguments.resize(file_.inputs.size());
  machine->copies.resize(file_.inputs.size());
  machine->data.resize(file_.inputs.size());
  for (const TensorSpec& spec : file_.inputs) machine->sizes.push_back(spec.shape);
  return machine;
}

// Returns whether the library computes inputs of these sizes; a free size that no name bounds is not checked.
bool Kernel::TakesSizes(const std::vector<std::vector<int64_t>>& shapes, std::string* reason) const {
  auto is_whole = [&](size_t i) { return shapes[i] == file_.inputs[i].shape; };
  size_t wrong = 0;
  while (wrong < shapes.size() && is_whole(wrong)) ++wrong;
  if (wrong == shapes.size()) return true;
  std::map<std::string, int64_t> sizes;
  bool is_right = true;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const TensorSpec& spec = file_.inputs[i];
    bool fits = shapes[i].size() == spec.shape.size();
    for (size_t k = 0; fits && k < spec.shape.size(); ++k) {
      fits = spec.shape[k] == kFree || spec.shape[k] == shapes[i][k];
      if (spec.shape[k] == kFree) sizes.emplace(spec.free_sizes[k], shapes[i][k]);
    }
    if (!fits && is_right) wrong = i;
    is_right &= fits;
  }
  for (size_t i = 0; is_right && i < shapes.size(); ++i) {
    for (size_t k = 0; is_right && k < shapes[i].size(); ++k) {
      int64_t total = 0;
      std::string terms = file_.inputs[i].free_sizes[k];
      for (size_t end; !terms.empty(); terms.erase(0, end == std::string::npos ? end : end + 3)) {
        end = terms.find(" + ");
        auto size = sizes.find(terms.substr(0, end));
        if (size == sizes.end()) total = -(1LL << 60);  // unknown: not compared
        if (size != sizes.end()) total += size->second;
      }
      is_right = file_.inputs[i].shape[k] != kFree || total < 0 || total == shapes[i][k];
      if (!is_right) wrong = i;
    }
  }
  for (const auto& [name, range] : file_.ranges) {
    auto size = sizes.find(name);
    bool is_inside = size == sizes.end() || (range.first <= size->second && size->second <= range.second);
    if (!is_inside && is_right) {
      *reason = name + " is " + std::to_string(size->second) + ", and " + file_.path + " takes " +
                std::to_string(range.first) + " to " + std::to_string(range.second);
      return false;
    }
  }
  if (!is_right) {
    const TensorSpec& spec = file_.inputs[wrong];
    *reason = "input " + spec.name + " is " + detail::Describe(spec.dtype, shapes[wrong]) + ", and " + file_.path +
              " takes " + detail::Describe(spec.dtype, spec.shape);
  }
  return is_right;
}

bool Kernel::HasOwnWeights(const ort::KernelContext* context, std::string* reason) const {
  for (const auto& [index, weight] : weights_) {
    const ort::Value* value = nullptr;
    void* data = nullptr;
    std::vector<int64_t> sizes;
    Check(provider_->api, provider_->api.KernelContext_GetInput(context, index, &value));
    Check(provider_->api, provider_->api.GetTensorMutableData(const_cast<ort::Value*>(value), &data));
    ReadSizes(provider_->api, value, &sizes);
    if (ffi::ShapeView(sizes.data(), sizes.size()).Product() != weight->elements ||
        std::memcmp(data, weight->bytes.data(), weight->bytes.size()) != 0) {
      *reason = "the weight " + input_names_[index] + " was replaced by the caller";
      return false;
    }
  }
  return true;
}

void Kernel::Compute(ort::KernelContext* context) {
  const ort::Api& api = provider_->api;
  const size_t count = file_.inputs.size();
  std::unique_ptr<Machine> machine = Take();
  std::vector<void*>& data = machine->data;
  for (size_t i = 0; i < count; ++i) {
    data[i] = nullptr;
    if (inputs_[i] < 0) continue;  // no node reads it, so any numbers will do
    const ort::Value* value = nullptr;
    Check(api, api.KernelContext_GetInput(context, static_cast<size_t>(inputs_[i]), &value));
    ReadSizes(api, value, &machine->sizes[i]);
    Check(api, api.GetTensorMutableData(const_cast<ort::Value*>(value), &data[i]));
  }
  std::string reason;
  const bool has_own_sizes = TakesSizes(machine->sizes, &reason);
  if (!has_own_sizes || !HasOwnWeights(context, &reason)) {
    if (fallback_ == nullptr) throw Refused(reason + ": tune the model for these sizes, or a range (--dynamic)");
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!has_warned_) {
        provider_->Log(ort::kWarning, reason + ": onnxruntime computes this call and others like it, more slowly" +
                                          (has_own_sizes ? "" : "; `mallorn tune --dynamic` tunes a range of sizes"));
      }
      has_warned_ = true;
    }
    PutBack(std::move(machine));
    std::vector<DLDataType> types;
    for (size_t output : outputs_) types.push_back(ffi::StringToDLDataType(file_.outputs[output].dtype));
    return fallback_->Run(input_names_, output_names_, types, context);
  }
  std::vector<ffi::AnyView> arguments;
  for (size_t i = 0; i < count; ++i) {
    const TensorSpec& spec = file_.inputs[i];
    ffi::Tensor& tensor = machine->arguments[i];
    if (!tensor.defined() || !file_.ranges.empty()) tensor = Wrap(nullptr, machine->sizes[i], spec.dtype);
    if (data[i] == nullptr || reinterpret_cast<uintptr_t>(data[i]) % kAlignment != 0) {
      size_t bytes = ffi::GetDataSize(tensor.numel(), tensor.dtype());
      void* copy = machine->copies[i].Get(bytes);
      if (data[i] != nullptr) std::memcpy(copy, data[i], bytes);
      if (data[i] == nullptr) std::memset(copy, 0, bytes);
      data[i] = copy;
    }
    const_cast<DLTensor*>(tensor.GetDLTensorPtr())->data = data[i];
    arguments.push_back(tensor);
  }
  ffi::Any result;
  machine->main.CallPacked(arguments.data(), static_cast<int32_t>(count), &result);
  auto single = result.as<ffi::Tensor>();
  ffi::Array<ffi::Tensor> results = single ? ffi::Array<ffi::Tensor>{*single} : result.cast<ffi::Array<ffi::Tensor>>();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const ffi::Tensor& tensor = results[static_cast<int64_t>(outputs_[i])];
    CopyOutput(api, context, i, tensor.data_ptr(), tensor.shape(), tensor.dtype());
  }
  PutBack(std::move(machine));
}

class PluginFactory : public ort::Factory {
 public:
  explicit PluginFactory(const void* const* table) : ort::Factory{}, api_{table}, ep_api_{api_.GetEpApi()} {
    version = ort::kVersion;
    ort::Factory::GetName = [](const ort::Factory*) { return kName; };
    GetVendor = [](const ort::Factory*) { return "Mallorn"; };
    GetVendorId = [](const ort::Factory*) -> uint32_t { return 0; };
    GetVersion = [](const ort::Factory*) { return MALLORN_VERSION; };
    GetSupportedDevices = [](ort::Factory* self, const ort::HardwareDevice* const* devices, size_t count,
                             ort::EpDevice** made, size_t most, size_t* made_count) -> ort::Status* {
      PluginFactory* factory = static_cast<PluginFactory*>(self);
      *made_count = 0;
      for (size_t i = 0; i < count && most > 0 && *made_count == 0; ++i) {
        if (factory->api_.HardwareDevice_Type(devices[i]) != ort::kHardwareCpu) continue;
        ort::Status* status = factory->ep_api_.CreateEpDevice(factory, devices[i], nullptr, nullptr, made);
        if (status != nullptr) return status;
        *made_count = 1;
      }
      return nullptr;
    };
    CreateEp = [](ort::Factory* self, const ort::HardwareDevice* const*, const ort::KeyValuePairs* const*, size_t,
                  const ort::SessionOptions* session, const ort::Logger* logger, ort::Ep** ep) {
      PluginFactory* factory = static_cast<PluginFactory*>(self);
      return Guard(factory->api_, [&] {
        Options options{factory->Entry(session, "directory"), factory->Entry(session, "model"),
                        factory->Entry(session, "digest"), std::atoi(factory->Entry(session, "threads").c_str())};
        *ep = new Provider(factory->api_, factory->ep_api_, logger, std::move(options));
      });
    };
    ReleaseEp = [](ort::Factory*, ort::Ep* ep) { delete static_cast<Provider*>(ep); };
    ValidateCompiledModelCompatibilityInfo = [](ort::Factory*, const ort::HardwareDevice* const*, size_t, const char*,
                                                int* compatibility) -> ort::Status* {
      *compatibility = 0;  // not applicable
      return nullptr;
    };
    CreateAllocator = [](ort::Factory*, const ort::MemoryInfo*, const ort::KeyValuePairs*,
                         ort::Allocator** allocator) -> ort::Status* {
      *allocator = nullptr;  // that of the CPU
      return nullptr;
    };
    ReleaseAllocator = [](ort::Factory*, ort::Allocator*) {};
    CreateDataTransfer = [](ort::Factory*, ort::DataTransfer** transfer) -> ort::Status* {
      *transfer = nullptr;
      return nullptr;
    };
    IsStreamAware = [](const ort::Factory*) { return false; };
    CreateSyncStreamForDevice = [](ort::Factory*, const void*, const ort::KeyValuePairs*,
                                   ort::SyncStream** stream) -> ort::Status* {
      *stream = nullptr;
      return nullptr;
    };
  }

 private:
  std::string Entry(const ort::SessionOptions* options, const char* name) const {
    const std::string key = std::string(kPrefix) + name;
    int is_set = 0;
    size_t size = 0;
    Check(api_, api_.HasSessionConfigEntry(options, key.c_str(), &is_set));
    if (is_set == 0) return "";
    Check(api_, api_.GetSessionConfigEntry(options, key.c_str(), nullptr, &size));
    std::string text(size, '\0');
    Check(api_, api_.GetSessionConfigEntry(options, key.c_str(), &text[0], &size));
    return text.c_str();
  }

  const ort::Api api_;
  const ort::EpApi ep_api_;
};

}  // namespace
}  // namespace mallorn

#define MALLORN_EXPORT extern "C" __attribute__((visibility("default")))

MALLORN_EXPORT ort::Status* CreateEpFactories(const char*, const ort::ApiBase* base, const ort::Logger*,
                                              ort::Factory** factories, size_t most, size_t* count) {
  *count = 0;
  const void* const* table = base->GetApi(ort::kVersion);
  if (table == nullptr || most == 0) return nullptr;
  // onnxruntime loads this file for itself; libraries of models look for TVM's functions among all of the process.
  dlopen("libtvm_ffi.so", RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  dlopen("libtvm_runtime.so", RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  factories[0] = new mallorn::PluginFactory(table);
  *count = 1;
  return nullptr;
}

MALLORN_EXPORT ort::Status* ReleaseEpFactory(ort::Factory* factory) {
  delete static_cast<mallorn::PluginFactory*>(factory);
  return nullptr;
}
