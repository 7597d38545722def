# SPDX-License-Identifier: MIT
# burthen-template: the template worker (src/engine/template.cpp): one C++ file of ours and llama.cpp's template engine,
# compiled from its source tree. Not llama.cpp's libllama-common: it holds the same engine in 6 MiB of code, takes as
# long to build as all that we need of llama.cpp, and brings a HTTP client along (docs/decisions/010-template-worker.md).
if(BT_ENGINE)
    enable_language(CXX)
    set(common "${LLAMA_CPP_SOURCE}/common")
    if(NOT EXISTS "${common}/jinja/runtime.cpp")
        message(FATAL_ERROR "${common} holds no template engine (jinja/): llama.cpp's source of the pinned release is needed")
    endif()
    add_library(bt_jinja OBJECT
        "${common}/jinja/caps.cpp" "${common}/jinja/lexer.cpp" "${common}/jinja/parser.cpp"
        "${common}/jinja/runtime.cpp" "${common}/jinja/string.cpp" "${common}/jinja/value.cpp"
        "${common}/json.cpp" "${common}/unicode.cpp")
    # foreign code: our flags are not its flags
    target_compile_features(bt_jinja PRIVATE cxx_std_17)
    target_compile_options(bt_jinja PRIVATE -w -O2)
    target_include_directories(bt_jinja SYSTEM PRIVATE
        "${common}" "${LLAMA_CPP_SOURCE}/ggml/include" "${LLAMA_CPP_SOURCE}/include" "${LLAMA_CPP_SOURCE}/vendor")

    add_executable(burthen-template src/engine/template.cpp $<TARGET_OBJECTS:bt_jinja>)
    target_compile_features(burthen-template PRIVATE cxx_std_17)
    target_compile_options(burthen-template PRIVATE -Wall -Wextra -Wshadow -Wconversion -fvisibility=hidden)
    target_compile_definitions(burthen-template PRIVATE _GNU_SOURCE)
    target_include_directories(burthen-template SYSTEM PRIVATE "${common}")
    target_include_directories(burthen-template PRIVATE src/engine)
    # Never with a sanitizer, also where the rest is: its shadow memory would break every bound of the worker.
    set_target_properties(burthen-template PROPERTIES CXX_EXTENSIONS OFF
        LINK_OPTIONS "-static-libstdc++;-static-libgcc;-Wl,--gc-sections,-z,relro,-z,now")
endif()
