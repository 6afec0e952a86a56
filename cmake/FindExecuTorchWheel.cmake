# Finds the CMake package in the executorch wheel: by CMAKE_PREFIX_PATH or
# executorch_DIR if given, else in the Python that is active.

find_package(executorch CONFIG QUIET)
if(NOT TARGET executorch::runtime)
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c
      "import importlib.util as u; print(u.find_spec('executorch').submodule_search_locations[0])"
    OUTPUT_VARIABLE _executorch_root OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE _found ERROR_QUIET)
  if(NOT _found EQUAL 0)
    message(FATAL_ERROR
      "ExecuTorch isn't installed in ${Python3_EXECUTABLE}. Run 'pip install executorch==1.5.1' "
      "there, set CMAKE_PREFIX_PATH to the folder of its Python package, or configure with "
      "-DETRT_EXECUTORCH=OFF to build etrt::core alone.")
  endif()
  find_package(executorch CONFIG REQUIRED
    PATHS ${_executorch_root}/share/cmake NO_DEFAULT_PATH)
endif()

# The wheel's headers don't pass our warnings.
foreach(_target runtime kernels_optimized kernels_quantized backend_xnnpack threadpool etdump)
  if(TARGET executorch::${_target})
    get_target_property(_includes executorch::${_target} INTERFACE_INCLUDE_DIRECTORIES)
    if(_includes)
      set_target_properties(executorch::${_target} PROPERTIES
        INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${_includes}")
    endif()
  endif()
endforeach()
