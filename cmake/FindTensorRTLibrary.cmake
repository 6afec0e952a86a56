# TensorRT::library from TENSORRT_ROOT (an SDK's folder), or from TENSORRT_INCLUDE_DIR (the
# folder with NvInfer.h) and TENSORRT_LIBRARY (the file to link with: libnvinfer, libnvinfer_lean
# or libtensorrt_rtx, such as a Python package's libnvinfer.so.8).

set(TENSORRT_ROOT "" CACHE PATH "Folder of a TensorRT or TensorRT-RTX SDK")
find_path(TENSORRT_INCLUDE_DIR NvInfer.h
  HINTS ${TENSORRT_ROOT} ENV TENSORRT_ROOT PATH_SUFFIXES include include/x86_64-linux-gnu
  DOC "Folder with NvInfer.h")
find_library(TENSORRT_LIBRARY NAMES nvinfer tensorrt_rtx nvinfer_lean
  HINTS ${TENSORRT_ROOT} ENV TENSORRT_ROOT PATH_SUFFIXES lib lib64
  DOC "libnvinfer, libtensorrt_rtx or libnvinfer_lean")

if(NOT TENSORRT_INCLUDE_DIR OR NOT EXISTS "${TENSORRT_INCLUDE_DIR}/NvInfer.h")
  message(FATAL_ERROR
    "No NvInfer.h. Set TENSORRT_ROOT to the folder of a TensorRT SDK, or TENSORRT_INCLUDE_DIR to a "
    "folder with TensorRT's headers (they are also in include/ of github.com/NVIDIA/TensorRT), now "
    "\"${TENSORRT_INCLUDE_DIR}\"; or configure with -DETRT_TENSORRT=OFF.")
endif()
if(NOT TENSORRT_LIBRARY OR NOT EXISTS "${TENSORRT_LIBRARY}")
  message(FATAL_ERROR
    "No TensorRT library. Set TENSORRT_ROOT to the folder of a TensorRT SDK, or TENSORRT_LIBRARY to "
    "libnvinfer, libnvinfer_lean or libtensorrt_rtx itself, now \"${TENSORRT_LIBRARY}\"; or configure "
    "with -DETRT_TENSORRT=OFF.")
endif()

file(STRINGS "${TENSORRT_INCLUDE_DIR}/NvInferVersion.h" _lines
  REGEX "^#define (NV_TENSORRT|TRT)_(MAJOR|MINOR)(_ENTERPRISE|_RTX)? [0-9]+")
string(REGEX REPLACE "[^;]*(MAJOR|MINOR)[A-Z_]* ([0-9]+)[^;]*" "\\2" TENSORRT_VERSION "${_lines}")
string(REPLACE ";" "." TENSORRT_VERSION "${TENSORRT_VERSION}")
message(STATUS "TensorRT: headers ${TENSORRT_VERSION}, library ${TENSORRT_LIBRARY}")

add_library(TensorRT::library UNKNOWN IMPORTED)
set_target_properties(TensorRT::library PROPERTIES
  IMPORTED_LOCATION "${TENSORRT_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${TENSORRT_INCLUDE_DIR}"
  INTERFACE_LINK_LIBRARIES CUDA::toolkit)
