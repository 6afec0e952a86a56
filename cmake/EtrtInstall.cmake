# Installs a relocatable CMake package: find_package(etrt), etrt::core, etrt::delegate, ...
include(CMakePackageConfigHelpers)

set(_etrt_targets etrt_core)
foreach(_target etrt_tensorrt etrt_cpu etrt_delegate)
  if(TARGET ${_target})
    list(APPEND _etrt_targets ${_target})
  endif()
endforeach()

install(TARGETS ${_etrt_targets} EXPORT etrt-targets
  LIBRARY DESTINATION lib ARCHIVE DESTINATION lib RUNTIME DESTINATION bin)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION include)
install(EXPORT etrt-targets NAMESPACE etrt:: DESTINATION lib/cmake/etrt)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/etrt-config.cmake.in
  ${PROJECT_BINARY_DIR}/etrt-config.cmake INSTALL_DESTINATION lib/cmake/etrt)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/etrt-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/etrt-config.cmake ${PROJECT_BINARY_DIR}/etrt-config-version.cmake
  DESTINATION lib/cmake/etrt)
