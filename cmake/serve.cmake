# SPDX-License-Identifier: MIT
# burthen-serve: the router, a program of its own that `burthen serve` becomes. It names no library of llama.cpp, so that
# none is mapped into a process that may live for months beside the servers it starts (a test looks).
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd>=0.9.75)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl>=7.85)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
set(BT_ROUTER_LIBS PkgConfig::MICROHTTPD PkgConfig::CURL PkgConfig::YAML PkgConfig::JANSSON)
bt_layer(router SEES base probe model plan report guard LIBS ${BT_ROUTER_LIBS})

# What tests of the router link beside libburthen.
add_library(bt_router_all INTERFACE)
target_sources(bt_router_all INTERFACE $<TARGET_OBJECTS:bt_router>)
target_link_libraries(bt_router_all INTERFACE ${BT_ROUTER_LIBS})
