# Settings that every target of the project shares.

add_library(etrt_options INTERFACE)
target_compile_features(etrt_options INTERFACE cxx_std_20)
target_compile_options(etrt_options INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  # Warns of std::string's own operator+ (GCC bug 105651, fixed in 13).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<BOOL:${ETRT_WERROR}>:-Werror>)
# base/format.h: fmt's headers alone; it is compiled in base/format.cpp.
target_include_directories(etrt_options SYSTEM INTERFACE
  $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
if(ETRT_SANITIZE)
  target_compile_options(etrt_options INTERFACE
    -fsanitize=${ETRT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(etrt_options INTERFACE -fsanitize=${ETRT_SANITIZE})
endif()
if(ETRT_FUZZ)
  # Coverage, which guides the fuzzer, in the libraries too.
  target_compile_options(etrt_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# etrt_add_library(<name>): a shared library etrt_<name>, etrt::<name>.
# Shared, because sessions and engines must be one per process, whoever links them.
function(etrt_add_library name)
  add_library(etrt_${name} SHARED)
  add_library(etrt::${name} ALIAS etrt_${name})
  set_target_properties(etrt_${name} PROPERTIES
    EXPORT_NAME ${name}
    SOVERSION ${PROJECT_VERSION_MAJOR}
    # The second: where the executorch wheel has its libraries, seen from ours in site-packages.
    INSTALL_RPATH "$ORIGIN;$ORIGIN/../../executorch/lib")
  target_compile_features(etrt_${name} PUBLIC cxx_std_20)
  target_include_directories(etrt_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(etrt_${name} PRIVATE $<BUILD_INTERFACE:etrt_options>)
endfunction()

# etrt_keep(<target> <libraries>...): whoever links <target> loads these shared libraries,
# although nothing calls them and also under --as-needed: they register themselves.
function(etrt_keep target)
  foreach(library ${ARGN})
    target_link_options(${target} INTERFACE
      "LINKER:--push-state,--no-as-needed,$<TARGET_FILE:$<TARGET_NAME:${library}>>,--pop-state")
    if(NOT library STREQUAL target)
      target_link_libraries(${target} INTERFACE ${library})
    endif()
  endforeach()
endfunction()
