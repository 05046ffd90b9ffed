# Finds LibTorch and, for a CUDA build of it, the CUDA tool chain that its package files ask for.
# Both come from the project's virtual environment (scripts/setup) unless CMAKE_PREFIX_PATH names a LibTorch.
#
# Result: sdp::torch, LibTorch's headers and libraries, with the c10d backends it was built with.

if(NOT Python3_EXECUTABLE AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  set(Python3_EXECUTABLE ${PROJECT_SOURCE_DIR}/.venv/bin/python)
endif()
# Networks in Python (lib/python) need the headers of the Python that has LibTorch.
find_package(Python3 REQUIRED COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)
set(SDP_PYTHON_NETWORKS ${Python3_Development.Module_FOUND})
if(NOT SDP_PYTHON_NETWORKS)
  message(STATUS "Python.h was not found: --network, a network in Python, will not be available")
endif()

execute_process(
  COMMAND ${Python3_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_paths()['purelib'])"
  OUTPUT_VARIABLE site_packages OUTPUT_STRIP_TRAILING_WHITESPACE)
list(APPEND CMAKE_PREFIX_PATH ${site_packages}/torch/share/cmake)

# Tensor kernels are LibTorch's own, so no device code of ours depends on this list; it only has to be valid.
if(NOT DEFINED TORCH_CUDA_ARCH_LIST)
  set(TORCH_CUDA_ARCH_LIST "9.0")
endif()
if(EXISTS ${site_packages}/nvidia/cu13/bin/nvcc AND NOT DEFINED CUDAToolkit_ROOT)
  include(WheelCuda)
  wheel_cuda(${site_packages}/nvidia/cu13)
endif()

find_package(Torch QUIET)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "LibTorch was not found. Run scripts/setup, which puts torch==2.11.0 into .venv, "
                      "or point CMAKE_PREFIX_PATH at a LibTorch 2.11.")
endif()
if(Torch_VERSION VERSION_LESS 2.11 OR Torch_VERSION VERSION_GREATER_EQUAL 2.12)
  message(WARNING "LibTorch ${Torch_VERSION} was found; sdp-train is written and tested against 2.11.")
endif()

add_library(sdp_torch INTERFACE)
add_library(sdp::torch ALIAS sdp_torch)
# LibTorch exports a copy of parts of std::filesystem that crashes when called from outside (remove_all). The
# loader takes the first library that has a symbol: libstdc++ must come before LibTorch.
target_link_options(sdp_torch INTERFACE LINKER:--push-state,--no-as-needed,-lstdc++,--pop-state)
target_link_libraries(sdp_torch INTERFACE ${TORCH_LIBRARIES})
target_include_directories(sdp_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_compile_definitions(sdp_torch INTERFACE USE_C10D_GLOO)

# LibTorch's NCCL backend needs nccl.h, which the wheel keeps in a package of its own.
find_path(NCCL_INCLUDE nccl.h HINTS ${site_packages}/nvidia/nccl/include ${CUDAToolkit_ROOT}/include)
if(TORCH_CUDA_LIBRARIES AND NCCL_INCLUDE)
  target_include_directories(sdp_torch SYSTEM INTERFACE ${NCCL_INCLUDE})
  target_compile_definitions(sdp_torch INTERFACE USE_C10D_NCCL)
endif()
get_filename_component(TORCH_LIBRARY_DIR ${TORCH_LIBRARY} DIRECTORY)

# The wheel lacks the declarations of gloo that c10d's own header includes; Debian's libgloo-dev has them.
# They are only declarations: gloo itself is inside LibTorch, libgloo is never linked.
find_path(GLOO_INCLUDE gloo/algorithm.h HINTS ${TORCH_INCLUDE_DIRS})
if(NOT GLOO_INCLUDE)
  message(FATAL_ERROR "The header gloo/algorithm.h was not found. Install libgloo-dev (scripts/setup does).")
endif()
