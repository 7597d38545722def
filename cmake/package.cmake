# SPDX-License-Identifier: MIT
# The Debian package (make package): what `make install` puts under /usr, and what a package must hold beside it.
# docs/packaging.md.
if(NOT BT_ENGINE)
    return()
endif()

# Who answers for the package, asked for as dpkg's own tools do. For one that was built at home nobody does.
set(maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
if("$ENV{DEBEMAIL}" STREQUAL "")
    set(maintainer "Burthen contributors <nobody@burthen.invalid>")
endif()
set(BT_PACKAGE_MAINTAINER "${maintainer}" CACHE STRING "Name <address> of who makes the package")

if(BT_PACKAGE)
    set(debian "${CMAKE_BINARY_DIR}/debian")
    string(TIMESTAMP BT_PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC) # of SOURCE_DATE_EPOCH, where that is set
    configure_file(cmake/debian/changelog.in "${debian}/changelog" @ONLY)
    execute_process(COMMAND gzip -9nc "${debian}/changelog" OUTPUT_FILE "${debian}/changelog.gz" COMMAND_ERROR_IS_FATAL ANY)
    install(FILES "${debian}/changelog.gz" cmake/debian/copyright DESTINATION share/doc/burthen)
    # Here, since CPack strips what it knows as targets, and llama.cpp's are files to it. As dh_strip does it.
    install(CODE [[
        set(usr "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
        set(notes --remove-section=.comment --remove-section=.note)
        file(GLOB binaries "${usr}/bin/burthen" "${usr}/lib/burthen/*")
        foreach(binary IN LISTS binaries)
            if(NOT IS_SYMLINK "${binary}")
                execute_process(COMMAND strip ${notes} --strip-unneeded "${binary}" COMMAND_ERROR_IS_FATAL ANY)
            endif()
        endforeach()
        file(GLOB pages "${usr}/share/man/man[0-9]/*[0-9]")
        foreach(page IN LISTS pages)
            execute_process(COMMAND gzip -9nf "${page}" COMMAND_ERROR_IS_FATAL ANY)
        endforeach()
        file(GLOB archives "${usr}/lib/*/libburthen.a")
        execute_process(COMMAND strip ${notes} --strip-debug --enable-deterministic-archives ${archives}
            COMMAND_ERROR_IS_FATAL ANY)
    ]])
endif()

file(READ cmake/debian/description CPACK_DEBIAN_PACKAGE_DESCRIPTION)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME burthen)
set(CPACK_PACKAGE_VENDOR "Burthen contributors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "language models within a memory budget that is kept")
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${BT_PACKAGE_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
# For programs that link lib/libburthen.a.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "liburing-dev, libjansson-dev, pkg-config")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${LLAMA_CPP_BUILD}/bin")
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR ON) # so that what is written at install time (the systemd unit) names /usr
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_POST_BUILD_SCRIPTS "${CMAKE_SOURCE_DIR}/cmake/debian/repack.cmake")
include(CPack)
