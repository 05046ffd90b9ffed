# cmake --install: a tree that can be moved.
#   libexec/sdp-train/      report (and the lab, its Python package); the package and the extension for networks in Python
#   bin/sdp-train           finds LibTorch where it was built against; LD_LIBRARY_PATH can name another 2.11
#   share/sdp-train/        configs/, examples/ and scripts/slurm/; the paths in them are relative to this folder
#   share/bash-completion/  for sdp-train in PATH
#   share/doc/sdp-train/

include(GNUInstallDirs)

set(libraries ${TORCH_LIBRARY_DIR})
if(CUDA_cudart_LIBRARY)
  get_filename_component(cuda_library_dir ${CUDA_cudart_LIBRARY} DIRECTORY)
  list(APPEND libraries ${cuda_library_dir})
endif()
set_target_properties(sdp-train PROPERTIES INSTALL_RPATH "${libraries}")
# DT_RUNPATH instead of DT_RPATH, which LD_LIBRARY_PATH could not override.
target_link_options(sdp-train PRIVATE -Wl,--enable-new-dtags)

install(TARGETS sdp-train RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET sdp_extension)
  install(TARGETS sdp_extension LIBRARY DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/sdp-train)
endif()
install(DIRECTORY configs examples DESTINATION ${CMAKE_INSTALL_DATADIR}/sdp-train)
install(DIRECTORY scripts/slurm DESTINATION ${CMAKE_INSTALL_DATADIR}/sdp-train/scripts)
install(FILES scripts/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME sdp-train)
# In the same places as here, so that links between the pages hold; without the runs of docs/results.
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN *.zip EXCLUDE)
install(FILES README.md SECURITY.md CHANGELOG.md CITATION.cff LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
