// Calls models that Mallorn compiled:  mallorn::Session("model.so").Run({{"x", x}})
//
// The libraries of the Python packages mallorn-runtime and apache-tvm-ffi do the work; the CMake package
// mallorn_runtime finds them (docs/runtime.md). Linux only.
#pragma once

#include <dlfcn.h>
#include <elf.h>
#include <sys/stat.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace mallorn {

namespace ffi = tvm::ffi;
using Tensors = std::map<std::string, ffi::Tensor>;

constexpr int64_t kFormat = 1;      // of the metadata
constexpr size_t kAlignment = 64;   // bytes; TVM's vector code relies on it
constexpr int64_t kFree = -1;       // a size that calls choose
constexpr DLDevice kCpu = {kDLCPU, 0};

// The library, an input or an option cannot be used; the message is a sentence without control characters.
struct Refused : std::runtime_error {
  explicit Refused(std::string message) : std::runtime_error(Printable(std::move(message))) {}

 private:
  static std::string Printable(std::string text) {
    for (size_t i = 0; i < text.size(); ++i) {
      unsigned char byte = text[i], last = i ? text[i - 1] : 0;
      bool is_control = byte < 0x20 || byte == 0x7f || (last == 0xc2 && byte < 0xa0);
      if (is_control) text[i] = '?';
    }
    return text;
  }
};

struct TensorSpec {
  std::string name, dtype;
  std::vector<int64_t> shape;           // kFree where calls choose the size
  std::vector<std::string> free_sizes;  // their names, such as "past + new"; empty elsewhere
};

// A tensor of this CPU's memory, not initialised.
inline ffi::Tensor Empty(const std::vector<int64_t>& shape, const std::string& dtype) {
  static ffi::Function allocate = ffi::Function::GetGlobalRequired("runtime.TVMTensorAllocWithScope");
  return allocate(ffi::Shape(shape), ffi::StringToDLDataType(dtype), kCpu, nullptr).cast<ffi::Tensor>();
}

// A tensor in the caller's memory, which must be aligned to 64 bytes and outlive the tensor.
inline ffi::Tensor Wrap(void* data, std::vector<int64_t> shape, const std::string& dtype) {
  if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) {
    throw Refused("memory for a tensor is not aligned to 64 bytes");
  }
  struct Owner {
    DLManagedTensor managed;
    std::vector<int64_t> shape;
  };
  Owner* owner = new Owner{{}, std::move(shape)};
  owner->managed.dl_tensor = {data, kCpu, static_cast<int32_t>(owner->shape.size()), ffi::StringToDLDataType(dtype),
                              owner->shape.data(), nullptr, 0};
  owner->managed.manager_ctx = owner;
  owner->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Owner*>(self->manager_ctx); };
  return ffi::Tensor::FromDLPack(&owner->managed);
}

namespace detail {

// Reads the section of the metadata without loading the library.
inline std::string ReadMetadata(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) throw Refused(path + " cannot be read");
  if (!S_ISREG(status.st_mode)) throw Refused(path + " is no library of Mallorn: it is no file");
  std::ifstream file(path, std::ios::binary);
  auto read = [&](void* into, uint64_t offset, uint64_t size) {
    file.seekg(static_cast<std::streamoff>(offset));
    if (!file.read(static_cast<char*>(into), static_cast<std::streamsize>(size))) {
      throw Refused(path + " is no library of Mallorn, or is cut off");
    }
  };
  Elf64_Ehdr header;
  read(&header, 0, sizeof header);
  if (std::string(reinterpret_cast<char*>(header.e_ident), SELFMAG) != ELFMAG ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr) ||
      header.e_shstrndx >= header.e_shnum) {
    throw Refused(path + " is no library of Mallorn: it is no 64-bit ELF file");
  }
#if defined(__x86_64__)
  constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
  constexpr int kMachine = EM_AARCH64;
#endif
  if (header.e_machine != kMachine) throw Refused(path + " is for another architecture than this machine's");
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  read(sections.data(), header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  constexpr uint64_t kMostBytes = 16 << 20;
  auto content = [&](const Elf64_Shdr& section) {
    if (section.sh_size > kMostBytes) throw Refused(path + " is damaged");
    std::string bytes(section.sh_size, '\0');
    read(&bytes[0], section.sh_offset, section.sh_size);
    return bytes;
  };
  const std::string names = content(sections[header.e_shstrndx]), own_name(".mallorn\0", 9);
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_name < names.size() && names.compare(section.sh_name, own_name.size(), own_name) == 0) {
      return content(section).c_str();
    }
  }
  throw Refused(path + " is no library of Mallorn: it has no section .mallorn");
}

// Parses JSON. Throws Refused for nesting that would overflow the stack of TVM's recursive parser.
inline ffi::json::Object ParseMetadata(const std::string& text, const std::string& path) {
  constexpr int kMostDepth = 100;
  int depth = 0;
  bool is_string = false;
  for (size_t i = 0; i < text.size() && depth <= kMostDepth; ++i) {
    if (text[i] == '"') is_string = !is_string;
    if (is_string && text[i] == '\\') ++i;
    if (!is_string) depth += (text[i] == '[' || text[i] == '{') - (text[i] == ']' || text[i] == '}');
  }
  if (depth > kMostDepth) throw Refused("the metadata of " + path + " are damaged: compile the library again");
  return ffi::json::Parse(text).cast<ffi::json::Object>();
}

// The CPU features that the kernel lists; empty if it lists none.
inline std::set<std::string> CpuFlags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) {
      std::istringstream words(line.substr(line.find(':') + 1));
      return {std::istream_iterator<std::string>(words), {}};
    }
  }
  return {};
}

inline std::string Text(const ffi::Any& value) { return std::string(value.cast<ffi::String>()); }

inline std::vector<TensorSpec> Specs(const ffi::Any& rows) {
  std::vector<TensorSpec> specs;
  for (const ffi::Any& row : rows.cast<ffi::json::Array>()) {
    ffi::json::Object fields = row.cast<ffi::json::Object>();
    TensorSpec spec{Text(fields[ffi::String("name")]), Text(fields[ffi::String("dtype")]), {}, {}};
    for (const ffi::Any& size : fields[ffi::String("shape")].cast<ffi::json::Array>()) {
      spec.shape.push_back(size.try_cast<int64_t>().value_or(kFree));
      spec.free_sizes.push_back(spec.shape.back() == kFree ? Text(size) : "");
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

inline std::string Describe(const std::string& dtype, const std::vector<int64_t>& shape) {
  std::string text = dtype + " (";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i ? ", " : "") + (shape[i] == kFree ? std::string("?") : std::to_string(shape[i]));
  }
  return text + ")";
}

}  // namespace detail

// What a library says about itself, read without loading it.
struct LibraryFile {
  std::string path;
  ffi::json::Object meta;
  std::vector<TensorSpec> inputs, outputs;
  std::map<std::string, std::pair<int64_t, int64_t>> ranges;  // smallest and largest size by name

  // Throws Refused if the file is no library of Mallorn.
  static LibraryFile Read(const std::string& path) {
    LibraryFile file{path, {}, {}, {}, {}};
    const std::string text = detail::ReadMetadata(path);
    try {
      file.meta = detail::ParseMetadata(text, path);
      if (file.meta[ffi::String("format")].cast<int64_t>() != kFormat) {
        throw Refused("the metadata of " + path + " have another format than this version of mallorn_runtime.h reads");
      }
      file.inputs = detail::Specs(file.meta[ffi::String("inputs")]);
      file.outputs = detail::Specs(file.meta[ffi::String("outputs")]);
      for (const auto& [name, bounds] : file.meta[ffi::String("ranges")].cast<ffi::json::Object>()) {
        ffi::json::Array pair = bounds.cast<ffi::json::Array>();
        file.ranges[detail::Text(name)] = {pair[0].cast<int64_t>(), pair[1].cast<int64_t>()};
      }
    } catch (const ffi::Error& error) {
      throw Refused("the metadata of " + path + " are damaged: " + error.what());
    }
    return file;
  }

  // Throws Refused if this machine cannot run the library.
  void CheckMachine() const {
    std::set<std::string> flags = detail::CpuFlags();
    std::string lacking;
    try {
      ffi::json::Object target = meta[ffi::String("target")].cast<ffi::json::Object>();
      if (detail::Text(target[ffi::String("kind")]) != "llvm") throw Refused(path + " is not for CPUs");
      for (const ffi::Any& feature : meta[ffi::String("cpu_features")].cast<ffi::json::Array>()) {
        std::string name = detail::Text(feature);
        if (!flags.empty() && flags.count(name) == 0) lacking += (lacking.empty() ? "" : ", ") + name;
      }
    } catch (const ffi::Error& error) {
      throw Refused("the metadata of " + path + " are damaged: " + error.what());
    }
    if (!lacking.empty()) {
      throw Refused(path + " needs CPU features that this machine lacks: " + lacking +
                    "; tune or compile the model for this machine");
    }
  }
};

// A library in memory. Its virtual machines share weights and threads.
class LoadedLibrary {
 public:
  // Throws Refused if the file cannot be loaded.
  LoadedLibrary(const LibraryFile& file, const std::string& path) : file_(path), is_free_(!file.ranges.empty()) {
    // The loader looks for a name without a slash among the system's libraries.
    if (path.find('/') == std::string::npos) file_ = "./" + path;
    try {
      module_ = ffi::Module::LoadFromFile(file_);
      create_ = module_.value()->GetFunction("vm_load_executable").value();
    } catch (const ffi::Error& error) {
      throw Refused(file.path + " cannot be loaded: " + error.what());
    }
  }

  // The library's function, in a virtual machine that runs one call at a time.
  ffi::Function CreateMain() const {
    constexpr int kNaive = 1, kPooled = 2;  // the pool keeps freed memory by exact size
    ffi::Module machine = create_().cast<ffi::Module>();
    machine->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, is_free_ ? kNaive : kPooled);
    return machine->GetFunction("main").value();
  }

  // Sets the number of threads, the calling one included.
  void SetThreads(int threads) const {
    void* handle = dlopen(file_.c_str(), RTLD_NOW | RTLD_NOLOAD);
    void* function = handle == nullptr ? nullptr : dlsym(handle, "mallorn_set_threads");
    if (handle != nullptr) dlclose(handle);
    if (function == nullptr) throw Refused(file_ + " has no threads of its own, so they cannot be set");
    using SetThreads = int (*)(int, const unsigned char*, size_t);
    if (reinterpret_cast<SetThreads>(function)(threads, nullptr, 0) != 0) {
      throw Refused("the number of threads must be 1 to 256");
    }
  }

 private:
  std::string file_;
  bool is_free_;
  ffi::Optional<ffi::Module> module_;
  ffi::Function create_;
};

// A compiled model. Any number of threads may call Run at once.
class Session {
 public:
  // `threads` counts the calling thread, too; 0: as many as the model was tuned for. Throws Refused, before
  // anything is loaded, if this machine cannot run the library.
  explicit Session(const std::string& path, int threads = 0)
      : file_(LibraryFile::Read(path)), library_((file_.CheckMachine(), file_), path) {
    if (threads != 0) library_.SetThreads(threads);
  }

  const std::vector<TensorSpec>& inputs() const { return file_.inputs; }
  const std::vector<TensorSpec>& outputs() const { return file_.outputs; }

  // Returns the outputs by name, for inputs by name; both share memory with the tensors of the caller. An output
  // that the model only passes on is the memory of the input or weight itself.
  Tensors Run(const Tensors& given) {
    std::vector<ffi::AnyView> arguments;
    for (const TensorSpec& spec : inputs()) arguments.push_back(Find(given, spec));
    if (given.size() != inputs().size()) throw Refused(file_.path + " has fewer inputs than were given");
    ffi::Function main = Take();
    ffi::Any result;
    main.CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      idle_.push_back(main);
    }
    Tensors found;
    if (auto tensor = result.as<ffi::Tensor>()) {
      found.emplace(outputs().at(0).name, *tensor);
    } else {
      ffi::Array<ffi::Tensor> tensors = result.cast<ffi::Array<ffi::Tensor>>();
      for (size_t i = 0; i < outputs().size(); ++i) found.emplace(outputs()[i].name, tensors[i]);
    }
    return found;
  }

 private:
  ffi::AnyView Find(const Tensors& given, const TensorSpec& spec) const {
    auto found = given.find(spec.name);
    if (found == given.end()) throw Refused(file_.path + " also needs input " + spec.name);
    const ffi::Tensor& tensor = found->second;
    bool is_right = ffi::DLDataTypeToString(tensor.dtype()) == spec.dtype &&
                    tensor.ndim() == static_cast<int>(spec.shape.size()) && tensor.IsContiguous() &&
                    reinterpret_cast<uintptr_t>(tensor.data_ptr()) % kAlignment == 0;
    for (size_t i = 0; is_right && i < spec.shape.size(); ++i) {
      is_right = spec.shape[i] == kFree || spec.shape[i] == tensor.size(static_cast<int>(i));
    }
    if (is_right) return tensor;
    std::vector<int64_t> shape(tensor.shape().begin(), tensor.shape().end());
    throw Refused("input " + spec.name + " of " + file_.path + " is " +
                  detail::Describe(std::string(ffi::DLDataTypeToString(tensor.dtype())), shape) + "; " +
                  detail::Describe(spec.dtype, spec.shape) + ", contiguous and aligned to 64 bytes, is wanted");
  }

  // An idle virtual machine's function, or a new one's; a machine runs one call at a time.
  ffi::Function Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return library_.CreateMain();
    ffi::Function main = idle_.back();
    idle_.pop_back();
    return main;
  }

  LibraryFile file_;
  LoadedLibrary library_;
  std::mutex mutex_;
  std::vector<ffi::Function> idle_;
};

}  // namespace mallorn
