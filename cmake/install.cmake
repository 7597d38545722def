# SPDX-License-Identifier: MIT
# What `make install` and the package put under PREFIX:
#
#   bin/burthen
#   lib/burthen/                  the llama.cpp libraries that it was built against and llama-server where it was built,
#                                 the router, the workers, the drop-in library: private, of one exact version
#                                 (docs/design.md M9); they neither shadow a system's own nor are replaced by it
#   include/burthen.h, lib/libburthen.a, lib/pkgconfig/burthen.pc
#   lib/systemd/user/burthen.service
#   share/doc/burthen/
#
# Run paths are relative ($ORIGIN) and so are those of burthen.pc: the tree may be moved. The unit names the program by
# its whole path, as systemd wants it. Manual pages and completions: cmake/man.cmake.
if(BT_ENGINE)
    install(TARGETS burthen RUNTIME DESTINATION bin)
    bt_run_path(burthen "${LLAMA_CPP_BUILD}/bin" "$ORIGIN/../lib/burthen" bin/burthen)
    install(TARGETS burthen-template RUNTIME DESTINATION lib/burthen)
    # Looked for at install time: which backends there are depends on LLAMA_CMAKE_ARGS. Links stay links, but for those
    # without a version, which only a linker wants; a backend that is loaded at run time has no other name. The
    # libraries' own run path is $ORIGIN (tools/build-llama.sh).
    install(DIRECTORY "${LLAMA_CPP_BUILD}/bin/" DESTINATION lib/burthen
        FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ
        FILES_MATCHING PATTERN "libllama.so.*" PATTERN "libggml*.so.*" PATTERN "libggml-*.so"
        PATTERN "libllama-server-impl.so" PATTERN "libllama-common.so.*" PATTERN "libmtmd.so.*"
        PATTERN "libggml-base.so" EXCLUDE)
    # What `burthen serve` starts for a model file, where it was built (make llama-server).
    install(PROGRAMS "${LLAMA_CPP_BUILD}/bin/llama-server" DESTINATION lib/burthen OPTIONAL)
    # At install time too: the prefix is known then.
    install(CODE "set(unit_in \"${CMAKE_SOURCE_DIR}/cmake/burthen.service.in\")
set(unit_out \"${CMAKE_BINARY_DIR}/burthen.service\")")
    install(CODE [[
        configure_file("${unit_in}" "${unit_out}" @ONLY)
        file(INSTALL "${unit_out}" DESTINATION "${CMAKE_INSTALL_PREFIX}/lib/systemd/user")
    ]])
    install(FILES THIRD_PARTY_NOTICES.md README.md CHANGELOG.md DESTINATION share/doc/burthen)
    install(DIRECTORY docs DESTINATION share/doc/burthen) # what README and the manual point to
    if(NOT BT_PACKAGE) # there it is part of the file "copyright"
        install(FILES LICENSE DESTINATION share/doc/burthen)
    endif()
endif()

# For programs that plan: without llama.cpp.
set(BT_LIBDIR lib)
if(BT_PACKAGE)
    set(BT_LIBDIR "lib/${CMAKE_LIBRARY_ARCHITECTURE}") # where Debian's tools look when they build for another machine
endif()
file(RELATIVE_PATH BT_PC_PREFIX "/usr/${BT_LIBDIR}/pkgconfig" /usr)
string(REGEX REPLACE "/$" "" BT_PC_PREFIX "${BT_PC_PREFIX}")
configure_file(cmake/burthen.pc.in "${CMAKE_BINARY_DIR}/burthen.pc" @ONLY)
install(FILES include/burthen.h DESTINATION include)
install(TARGETS burthen_static ARCHIVE DESTINATION "${BT_LIBDIR}")
install(FILES "${CMAKE_BINARY_DIR}/burthen.pc" DESTINATION "${BT_LIBDIR}/pkgconfig")
