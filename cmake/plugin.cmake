# SPDX-License-Identifier: MIT
# libggml-burthen.so: the memory device for programs of llama.cpp's own. Its only name is ggml_backend_init, so that what
# else is in it meets nothing of the program's. It needs the program's ggml, and names none of llama.cpp.
bt_layer(plugin SEES base probe model plan memory store report guard device LIBS bt_ggml)
target_compile_definitions(bt_plugin PRIVATE GGML_BACKEND_SHARED)
add_library(ggml-burthen MODULE $<TARGET_OBJECTS:bt_device> $<TARGET_OBJECTS:bt_plugin>)
target_link_libraries(ggml-burthen PRIVATE burthen_static bt_ggml)
set(BT_PLUGIN_NAMES "${CMAKE_SOURCE_DIR}/cmake/plugin.names")
target_link_options(ggml-burthen PRIVATE "LINKER:--version-script=${BT_PLUGIN_NAMES}")
set_target_properties(ggml-burthen PROPERTIES LINK_DEPENDS "${BT_PLUGIN_NAMES}")
install(TARGETS ggml-burthen LIBRARY DESTINATION lib/burthen)
bt_run_path(ggml-burthen "${LLAMA_CPP_BUILD}/bin" "$ORIGIN" lib/burthen/libggml-burthen.so)

# What a grammar takes, in parts: preloaded, and therefore without ggml (src/plugin/preload).
add_library(burthen-grammar MODULE "${CMAKE_SOURCE_DIR}/src/plugin/preload/grammar_parts.c")
target_compile_options(burthen-grammar PRIVATE ${BT_COMPILE_FLAGS} -fvisibility=hidden)
target_compile_definitions(burthen-grammar PRIVATE _GNU_SOURCE)
target_link_libraries(burthen-grammar PRIVATE ${CMAKE_DL_LIBS})
install(TARGETS burthen-grammar LIBRARY DESTINATION lib/burthen)

# `burthen exec --ram-budget` needs both, and so does an installation: whoever builds the program builds them.
add_dependencies(burthen ggml-burthen burthen-grammar)
