# Everything but LibTorch and CUDA is linked statically or header-only, so that one binary runs against any
# LibTorch 2.11 that the loader finds. Python's extension (lib/python) has shared libraries instead: the static ones of
# Debian are not all position-independent.

function(sdp_static_library target library header package)
  find_library(${target}_LIBRARY NAMES ${library})
  find_path(${target}_INCLUDE ${header})
  if(NOT ${target}_LIBRARY OR NOT ${target}_INCLUDE)
    message(FATAL_ERROR "${library} or its header ${header} was not found. Install ${package} (scripts/setup does).")
  endif()
  add_library(sdp_${target} INTERFACE)
  add_library(sdp::${target} ALIAS sdp_${target})
  string(REPLACE .a .so shared ${library})
  find_library(${target}_SHARED NAMES ${shared})
  target_link_libraries(sdp_${target} INTERFACE
    $<IF:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,MODULE_LIBRARY>,${${target}_SHARED},${${target}_LIBRARY}>)
  target_include_directories(sdp_${target} SYSTEM INTERFACE ${${target}_INCLUDE})
endfunction()

# What follows the package: folders below include/ where the header may stand.
function(sdp_header_library target header package)
  find_path(${target}_INCLUDE ${header} PATH_SUFFIXES ${ARGN})
  if(NOT ${target}_INCLUDE)
    message(FATAL_ERROR "The header ${header} was not found. Install ${package} (scripts/setup does).")
  endif()
  add_library(sdp_${target} INTERFACE)
  add_library(sdp::${target} ALIAS sdp_${target})
  target_include_directories(sdp_${target} SYSTEM INTERFACE ${${target}_INCLUDE})
endfunction()

sdp_static_library(yaml libyaml-cpp.a yaml-cpp/yaml.h libyaml-cpp-dev)
sdp_static_library(xxhash libxxhash.a xxhash.h libxxhash-dev)
sdp_static_library(jpeg libjpeg.a jpeglib.h libjpeg62-turbo-dev)
sdp_static_library(png libpng.a png.h libpng-dev)
sdp_static_library(webp libwebp.a webp/decode.h libwebp-dev)
sdp_static_library(archive libarchive.a archive.h libarchive-dev)
sdp_static_library(zlib libz.a zlib.h zlib1g-dev)
sdp_header_library(cli11 CLI/CLI.hpp libcli11-dev)
sdp_header_library(eigen Eigen/Eigenvalues libeigen3-dev eigen3)
sdp_header_library(json nlohmann/json.hpp nlohmann-json3-dev)
sdp_header_library(fmt fmt/format.h libfmt-dev)
target_compile_definitions(sdp_fmt INTERFACE FMT_HEADER_ONLY)
sdp_header_library(spdlog spdlog/spdlog.h libspdlog-dev)
# Debian's spdlog uses the system's fmt; header-only mode keeps both out of the link.
target_compile_definitions(sdp_spdlog INTERFACE SPDLOG_FMT_EXTERNAL SPDLOG_HEADER_ONLY)
target_link_libraries(sdp_spdlog INTERFACE sdp_fmt)
target_link_libraries(sdp_png INTERFACE sdp_zlib m)
find_package(Threads REQUIRED)
