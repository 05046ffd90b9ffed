# sdp_library(NAME SOURCES... [DEPENDS...] [TORCH] [COLD]): one folder of lib/. COLD: nothing of it runs within a step, so -O1,
# which compiles faster, is enough. TORCH adds LibTorch and the shared precompiled header of ATen. It is not torch/torch.h's:
# of that, GCC instantiates pending templates anew in every file, which takes four times as long as the rest of a usual file.
# sdp_test_program(NAME SOURCES... [DEPENDS...] [TORCH]): a program in build/test that tests run.
# sdp_test(NAME SOURCES... [DEPENDS...] [TORCH] [LABELS...] [PROCESSORS n]): one Catch2 program, registered with ctest.
# sdp_python_test(NAME [PYTEST] FILE f [ARGUMENTS...] [ENVIRONMENT...] [LABELS...] [PROCESSORS n]): one file of tests in
# Python, run by pytest or as a program with the arguments.
#
# Labels are the tiers of scripts/test: unit (default of sdp_test), parity (the same computed by other libraries), cli (the
# program as its users run it) and slow; `quick` marks those of the last two that scripts/test --quick runs too, `device` those
# that compute on the device that SDP_TEST_DEVICE names (test/test_device.h), `kernels` those that compare what the libraries'
# CPU kernels compute or allocate, which run once per instruction set of the CPU. PROCESSORS is how many cores a
# test keeps busy; ctest runs as many tests at once as there are cores for.

add_library(sdp_flags INTERFACE)
target_compile_options(sdp_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror)
target_include_directories(sdp_flags INTERFACE ${PROJECT_SOURCE_DIR}/lib)

# Owner of the precompiled header that every TORCH target reuses.
add_library(sdp_torch_pch STATIC ${PROJECT_SOURCE_DIR}/cmake/torch_pch.cpp)
target_precompile_headers(sdp_torch_pch PRIVATE <ATen/ATen.h> <ATen/core/grad_mode.h>)
target_link_libraries(sdp_torch_pch PUBLIC sdp_flags sdp::torch Threads::Threads)

# With SDP_UNITY_BUILD, the files of a folder are compiled as one: a third of the time for a whole build, but a change
# of one file compiles all of them.
function(sdp_unite target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC takes the files for headers then, whose classes must not have members of an anonymous namespace.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER "folder_${folder}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()

function(sdp_configure target)
  cmake_parse_arguments(ARG "TORCH;COLD" "" "SOURCES;DEPENDS" ${ARGN})
  if(SDP_UNITY_BUILD)
    sdp_unite(${target})
  endif()
  target_link_libraries(${target} PUBLIC sdp_flags Threads::Threads ${ARG_DEPENDS})
  if(ARG_TORCH)
    target_link_libraries(${target} PUBLIC sdp::torch)
    target_precompile_headers(${target} REUSE_FROM sdp_torch_pch)
  endif()
  if(ARG_COLD)
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

function(sdp_library name)
  cmake_parse_arguments(ARG "TORCH;COLD" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(sdp_${name} STATIC ${ARG_SOURCES})
  sdp_configure(sdp_${name} ${ARGN})
endfunction()

function(sdp_test_program name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  sdp_configure(${name} COLD ${ARGN})  # what is tested is compiled like the program
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test)
endfunction()

# Sets what a test of either kind has.
function(sdp_describe_test name)
  cmake_parse_arguments(ARG "" "PROCESSORS" "LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  set_tests_properties(${name} PROPERTIES
    LABELS "${ARG_LABELS}" PROCESSORS ${ARG_PROCESSORS} ENVIRONMENT "${ARG_ENVIRONMENT}" TIMEOUT 1800)
endfunction()

function(sdp_test name)
  cmake_parse_arguments(ARG "TORCH" "PROCESSORS" "SOURCES;DEPENDS;LABELS" ${ARGN})
  set(torch "")
  if(ARG_TORCH)
    set(torch TORCH)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  sdp_test_program(test_${name} ${torch} SOURCES ${ARG_SOURCES} DEPENDS ${ARG_DEPENDS} sdp_catch_main)
  add_test(NAME ${name} COMMAND test_${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  sdp_describe_test(${name} LABELS ${ARG_LABELS} PROCESSORS ${ARG_PROCESSORS})
endfunction()

function(sdp_python_test name)
  cmake_parse_arguments(ARG "PYTEST" "FILE;PROCESSORS" "ARGUMENTS;ENVIRONMENT;LABELS" ${ARGN})
  set(runner "")
  if(ARG_PYTEST)
    set(runner -m pytest -q -p no:cacheprovider)
  endif()
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${runner} ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_FILE} ${ARG_ARGUMENTS})
  # One thread: the oracles' passes are tiny, and other tests run beside.
  sdp_describe_test(${name} LABELS ${ARG_LABELS} PROCESSORS ${ARG_PROCESSORS}
    ENVIRONMENT ${ARG_ENVIRONMENT} PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1)
endfunction()

# sdp_sanitize(TARGET): compiles the target's own sources with AddressSanitizer, UBSan and the standard library's
# assertions, which also see an index outside a span of a mapped file. Any report ends the program.
function(sdp_sanitize target)
  target_compile_options(${target} PRIVATE
    -O1 -g1 -UNDEBUG -D_GLIBCXX_ASSERTIONS -fno-omit-frame-pointer -fsanitize=address,undefined
    -fno-sanitize-recover=all)
  target_link_options(${target} PRIVATE -fsanitize=address,undefined)
endfunction()
