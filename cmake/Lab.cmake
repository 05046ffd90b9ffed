# Programs in Python that the program starts: the lab, sdp-train-report, -sweep and -draw, for the commands of these names, and
# sdp-train-network for --network. In the build folder they use the packages of the source tree; installed, the packages stand
# beside them in libexec/sdp-train.

set(libexec ${CMAKE_INSTALL_LIBEXECDIR}/sdp-train)
foreach(command report sweep draw network)
  set(package sdp_lab)
  if(command STREQUAL network)
    set(package sdp_train)
  endif()
  set(lab ${PROJECT_SOURCE_DIR}/python)
  set(from_launcher sdp-train)
  configure_file(python/launcher.in ${PROJECT_BINARY_DIR}/sdp-train-${command} @ONLY
                 FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  set(lab "$here")
  set(from_launcher ../../${CMAKE_INSTALL_BINDIR}/sdp-train)
  configure_file(python/launcher.in ${PROJECT_BINARY_DIR}/libexec/sdp-train-${command} @ONLY)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/libexec/sdp-train-${command} DESTINATION ${libexec})
endforeach()
install(DIRECTORY python/sdp_lab python/sdp_train DESTINATION ${libexec} PATTERN __pycache__ EXCLUDE)
install(FILES scripts/requirements-lab.txt DESTINATION ${libexec})
