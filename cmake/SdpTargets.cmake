# sdp_library(NAME SOURCES... [DEPENDS...] [TORCH]): one folder of lib/. TORCH adds LibTorch and the shared
# precompiled header of ATen. It is not torch/torch.h's: of that, GCC instantiates pending templates anew in every
# file, which takes four times as long as the rest of a usual file.
# sdp_test(NAME SOURCES... [DEPENDS...] [TORCH]): one Catch2 program, registered with ctest.

add_library(sdp_flags INTERFACE)
target_compile_options(sdp_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror)
target_include_directories(sdp_flags INTERFACE ${PROJECT_SOURCE_DIR}/lib)

# Owner of the precompiled header that every TORCH target reuses.
add_library(sdp_torch_pch STATIC ${PROJECT_SOURCE_DIR}/cmake/torch_pch.cpp)
target_precompile_headers(sdp_torch_pch PRIVATE <ATen/ATen.h> <ATen/core/grad_mode.h>)
target_link_libraries(sdp_torch_pch PUBLIC sdp_flags sdp::torch Threads::Threads)

function(sdp_configure target)
  cmake_parse_arguments(ARG "TORCH" "" "DEPENDS" ${ARGN})
  target_link_libraries(${target} PUBLIC sdp_flags Threads::Threads ${ARG_DEPENDS})
  if(ARG_TORCH)
    target_link_libraries(${target} PUBLIC sdp::torch)
    target_precompile_headers(${target} REUSE_FROM sdp_torch_pch)
  endif()
endfunction()

function(sdp_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(sdp_${name} STATIC ${ARG_SOURCES})
  if(ARG_TORCH)
    sdp_configure(sdp_${name} TORCH DEPENDS ${ARG_DEPENDS})
  else()
    sdp_configure(sdp_${name} DEPENDS ${ARG_DEPENDS})
  endif()
endfunction()

function(sdp_test name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(test_${name} ${ARG_SOURCES})
  if(ARG_TORCH)
    sdp_configure(test_${name} TORCH DEPENDS ${ARG_DEPENDS} sdp_catch_main)
  else()
    sdp_configure(test_${name} DEPENDS ${ARG_DEPENDS} sdp_catch_main)
  endif()
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test)
  add_test(NAME ${name} COMMAND test_${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
endfunction()

# sdp_sanitize(TARGET): compiles the target's own sources with AddressSanitizer, UBSan and the standard library's
# assertions, which also see an index outside a span of a mapped file. Any report ends the program.
function(sdp_sanitize target)
  target_compile_options(${target} PRIVATE
    -O1 -g1 -UNDEBUG -D_GLIBCXX_ASSERTIONS -fno-omit-frame-pointer -fsanitize=address,undefined
    -fno-sanitize-recover=all)
  target_link_options(${target} PRIVATE -fsanitize=address,undefined)
endfunction()
