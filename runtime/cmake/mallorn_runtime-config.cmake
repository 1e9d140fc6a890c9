# The target mallorn::runtime: the header, and the libraries of the Python packages mallorn-runtime and apache-tvm-ffi.
get_filename_component(_package "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
find_path(MALLORN_TVM_FFI tvm_ffi/lib/libtvm_ffi.so PATHS "${_package}/.." NO_DEFAULT_PATH REQUIRED)
set(_ffi "${MALLORN_TVM_FFI}/tvm_ffi")

foreach(_name tvm_ffi tvm_runtime)
  set(_folder "${_package}/lib")
  if(_name STREQUAL tvm_ffi)
    set(_folder "${_ffi}/lib")
  endif()
  add_library(mallorn::${_name} SHARED IMPORTED)
  set_target_properties(mallorn::${_name} PROPERTIES IMPORTED_LOCATION "${_folder}/lib${_name}.so")
endforeach()
# libtvm_runtime.so names no folder of libtvm_ffi.so.
set_target_properties(mallorn::tvm_runtime PROPERTIES IMPORTED_LINK_DEPENDENT_LIBRARIES mallorn::tvm_ffi)

add_library(mallorn::runtime INTERFACE IMPORTED)
target_compile_features(mallorn::runtime INTERFACE cxx_std_17)
target_include_directories(mallorn::runtime INTERFACE "${_package}/include" "${_ffi}/include")
# What a program gives to onnxruntime's RegisterExecutionProviderLibrary.
set(mallorn_runtime_ONNXRUNTIME_PROVIDER "${_package}/lib/libmallorn_onnxruntime.so")
# A program needs the runtime's registrations and none of its symbols.
target_link_options(mallorn::runtime INTERFACE -Wl,--no-as-needed)
target_link_libraries(mallorn::runtime INTERFACE mallorn::tvm_runtime mallorn::tvm_ffi ${CMAKE_DL_LIBS})
