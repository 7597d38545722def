# SPDX-License-Identifier: MIT
# burthen-serve: the router, a program of its own that `burthen serve` becomes. It names no library of llama.cpp, so that
# none is mapped into a process that may live for months beside the servers it starts (a test looks).
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd>=0.9.75)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl>=7.85)
set(BT_ROUTER_LIBS PkgConfig::MICROHTTPD PkgConfig::CURL PkgConfig::YAML PkgConfig::JANSSON)
bt_layer(router SEES base yaml probe model plan memory report guard LIBS ${BT_ROUTER_LIBS})

# The page, built into it.
file(GLOB web_files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/web/*.*")
set(web_source "${CMAKE_BINARY_DIR}/web_files.c")
add_custom_command(OUTPUT "${web_source}"
    COMMAND "${CMAKE_COMMAND}" "-DOUT=${web_source}" "-DFILES=${web_files}" -P "${CMAKE_SOURCE_DIR}/cmake/web.cmake"
    DEPENDS ${web_files} "${CMAKE_SOURCE_DIR}/cmake/web.cmake" VERBATIM)
target_sources(bt_router PRIVATE "${web_source}")

# What tests of the router link beside libburthen.
add_library(bt_router_all INTERFACE)
target_sources(bt_router_all INTERFACE $<TARGET_OBJECTS:bt_router> $<TARGET_OBJECTS:bt_yaml>)
target_link_libraries(bt_router_all INTERFACE ${BT_ROUTER_LIBS})

if(BT_ENGINE) # for the program burthen, which it starts
    # The option table is the program's, and needs no llama.cpp.
    add_executable(burthen-serve "${CMAKE_SOURCE_DIR}/src/serve/serve.c" $<TARGET_OBJECTS:bt_router>
        $<TARGET_OBJECTS:bt_yaml>)
    foreach(source IN ITEMS logs options option_values option_devices nearby settings variables verbs say terminal)
        target_sources(burthen-serve PRIVATE "${CMAKE_SOURCE_DIR}/src/cli/${source}.c")
    endforeach()
    target_compile_options(burthen-serve PRIVATE ${BT_COMPILE_FLAGS})
    target_compile_definitions(burthen-serve PRIVATE _GNU_SOURCE)
    target_include_directories(burthen-serve PRIVATE "${CMAKE_SOURCE_DIR}/include" "${CMAKE_SOURCE_DIR}/src")
    target_link_libraries(burthen-serve PRIVATE burthen_static ${BT_ROUTER_LIBS})
    add_dependencies(burthen burthen-serve)
    install(TARGETS burthen-serve RUNTIME DESTINATION lib/burthen)
endif()
