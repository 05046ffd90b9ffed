# wheel_cuda(FOLDER): makes the CUDA tool chain below FOLDER (nvidia/cu13 of site-packages) the one that LibTorch's
# package files find, and nothing of another CUDA on this machine.
#
# The wheels hold libcudart.so.13 but no libcudart.so, the name that FindCUDA and FindCUDAToolkit look for: without
# the settings below they end up with a library of another version, or with none. And nvcc looks for its libraries
# in lib64, where the wheels have lib.

macro(wheel_cuda folder)
  set(CUDAToolkit_ROOT ${folder})
  set(CUDA_TOOLKIT_ROOT_DIR ${folder})
  set(CMAKE_CUDA_COMPILER ${folder}/bin/nvcc)
  set(CMAKE_CUDA_FLAGS "-L${folder}/lib")
  file(GLOB wheel_cuda_libraries ${folder}/lib/lib*.so.*)
  foreach(file ${wheel_cuda_libraries})
    if(file MATCHES "/lib([A-Za-z_]+)\\.so\\.[0-9.]+$")
      set(CUDA_${CMAKE_MATCH_1}_LIBRARY ${file})
    endif()
  endforeach()
  set(CUDA_CUDART ${CUDA_cudart_LIBRARY})          # FindCUDAToolkit
  set(CUDA_CUDART_LIBRARY ${CUDA_cudart_LIBRARY})  # FindCUDA
endmacro()
