# SPDX-License-Identifier: MIT
# llama.cpp as imported targets: bt_ggml (ggml, ggml-base and its backend headers) and bt_llama.
if(BT_ENGINE)
    foreach(lib IN ITEMS ggml-base ggml llama)
        find_library(BT_LIB_${lib} NAMES ${lib} PATHS "${LLAMA_CPP_BUILD}/bin" NO_DEFAULT_PATH)
        if(NOT BT_LIB_${lib})
            message(FATAL_ERROR "lib${lib} is not in ${LLAMA_CPP_BUILD}/bin: run `make` (it builds llama.cpp first), "
                                "or configure with -DBT_ENGINE=OFF for the planner alone")
        endif()
    endforeach()
    file(STRINGS "${LLAMA_CPP_SOURCE}/ggml/CMakeLists.txt" BT_GGML_PARTS
         REGEX "^set\\(GGML_VERSION_(MAJOR|MINOR|PATCH) [0-9]+\\)$")
    string(REGEX REPLACE "set\\(GGML_VERSION_[A-Z]+ ([0-9]+)\\)" "\\1" BT_GGML_PARTS "${BT_GGML_PARTS}")
    list(JOIN BT_GGML_PARTS "." BT_GGML_VERSION) # as ggml_version() says it
    add_library(bt_ggml INTERFACE)
    # ggml-backend-impl.h and ggml-impl.h are private headers of ggml: a backend from outside needs them, and the
    # device therefore accepts only the exact version it was built against (docs/design.md M9).
    target_include_directories(bt_ggml SYSTEM INTERFACE "${LLAMA_CPP_SOURCE}/ggml/include" "${LLAMA_CPP_SOURCE}/ggml/src")
    target_compile_definitions(bt_ggml INTERFACE BT_GGML_VERSION="${BT_GGML_VERSION}")
    target_link_libraries(bt_ggml INTERFACE "${BT_LIB_ggml}" "${BT_LIB_ggml-base}")
    # What libggml itself needs, named by the program too: a library's own needs are looked for in LD_LIBRARY_PATH first
    # (cmake/run_path.cmake), and what is loaded already is not looked for.
    file(GLOB BT_GGML_BACKENDS CONFIGURE_DEPENDS "${LLAMA_CPP_BUILD}/bin/libggml-*.so")
    list(FILTER BT_GGML_BACKENDS EXCLUDE REGEX "libggml-base\\.so$")
    # Backends that are loaded (GGML_BACKEND_DL) are nothing that libggml needs; a build that links them has this one.
    if(NOT EXISTS "${LLAMA_CPP_BUILD}/bin/libggml-cpu.so")
        set(BT_GGML_BACKENDS "")
    endif()
    add_library(bt_ggml_backends INTERFACE)
    target_link_libraries(bt_ggml_backends INTERFACE "-Wl,--no-as-needed" ${BT_GGML_BACKENDS} "-Wl,--as-needed")
    add_library(bt_llama INTERFACE)
    target_include_directories(bt_llama SYSTEM INTERFACE "${LLAMA_CPP_SOURCE}/include")
    target_link_libraries(bt_llama INTERFACE "${BT_LIB_llama}")
endif()
